/* A load that goes through whatever carries TCP: work that is shared, and requests with their answers.
 *
 *     load serve                                     prints its port; ends when its standard input ends
 *     load share HOST PORT CLIENTS BYTES COUNT [PREFIX]  COUNT messages from one side, each to the client that takes it
 *     load ask HOST PORT CLIENTS BYTES COUNT [PREFIX]    CLIENTS that ask at once, COUNT requests in all, each echoed
 *
 * PREFIX is a file whose bytes go first on each connection: the first record of a client of TLS, by which
 * a gateway finds the server. The server throws one record away if there is one. A client prints one line of
 * JSON; one that nothing happened to for STALLED seconds says how far it came. */
#define _GNU_SOURCE
#include "../peers/measure.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 4096, EVENTS = 256, PIECE = 256 << 10, STALLED = 5, RECORD_HEADER = 5, TLS_HANDSHAKE = 22 };

/* What a client says first on each connection. */
struct order {
    char kind; /* 's'hare or 'a'sk */
    char unused[7];
    uint64_t run, clients, bytes, count;
};

/* The server's side of one connection. */
struct connection {
    int socket;
    struct order order;
    char head[sizeof(struct order) + RECORD_HEADER];
    size_t headed;   /* bytes of `head` that are there */
    size_t passing;  /* bytes of a record that are still to be thrown away */
    int is_ordered;
    size_t sent;     /* of the message that is under way; 0 is none */
    char *echoed;    /* of a request: what has come */
    size_t received;
    int is_answering;
};

/* Messages that are shared by the connections of one run. */
struct run {
    uint64_t number, joined, left;
};

static struct connection *connections[CONNECTIONS_MAX * 4];
static struct run runs[64];
static int poll_set;
static char *message;
static size_t message_bytes;

static void watch(struct connection *it, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = it->socket};
    if (epoll_ctl(poll_set, EPOLL_CTL_MOD, it->socket, &event)) fail("epoll_ctl", strerror(errno));
}

static void drop(struct connection *it) {
    connections[it->socket] = NULL;
    close(it->socket);
    free(it->echoed);
    free(it);
}

static struct run *run_of(const struct order *order) {
    struct run *oldest = &runs[0];
    for (size_t at = 0; at < sizeof runs / sizeof *runs; at++) {
        if (runs[at].number == order->run) return &runs[at];
        if (runs[at].number < oldest->number) oldest = &runs[at];
    }
    *oldest = (struct run){.number = order->run, .left = order->count};
    return oldest;
}

/* Gives messages to one connection for as long as it takes them. 0: the connection is over. */
static int share(struct connection *it) {
    struct run *run = run_of(&it->order);
    for (;;) {
        if (it->sent == 0) {
            if (run->left == 0) {
                shutdown(it->socket, SHUT_WR);
                watch(it, EPOLLIN);
                return 1;
            }
            run->left--;
        }
        ssize_t sent = send(it->socket, message + it->sent, it->order.bytes - it->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0) return errno == EAGAIN;
        it->sent = (it->sent + (size_t)sent) % it->order.bytes;
        /* Others have their turn. */
        if (it->sent == 0) return 1;
    }
}

static int answer(struct connection *it) {
    while (it->sent < it->order.bytes) {
        ssize_t sent = send(it->socket, it->echoed + it->sent, it->order.bytes - it->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) {
            if (!it->is_answering) watch(it, EPOLLOUT);
            it->is_answering = 1;
            return 1;
        }
        if (sent < 0) return 0;
        it->sent += (size_t)sent;
    }
    if (it->is_answering) watch(it, EPOLLIN);
    it->is_answering = 0;
    it->sent = it->received = 0;
    return 1;
}

static int echo(struct connection *it) {
    for (;;) {
        ssize_t got = recv(it->socket, it->echoed + it->received, it->order.bytes - it->received, MSG_DONTWAIT);
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return 0;
        it->received += (size_t)got;
        if (it->received == it->order.bytes) return answer(it);
    }
}

static void begin(struct connection *it) {
    it->is_ordered = 1;
    if (it->order.bytes > message_bytes) {
        free(message);
        message = payload(message_bytes = it->order.bytes);
    }
    if (it->order.kind == 'a') {
        it->echoed = malloc(it->order.bytes);
        return;
    }
    struct run *run = run_of(&it->order);
    if (++run->joined < it->order.clients) return;
    for (size_t at = 0; at < sizeof connections / sizeof *connections; at++)
        if (connections[at] && connections[at]->is_ordered && connections[at]->order.run == run->number)
            watch(connections[at], EPOLLOUT);
}

/* What comes before the order, and the order. */
static int head(struct connection *it) {
    while (it->passing) {
        static char nobody[4096];
        size_t most = it->passing < sizeof nobody ? it->passing : sizeof nobody;
        ssize_t got = recv(it->socket, nobody, most, MSG_DONTWAIT);
        if (got <= 0) return got < 0 && errno == EAGAIN;
        it->passing -= (size_t)got;
    }
    size_t wanted = it->headed && it->head[0] == TLS_HANDSHAKE ? RECORD_HEADER : sizeof it->order;
    if (it->headed == 0) wanted = 1;
    ssize_t got = recv(it->socket, it->head + it->headed, wanted - it->headed, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && errno == EAGAIN;
    it->headed += (size_t)got;
    if (it->head[0] == TLS_HANDSHAKE && it->headed == RECORD_HEADER) {
        it->passing = (size_t)(uint8_t)it->head[3] << 8 | (uint8_t)it->head[4];
        it->headed = 0;
    } else if (it->headed == sizeof it->order) {
        memcpy(&it->order, it->head, sizeof it->order);
        begin(it);
        return 1;
    }
    return head(it);
}

static void no_delay(int socket) {
    int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static void take(int listener) {
    int one;
    while ((one = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *it = calloc(1, sizeof *it);
        it->socket = one;
        connections[one] = it;
        no_delay(one);
        struct epoll_event event = {.events = EPOLLIN, .data.fd = one};
        epoll_ctl(poll_set, EPOLL_CTL_ADD, one, &event);
    }
}

static int serve(const char *host, int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    socklen_t bytes = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096) ||
        getsockname(listener, (struct sockaddr *)&address, &bytes))
        fail("listen", strerror(errno));
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    poll_set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poll_set, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = STDIN_FILENO;
    epoll_ctl(poll_set, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(poll_set, events, EVENTS, -1);
        for (int at = 0; at < count; at++) {
            int socket = events[at].data.fd;
            if (socket == listener) {
                take(listener);
                continue;
            }
            if (socket == STDIN_FILENO) return 0;
            struct connection *it = connections[socket];
            if (!it) continue;
            int goes_on;
            if (!it->is_ordered)
                goes_on = head(it);
            else if (it->order.kind == 'a')
                goes_on = it->is_answering ? answer(it) : echo(it);
            else if (events[at].events & EPOLLOUT)
                goes_on = share(it);
            else {
                static char nobody[4096];
                ssize_t got = recv(it->socket, nobody, sizeof nobody, MSG_DONTWAIT);
                goes_on = got < 0 && errno == EAGAIN;
            }
            if (!goes_on) drop(it);
        }
    }
}

/* A client's side of one connection. */
struct client {
    int socket;
    uint64_t received;  /* of all messages, or of one answer */
    size_t sent;
    double asked;
    int is_over;
};

struct load {
    struct order order;
    struct client *clients;
    char *prefix;
    size_t prefix_bytes;
    uint64_t asked, answered, bytes;
    double *delays;
    char *room;
    double first; /* when the first byte came */
    double tenths[11]; /* when each tenth of all bytes was there */
    size_t tenth;
};

static void reach(struct load *load, size_t index, const struct addrinfo *to) {
    struct client *it = &load->clients[index];
    it->socket = socket(to->ai_family, SOCK_STREAM, 0);
    if (connect(it->socket, to->ai_addr, to->ai_addrlen)) fail("connect", strerror(errno));
    no_delay(it->socket);
    if (load->prefix_bytes && send(it->socket, load->prefix, load->prefix_bytes, 0) < 0) fail("send", strerror(errno));
    if (send(it->socket, &load->order, sizeof load->order, 0) < 0) fail("send", strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = index};
    epoll_ctl(poll_set, EPOLL_CTL_ADD, it->socket, &event);
}

static void over(struct client *it) {
    it->is_over = 1;
    close(it->socket);
    it->socket = -1;
}

/* Sends what is left of a request; asks for the next turn where it does not fit. */
static void ask_on(struct load *load, size_t index) {
    struct client *it = &load->clients[index];
    size_t before = it->sent;
    while (it->sent < load->order.bytes) {
        ssize_t sent = send(it->socket, message + it->sent, load->order.bytes - it->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) fail("send", strerror(errno));
        if (sent < 0) break;
        it->sent += (size_t)sent;
    }
    int is_whole = it->sent == load->order.bytes;
    if (is_whole && before == 0) return;
    struct epoll_event event = {.events = is_whole ? EPOLLIN : EPOLLIN | EPOLLOUT, .data.u64 = index};
    epoll_ctl(poll_set, EPOLL_CTL_MOD, it->socket, &event);
}

static void ask(struct load *load, size_t index) {
    struct client *it = &load->clients[index];
    if (load->asked == load->order.count) {
        over(it);
        return;
    }
    load->asked++;
    it->sent = it->received = 0;
    it->asked = seconds();
    ask_on(load, index);
}

/* Takes what has come. 0: nothing more is to come. */
static void hear(struct load *load, size_t index) {
    struct client *it = &load->clients[index];
    for (;;) {
        ssize_t got = recv(it->socket, load->room, PIECE, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) return;
        if (got < 0 || (got == 0 && load->order.kind == 'a')) fail("a connection ends", got ? strerror(errno) : "early");
        if (got == 0) {
            over(it);
            return;
        }
        if (load->first == 0) load->first = seconds();
        it->received += (uint64_t)got;
        load->bytes += (uint64_t)got;
        uint64_t all = load->order.bytes * load->order.count;
        while (load->tenth < 10 && load->bytes >= all / 10 * (load->tenth + 1)) load->tenths[load->tenth++] = seconds();
        if (load->order.kind == 'a' && it->received == load->order.bytes) {
            load->delays[load->answered++] = seconds() - it->asked;
            ask(load, index);
            if (it->is_over) return;
        }
        if (got < PIECE) return;
    }
}

static double processor_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

static int client(int count, char **words) {
    struct load load = {.order = {.kind = words[1][0]}};
    load.order.run = (uint64_t)(seconds() * 1e9);
    load.order.clients = strtoull(words[4], NULL, 10);
    load.order.bytes = strtoull(words[5], NULL, 10);
    load.order.count = strtoull(words[6], NULL, 10);
    if (count > 7) {
        FILE *file = fopen(words[7], "rb");
        if (!file) fail(words[7], strerror(errno));
        load.prefix = malloc(1 << 16);
        load.prefix_bytes = fread(load.prefix, 1, 1 << 16, file);
        fclose(file);
    }
    load.clients = calloc(load.order.clients, sizeof *load.clients);
    load.delays = calloc(load.order.count + 1, sizeof *load.delays);
    load.room = malloc(PIECE);
    message = payload(load.order.bytes);
    poll_set = epoll_create1(0);
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *to;
    if (getaddrinfo(words[2], words[3], &hints, &to)) fail(words[2], "no such host");
    double began = seconds();
    for (size_t index = 0; index < load.order.clients; index++) reach(&load, index, to);
    if (load.order.kind == 'a')
        for (size_t index = 0; index < load.order.clients; index++) ask(&load, index);
    size_t open = load.order.clients;
    const char *state = "done";
    while (open) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poll_set, events, EVENTS, STALLED * 1000);
        if (ready == 0) {
            state = "stalled";
            break;
        }
        for (int at = 0; at < ready; at++) {
            size_t index = events[at].data.u64;
            if (load.clients[index].is_over) continue;
            if (events[at].events & EPOLLOUT) ask_on(&load, index);
            if (events[at].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) hear(&load, index);
        }
        open = 0;
        for (size_t index = 0; index < load.order.clients; index++) open += !load.clients[index].is_over;
    }
    double ended = seconds();
    size_t heard = 0;
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t index = 0; index < load.order.clients; index++) {
        uint64_t received = load.clients[index].received;
        heard += received > 0;
        least = received < least ? received : least;
        most = received > most ? received : most;
    }
    long delays = (long)load.answered;
    qsort(load.delays, (size_t)delays, sizeof *load.delays, by_value);
    printf("{\"state\": \"%s\", \"seconds\": %.6f, \"first_byte_s\": %.6f, \"bytes\": %llu, \"clients_heard\": %zu, "
           "\"client_bytes_min\": %llu, \"client_bytes_max\": %llu, \"client_cpu_s\": %.6f",
           state, ended - began, load.first ? load.first - began : -1.0, (unsigned long long)load.bytes, heard,
           (unsigned long long)least, (unsigned long long)most, processor_seconds());
    if (load.tenth == 10) {
        double from = load.tenths[3 - 1];
        printf(", \"steady_mb_per_s\": %.3f", (double)load.bytes * 0.7e-6 / (load.tenths[9] - from));
    }
    if (delays > 0)
        printf(", \"answers\": %ld, \"p50_us\": %.2f, \"p99_us\": %.2f", delays, load.delays[delays / 2] * 1e6,
               load.delays[delays * 99 / 100] * 1e6);
    printf("}\n");
    return 0;
}

int main(int count, char **words) {
    signal(SIGPIPE, SIG_IGN);
    if (count >= 2 && !strcmp(words[1], "serve"))
        return serve(count > 2 ? words[2] : "127.0.0.1", count > 3 ? atoi(words[3]) : 0);
    if (count >= 7 && (!strcmp(words[1], "share") || !strcmp(words[1], "ask"))) return client(count, words);
    fprintf(stderr, "load serve [HOST PORT] | load share|ask HOST PORT CLIENTS BYTES COUNT [PREFIX]\n");
    return 2;
}
