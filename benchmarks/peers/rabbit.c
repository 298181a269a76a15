/* Drives RabbitMQ through librabbitmq.
 *
 *   rabbit produce PORT QUEUE EVENTS BYTES
 *   rabbit consume PORT QUEUE EVENTS BYTES PREFETCH
 *   rabbit share   PORT QUEUE EVENTS BYTES PREFETCH CLIENTS
 *   rabbit request PORT QUEUE EVENTS BYTES IN-FLIGHT
 *   rabbit delete  PORT QUEUE
 *
 * Queues are classic and durable, their messages persistent; nobody awaits
 * publisher confirms. Each message is acknowledged by itself. Requests go to
 * such a queue as messages that are not persistent, and their replies by
 * "direct reply-to", which is no queue at all.
 */
#include "measure.h"
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHANNEL 1

static void expect(amqp_connection_state_t at, const char *what) {
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(at);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) return;
    fail(what, reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                   ? amqp_error_string2(reply.library_error)
                   : "the server refuses");
}

static void done(int status, const char *what) {
    if (status != AMQP_STATUS_OK) fail(what, amqp_error_string2(status));
}

static amqp_connection_state_t connect_to(int port) {
    amqp_connection_state_t at = amqp_new_connection();
    amqp_socket_t *socket = at ? amqp_tcp_socket_new(at) : NULL;
    if (!socket) fail("connection", "no memory");
    done(amqp_socket_open(socket, "127.0.0.1", port), "connection");
    amqp_rpc_reply_t reply =
        amqp_login(at, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) fail("login", "refused");
    amqp_channel_open(at, CHANNEL);
    expect(at, "channel");
    return at;
}

/* Makes the queue if it is not there; returns how many messages are in it. */
static uint32_t declare(amqp_connection_state_t at, const char *queue) {
    amqp_queue_declare_ok_t *made = amqp_queue_declare(at, CHANNEL, amqp_cstring_bytes(queue), 0, 1,
                                                       0, 0, amqp_empty_table);
    expect(at, "queue");
    return made->message_count;
}

static void publish(amqp_connection_state_t at, amqp_bytes_t queue, char *event, size_t bytes,
                    int is_persistent) {
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = is_persistent ? 2 : 1};
    amqp_bytes_t body = {.len = bytes, .bytes = event};
    done(amqp_basic_publish(at, CHANNEL, amqp_empty_bytes, queue, 0, 0, &properties, body),
         "publish");
}

static void subscribe(amqp_connection_state_t at, amqp_bytes_t queue, long prefetch, int no_ack) {
    if (prefetch) {
        amqp_basic_qos(at, CHANNEL, 0, (uint16_t)prefetch, 0);
        expect(at, "prefetch");
    }
    amqp_basic_consume(at, CHANNEL, queue, amqp_empty_bytes, 0, no_ack, 0, amqp_empty_table);
    expect(at, "consume");
}

/* The next message, or 0 when none came for so long. */
static int next(amqp_connection_state_t at, amqp_envelope_t *message, long milliseconds) {
    struct timeval wait = {.tv_sec = milliseconds / 1000,
                           .tv_usec = milliseconds % 1000 * 1000};
    amqp_maybe_release_buffers(at);
    amqp_rpc_reply_t reply = amqp_consume_message(at, message, &wait, 0);
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) return 1;
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_TIMEOUT)
        return 0;
    fail("message", "the connection ended");
    return 0;
}

/* What is written is held back, or goes out. */
static void hold_back(amqp_connection_state_t at, int held) {
    setsockopt(amqp_get_sockfd(at), IPPROTO_TCP, TCP_CORK, &held, sizeof held);
}

/* Acknowledges; the acknowledgements of what was read at once go out at once. */
static void acknowledge(amqp_connection_state_t at, uint64_t tag) {
    done(amqp_basic_ack(at, CHANNEL, tag, 0), "acknowledgement");
    if (!amqp_frames_enqueued(at) && !amqp_data_in_buffer(at)) {
        hold_back(at, 0);
        hold_back(at, 1);
    }
}

static void produce(int port, const char *queue, long events, size_t bytes) {
    amqp_connection_state_t at = connect_to(port);
    char *event = payload(bytes);
    declare(at, queue);
    double began = seconds();
    hold_back(at, 1);
    for (long index = 0; index < events; index++)
        publish(at, amqp_cstring_bytes(queue), event, bytes, 1);
    hold_back(at, 0);
    while (declare(at, queue) < (uint32_t)events) usleep(1000);
    print_rate(events, bytes, seconds() - began);
}

static void consume(int port, const char *queue, long events, size_t bytes, long prefetch) {
    amqp_connection_state_t at = connect_to(port);
    double began = seconds();
    subscribe(at, amqp_cstring_bytes(queue), prefetch, 0);
    hold_back(at, 1);
    for (long seen = 0; seen < events; seen++) {
        amqp_envelope_t message;
        if (!next(at, &message, 60000)) fail(queue, "no message came for 60 s");
        if (message.message.body.len != bytes) fail(queue, "other bytes came than were sent");
        acknowledge(at, message.delivery_tag);
        amqp_destroy_envelope(&message);
    }
    hold_back(at, 0);
    /* Its answer comes behind the acknowledgements. */
    declare(at, queue);
    print_rate(events, bytes, seconds() - began);
}

/* What the processes of `share` have in common. */
struct common {
    atomic_long ready, settled, sent;
    atomic_int begun;
};

static void await(struct common *common) {
    atomic_fetch_add(&common->ready, 1);
    while (!atomic_load(&common->begun)) usleep(500);
}

static void share_out(int port, const char *queue, long events, size_t bytes,
                      struct common *common) {
    amqp_connection_state_t at = connect_to(port);
    char *event = payload(bytes);
    await(common);
    for (long index = 0; index < events; index++)
        publish(at, amqp_cstring_bytes(queue), event, bytes, 1);
    atomic_fetch_add(&common->sent, events);
    /* Behind the messages: whoever ends sooner may take them along. */
    declare(at, queue);
    _exit(0);
}

static void share_in(int port, const char *queue, long events, size_t bytes, long prefetch,
                     struct common *common) {
    amqp_connection_state_t at = connect_to(port);
    subscribe(at, amqp_cstring_bytes(queue), prefetch, 0);
    await(common);
    hold_back(at, 1);
    while (atomic_load(&common->settled) < events) {
        amqp_envelope_t message;
        if (!next(at, &message, 50)) continue;
        if (message.message.body.len != bytes) fail(queue, "other bytes came than were sent");
        acknowledge(at, message.delivery_tag);
        amqp_destroy_envelope(&message);
        atomic_fetch_add(&common->settled, 1);
    }
    hold_back(at, 0);
    _exit(0);
}

static int share(int port, const char *queue, long events, size_t bytes, long prefetch,
                 long clients) {
    struct common *common =
        mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED) fail("share", "no memory");
    declare(connect_to(port), queue);
    for (long client = 0; client < clients; client++) {
        long own = events / clients + (client < events % clients);
        if (!fork()) share_out(port, queue, own, bytes, common);
        if (!fork()) share_in(port, queue, events, bytes, prefetch, common);
    }
    while (atomic_load(&common->ready) < 2 * clients) usleep(1000);
    double began = seconds();
    atomic_store(&common->begun, 1);
    double moved = began;
    for (long before = 0, now; (now = atomic_load(&common->settled)) < events; before = now) {
        if (now != before) moved = seconds();
        if (seconds() - moved > 60) fail(queue, "nothing was settled for 60 s");
        usleep(500);
    }
    print_rate(events, bytes, seconds() - began);
    fflush(stdout);
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    return failed != 0;
}

static void answer(int port, const char *queue, long requests, int told) {
    amqp_connection_state_t at = connect_to(port);
    subscribe(at, amqp_cstring_bytes(queue), 256, 0);
    if (write(told, "x", 1) != 1) _exit(1);
    for (long seen = 0; seen < requests; seen++) {
        amqp_envelope_t message;
        if (!next(at, &message, 60000)) fail(queue, "no request came for 60 s");
        amqp_basic_properties_t properties = {._flags = AMQP_BASIC_CORRELATION_ID_FLAG};
        properties.correlation_id = message.message.properties.correlation_id;
        done(amqp_basic_publish(at, CHANNEL, amqp_empty_bytes, message.message.properties.reply_to,
                                0, 0, &properties, message.message.body),
             "reply");
        done(amqp_basic_ack(at, CHANNEL, message.delivery_tag, 0), "acknowledgement");
        amqp_destroy_envelope(&message);
    }
    /* Behind the replies. */
    declare(at, queue);
    _exit(0);
}

static int request(int port, const char *queue, long events, size_t bytes, long in_flight) {
    long warmup = events / 10 + in_flight, all = events + warmup;
    int told[2];
    if (pipe(told)) fail("pipe", "could not be made");
    amqp_connection_state_t at = connect_to(port);
    declare(at, queue);
    pid_t worker = fork();
    if (!worker) answer(port, queue, all, told[1]);
    char byte, *event = payload(bytes);
    if (read(told[0], &byte, 1) != 1) fail(queue, "the worker ended");
    amqp_bytes_t reply_to = amqp_cstring_bytes("amq.rabbitmq.reply-to");
    subscribe(at, reply_to, 0, 1);
    double *sent = calloc((size_t)all, sizeof *sent);
    long asked = 0;
    for (long seen = 0; seen < all; seen++) {
        for (; asked < all && asked - seen < in_flight; asked++) {
            amqp_basic_properties_t properties = {
                ._flags = AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_REPLY_TO_FLAG |
                          AMQP_BASIC_CORRELATION_ID_FLAG,
                .delivery_mode = 1,
                .reply_to = reply_to};
            properties.correlation_id = (amqp_bytes_t){.len = sizeof asked, .bytes = &asked};
            sent[asked] = seconds();
            amqp_bytes_t body = {.len = bytes, .bytes = event};
            done(amqp_basic_publish(at, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(queue), 0, 0,
                                    &properties, body),
                 "request");
        }
        amqp_envelope_t reply;
        if (!next(at, &reply, 60000)) fail(queue, "no reply came for 60 s");
        long number;
        amqp_bytes_t id = reply.message.properties.correlation_id;
        if (id.len != sizeof number) fail(queue, "a reply does not say to what");
        memcpy(&number, id.bytes, sizeof number);
        if (number < 0 || number >= asked || reply.message.body.len != bytes)
            fail(queue, "a reply is to nothing that was asked");
        sent[number] = seconds() - sent[number];
        amqp_destroy_envelope(&reply);
    }
    print_delays(sent + warmup, events);
    fflush(stdout);
    int status;
    waitpid(worker, &status, 0);
    return status != 0;
}

int main(int argc, char **argv) {
    if (argc < 4 || (argc < 6 && strcmp(argv[1], "delete"))) {
        fputs("usage: rabbit WORK PORT QUEUE [EVENTS BYTES [COUNT [CLIENTS]]]\n", stderr);
        return 2;
    }
    const char *work = argv[1], *queue = argv[3];
    int port = atoi(argv[2]);
    if (!strcmp(work, "delete")) {
        amqp_connection_state_t at = connect_to(port);
        amqp_queue_delete(at, CHANNEL, amqp_cstring_bytes(queue), 0, 0);
        expect(at, "queue");
        return 0;
    }
    long events = atol(argv[4]), count = argc > 6 ? atol(argv[6]) : 1;
    size_t bytes = (size_t)atol(argv[5]);
    if (!strcmp(work, "produce")) produce(port, queue, events, bytes);
    else if (!strcmp(work, "consume")) consume(port, queue, events, bytes, count);
    else if (!strcmp(work, "share"))
        return share(port, queue, events, bytes, count, argc > 7 ? atol(argv[7]) : 1);
    else if (!strcmp(work, "request")) return request(port, queue, events, bytes, count);
    else fail(work, "no such work");
    return 0;
}
