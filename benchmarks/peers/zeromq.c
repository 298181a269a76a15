/* Drives ZeroMQ: two processes and a socket, no server and no log.
 *
 *   zeromq stream  ENDPOINT EVENTS BYTES RECEIVER-CORE   PUSH to PULL, memory not copied by the sender
 *   zeromq latency ENDPOINT EVENTS BYTES RECEIVER-CORE   PAIR to PAIR, half of a round trip
 *
 * The receiver is put on RECEIVER-CORE: there is no server to have it.
 */
#define _GNU_SOURCE
#include "measure.h"
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

static void nothing(void *data, void *hint) { (void)data, (void)hint; }

static void *open_socket(int type, const char *endpoint, int binds) {
    void *socket = zmq_socket(zmq_ctx_new(), type);
    if (!socket || (binds ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)))
        fail(endpoint, zmq_strerror(zmq_errno()));
    return socket;
}

static void receive_stream(const char *endpoint, long events, size_t bytes) {
    void *socket = open_socket(ZMQ_PULL, endpoint, 1);
    zmq_msg_t message;
    zmq_msg_init(&message);
    double began = 0;
    /* The first event opens the connection; the clock runs from there on. */
    for (long seen = 0; seen <= events; seen++) {
        if (zmq_msg_recv(&message, socket, 0) < 0) fail(endpoint, zmq_strerror(zmq_errno()));
        if (seen == 0) began = seconds();
    }
    print_rate(events, bytes, seconds() - began);
    fflush(stdout);
    _exit(0);
}

static void send_stream(const char *endpoint, long events, size_t bytes) {
    void *socket = open_socket(ZMQ_PUSH, endpoint, 0);
    char *event = payload(bytes);
    for (long index = 0; index <= events; index++) {
        /* Short events are copied: a message that owns memory costs more. */
        if (bytes < 65536) {
            if (zmq_send(socket, event, bytes, 0) < 0) fail("send", zmq_strerror(zmq_errno()));
            continue;
        }
        zmq_msg_t message;
        zmq_msg_init_data(&message, event, bytes, nothing, NULL);
        if (zmq_msg_send(&message, socket, 0) < 0) fail("send", zmq_strerror(zmq_errno()));
    }
}

static void echo(const char *endpoint, long events, size_t bytes) {
    void *socket = open_socket(ZMQ_PAIR, endpoint, 1);
    char *event = payload(bytes);
    for (long index = 0; index < events; index++) {
        zmq_recv(socket, event, bytes, 0);
        zmq_send(socket, event, bytes, 0);
    }
    /* What was sent last is still on its way when the process would end. */
    zmq_recv(socket, event, bytes, 0);
    _exit(0);
}

static void ask(const char *endpoint, long events, size_t bytes) {
    void *socket = open_socket(ZMQ_PAIR, endpoint, 0);
    char *event = payload(bytes);
    double *delays = calloc((size_t)events, sizeof *delays);
    for (long index = 0; index < events; index++) {
        double began = seconds();
        zmq_send(socket, event, bytes, 0);
        zmq_recv(socket, event, bytes, 0);
        delays[index] = (seconds() - began) / 2;
    }
    zmq_send(socket, event, bytes, 0);
    print_delays(delays, events);
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fputs("usage: zeromq stream|latency ENDPOINT EVENTS BYTES RECEIVER-CORE\n", stderr);
        return 2;
    }
    int is_stream = !strcmp(argv[1], "stream");
    long events = atol(argv[3]);
    size_t bytes = (size_t)atol(argv[4]);
    pid_t receiver = fork();
    if (!receiver) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(atoi(argv[5]), &cores);
        if (sched_setaffinity(0, sizeof cores, &cores)) fail(argv[5], "no such core");
        (is_stream ? receive_stream : echo)(argv[2], events, bytes);
    }
    (is_stream ? send_stream : ask)(argv[2], events, bytes);
    int status;
    waitpid(receiver, &status, 0);
    return status != 0;
}
