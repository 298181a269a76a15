// A line with a length: every packet of one interface leaves by the other one a while later, so that TCP sees a path
// of that delay. SIGUSR1 cuts it (packets are lost, in silence), SIGUSR2 mends it.
//
//     cc -O2 -o delay delay.c && ./delay IF_A IF_B DELAY_US [LOSE_ONE_IN]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { PACKET_BYTES_MAX = 9216, HELD_BYTES_MAX = 256 << 20, SOCKET_BYTES = 32 << 20, AT_ONCE = 256 };

struct packet {
    struct packet *next;
    uint64_t due;
    uint32_t bytes;
    char data[];
};

// One direction: what waits, oldest first.
struct way {
    int from, to;
    struct packet *first, **end;
    size_t held;
};

static volatile sig_atomic_t is_cut;

static void on_signal(int signal) { is_cut = signal == SIGUSR1; }

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int open_interface(const char *name)
{
    int all = SOCKET_BYTES, yes = 1, raw = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
    address.sll_ifindex = (int)if_nametoindex(name);
    setsockopt(raw, SOL_SOCKET, SO_RCVBUFFORCE, &all, sizeof all);
    setsockopt(raw, SOL_SOCKET, SO_SNDBUFFORCE, &all, sizeof all);
    setsockopt(raw, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes);
    if (raw < 0 || bind(raw, (struct sockaddr *)&address, sizeof address) < 0) {
        perror(name);
        exit(1);
    }
    return raw;
}

// Takes what has come, but for what is lost.
static void take(struct way *way, uint64_t due, unsigned lose_one_in)
{
    static char data[PACKET_BYTES_MAX];
    static unsigned seen;
    for (int count = 0; count < AT_ONCE; count++) {
        ssize_t bytes = recv(way->from, data, sizeof data, 0);
        if (bytes <= 0)
            return;
        int is_lost = lose_one_in && ++seen % lose_one_in == 0;
        if (is_cut || is_lost || way->held + (size_t)bytes > HELD_BYTES_MAX)
            continue;
        struct packet *packet = malloc(sizeof *packet + (size_t)bytes);
        if (!packet)
            continue;
        packet->next = NULL;
        packet->due = due;
        packet->bytes = (uint32_t)bytes;
        __builtin_memcpy(packet->data, data, (size_t)bytes);
        *way->end = packet;
        way->end = &packet->next;
        way->held += (size_t)bytes;
    }
}

// Passes on what is due, and says when the next one is.
static uint64_t pass(struct way *way, uint64_t now)
{
    while (way->first && way->first->due <= now) {
        struct packet *packet = way->first;
        way->first = packet->next;
        if (!way->first)
            way->end = &way->first;
        way->held -= packet->bytes;
        // A full interface loses it, as any line does.
        (void)!send(way->to, packet->data, packet->bytes, 0);
        free(packet);
    }
    return way->first ? way->first->due : UINT64_MAX;
}

int main(int count, char **arguments)
{
    if (count < 4)
        return 2;
    struct sigaction action = { .sa_handler = on_signal };
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    int a = open_interface(arguments[1]), b = open_interface(arguments[2]);
    uint64_t delay = strtoull(arguments[3], NULL, 10) * 1000u;
    unsigned lose_one_in = count > 4 ? (unsigned)atoi(arguments[4]) : 0;
    struct way ways[2] = { { .from = a, .to = b }, { .from = b, .to = a } };
    for (int i = 0; i < 2; i++)
        ways[i].end = &ways[i].first;
    for (;;) {
        uint64_t now = now_ns(), due = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            uint64_t next = pass(&ways[i], now);
            due = next < due ? next : due;
        }
        struct pollfd ends[2] = { { .fd = a, .events = POLLIN }, { .fd = b, .events = POLLIN } };
        uint64_t left = due > now ? due - now : 0;
        struct timespec wait = { .tv_sec = (time_t)(left / 1000000000u), .tv_nsec = (long)(left % 1000000000u) };
        ppoll(ends, 2, due == UINT64_MAX ? NULL : &wait, NULL);
        for (int i = 0; i < 2; i++)
            take(&ways[i], now_ns() + delay, lose_one_in);
    }
}
