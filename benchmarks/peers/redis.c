/* Drives Redis through hiredis.
 *
 *   redis stream-produce PORT KEY EVENTS BYTES IN-FLIGHT
 *   redis stream-consume PORT KEY EVENTS BYTES AT-ONCE
 *   redis stream-latency PORT KEY EVENTS BYTES
 *   redis list-latency   PORT KEY EVENTS BYTES
 *   redis group-consume  PORT KEY EVENTS BYTES AT-ONCE
 *   redis group-consume-singly PORT KEY EVENTS BYTES AT-ONCE
 *   redis request        PORT KEY EVENTS BYTES
 *   redis request-plain  PORT KEY EVENTS BYTES
 *   redis delete         PORT KEY
 *
 * PORT is a number, or the path of a unix socket. A group's entries are
 * acknowledged by one XACK for what came at once, or (singly) by one for each,
 * pipelined. A request and its reply go by a list each; `request` sends each
 * LPUSH together with the BRPOP that follows it, `request-plain` awaits it.
 */
#include "measure.h"
#include <hiredis/hiredis.h>
#include <sys/wait.h>
#include <unistd.h>

static redisContext *connect_to(const char *port) {
    redisContext *context =
        port[0] == '/' ? redisConnectUnix(port) : redisConnect("127.0.0.1", atoi(port));
    if (!context || context->err) fail(port, context ? context->errstr : "no memory");
    return context;
}

static redisReply *checked(redisContext *context, void *reply) {
    redisReply *answer = reply;
    if (!answer) fail("redis", context->errstr);
    if (answer->type == REDIS_REPLY_ERROR) fail("redis", answer->str);
    return answer;
}

static void produce(redisContext *context, const char *key, long events, size_t bytes,
                    long in_flight) {
    char *event = payload(bytes);
    const char *words[] = {"XADD", key, "*", "d", event};
    size_t lengths[] = {4, strlen(key), 1, 1, bytes};
    long sent = 0, answered = 0;
    double began = seconds();
    while (answered < events) {
        for (; sent < events && sent - answered < in_flight; sent++) {
            memcpy(event, &sent, bytes < sizeof sent ? bytes : sizeof sent);
            redisAppendCommandArgv(context, 5, words, lengths);
        }
        /* Half of them are awaited, so that the server always has work. */
        long awaited = sent == events ? sent - answered : (in_flight + 1) / 2;
        for (; awaited > 0; awaited--, answered++) {
            void *reply;
            if (redisGetReply(context, &reply)) fail("redis", context->errstr);
            freeReplyObject(checked(context, reply));
        }
    }
    print_rate(events, bytes, seconds() - began);
}

/* Reads entries behind `last`, which is moved; returns the reply, or NULL. */
static redisReply *read_stream(redisContext *context, const char *key, long at_once, int wait,
                               char last[64]) {
    void *reply = wait ? redisCommand(context, "XREAD COUNT %ld BLOCK 60000 STREAMS %s %s", at_once,
                                      key, last)
                       : redisCommand(context, "XREAD COUNT %ld STREAMS %s %s", at_once, key, last);
    redisReply *answer = checked(context, reply);
    if (answer->type != REDIS_REPLY_ARRAY) fail(key, "no entry is there");
    redisReply *entries = answer->element[0]->element[1];
    snprintf(last, 64, "%s", entries->element[entries->elements - 1]->element[0]->str);
    return answer;
}

static void consume(redisContext *context, const char *key, long events, size_t bytes,
                    long at_once) {
    char last[64] = "0";
    size_t total = 0;
    double began = seconds();
    for (long seen = 0; seen < events;) {
        redisReply *answer = read_stream(context, key, at_once, 0, last);
        redisReply *entries = answer->element[0]->element[1];
        for (size_t index = 0; index < entries->elements; index++)
            total += entries->element[index]->element[1]->element[1]->len;
        seen += (long)entries->elements;
        freeReplyObject(answer);
    }
    double elapsed = seconds() - began;
    if (total != (size_t)events * bytes) fail(key, "other bytes came than were sent");
    print_rate(events, bytes, elapsed);
}

/* Fails unless everything that was given out was acknowledged. */
static void expect_no_pending(redisContext *context, const char *key) {
    redisReply *pending = checked(context, redisCommand(context, "XPENDING %s group", key));
    if (pending->element[0]->integer) fail(key, "entries were not acknowledged");
    freeReplyObject(pending);
    freeReplyObject(checked(context, redisCommand(context, "XGROUP DESTROY %s group", key)));
}

/* The XACK of entries, or one XACK for each. */
static long acknowledge(redisContext *context, const char *key, redisReply *entries, int singly) {
    size_t count = entries->elements, each = singly ? 1 : count;
    const char **words = calloc(each + 3, sizeof *words);
    if (!words) fail(key, "no memory");
    words[0] = "XACK", words[1] = key, words[2] = "group";
    for (size_t index = 0; index < count; index += each) {
        for (size_t at = 0; at < each; at++)
            words[3 + at] = entries->element[index + at]->element[0]->str;
        redisAppendCommandArgv(context, (int)(each + 3), words, NULL);
    }
    free(words);
    return (long)(count / each);
}

static void consume_group(redisContext *context, const char *key, long events, size_t bytes,
                          long at_once, int singly) {
    freeReplyObject(checked(context, redisCommand(context, "XGROUP CREATE %s group 0", key)));
    size_t total = 0;
    double began = seconds();
    /* Two reads are under way, so that the server has work while one is looked at. */
    const char *read = "XREADGROUP GROUP group member COUNT %ld STREAMS %s >";
    long asked = 0, acks[2] = {0, 0};
    for (; asked < 2 && asked * at_once < events; asked++)
        redisAppendCommand(context, read, at_once, key);
    void *reply;
    for (long seen = 0, turn = 0; seen < events; turn++) {
        /* Behind the acknowledgements that were sent before it. */
        for (; acks[turn % 2] > 0; acks[turn % 2]--) {
            if (redisGetReply(context, &reply)) fail("redis", context->errstr);
            freeReplyObject(checked(context, reply));
        }
        if (redisGetReply(context, &reply)) fail("redis", context->errstr);
        redisReply *answer = checked(context, reply);
        if (answer->type != REDIS_REPLY_ARRAY) fail(key, "no entry is there");
        redisReply *entries = answer->element[0]->element[1];
        for (size_t index = 0; index < entries->elements; index++)
            total += entries->element[index]->element[1]->element[1]->len;
        seen += (long)entries->elements;
        acks[turn % 2] = acknowledge(context, key, entries, singly);
        if (asked * at_once < events) {
            redisAppendCommand(context, read, at_once, key);
            asked++;
        }
        freeReplyObject(answer);
    }
    for (long left = acks[0] + acks[1]; left > 0; left--) {
        if (redisGetReply(context, &reply)) fail("redis", context->errstr);
        freeReplyObject(checked(context, reply));
    }
    double elapsed = seconds() - began;
    if (total != (size_t)events * bytes) fail(key, "other bytes came than were sent");
    expect_no_pending(context, key);
    print_rate(events, bytes, elapsed);
}

/* One list to the worker, one back. */
static void lists(const char *key, char requests[128], char replies[128]) {
    snprintf(requests, 128, "%s.requests", key);
    snprintf(replies, 128, "%s.replies", key);
}

/* Pushes to one list and pops from the other; returns what came. */
static redisReply *push_and_pop(redisContext *context, const char *to, const char *from,
                                const char *event, size_t bytes, int is_plain) {
    void *reply;
    redisAppendCommand(context, "LPUSH %s %b", to, event, bytes);
    if (!is_plain) redisAppendCommand(context, "BRPOP %s 60", from);
    if (redisGetReply(context, &reply)) fail("redis", context->errstr);
    freeReplyObject(checked(context, reply));
    if (is_plain) redisAppendCommand(context, "BRPOP %s 60", from);
    if (redisGetReply(context, &reply)) fail("redis", context->errstr);
    redisReply *answer = checked(context, reply);
    if (answer->type != REDIS_REPLY_ARRAY) fail(from, "nothing came for 60 s");
    return answer;
}

static void answer(const char *port, const char *key, long requests, int is_plain) {
    redisContext *context = connect_to(port);
    char to[128], from[128];
    lists(key, from, to);
    redisReply *request = checked(context, redisCommand(context, "BRPOP %s 60", from));
    for (long seen = 1; seen < requests; seen++) {
        redisReply *data = request->element[1];
        redisReply *next = push_and_pop(context, to, from, data->str, data->len, is_plain);
        freeReplyObject(request);
        request = next;
    }
    redisReply *data = request->element[1];
    freeReplyObject(checked(context, redisCommand(context, "LPUSH %s %b", to, data->str, data->len)));
    _exit(0);
}

static int request(const char *port, const char *key, long events, size_t bytes, int is_plain) {
    long warmup = events / 10 + 1;
    pid_t worker = fork();
    if (!worker) answer(port, key, events + warmup, is_plain);
    redisContext *context = connect_to(port);
    char to[128], from[128], *event = payload(bytes);
    lists(key, to, from);
    double *delays = calloc((size_t)events, sizeof *delays);
    for (long index = -warmup; index < events; index++) {
        double began = seconds();
        redisReply *reply = push_and_pop(context, to, from, event, bytes, is_plain);
        if (index >= 0) delays[index] = seconds() - began;
        if (reply->element[1]->len != bytes) fail(key, "other bytes came than were sent");
        freeReplyObject(reply);
    }
    print_delays(delays, events);
    fflush(stdout);
    int status;
    waitpid(worker, &status, 0);
    return status != 0;
}

static void receive(const char *port, const char *key, long events, int is_list, int tell) {
    redisContext *context = connect_to(port);
    double *delays = calloc((size_t)events, sizeof *delays);
    char last[64] = "0";
    for (long seen = 0; seen < events; seen++) {
        redisReply *answer;
        const char *event;
        if (is_list) {
            answer = checked(context, redisCommand(context, "BRPOP %s 60", key));
            if (answer->type != REDIS_REPLY_ARRAY) fail(key, "no event came for 60 s");
            event = answer->element[1]->str;
        } else {
            answer = read_stream(context, key, 1, 1, last);
            event = answer->element[0]->element[1]->element[0]->element[1]->element[1]->str;
        }
        double sent;
        memcpy(&sent, event, sizeof sent);
        delays[seen] = seconds() - sent;
        freeReplyObject(answer);
        if (write(tell, "x", 1) != 1) _exit(1);
    }
    print_delays(delays, events);
    fflush(stdout);
    _exit(0);
}

static int latency(const char *port, const char *key, long events, size_t bytes, int is_list) {
    int told[2];
    if (pipe(told)) fail("pipe", "could not be made");
    pid_t receiver = fork();
    if (!receiver) receive(port, key, events, is_list, told[1]);
    close(told[1]);
    redisContext *context = connect_to(port);
    char *event = payload(bytes), byte;
    for (long index = 0; index < events; index++) {
        double now = seconds();
        memcpy(event, &now, sizeof now);
        void *reply = is_list ? redisCommand(context, "LPUSH %s %b", key, event, bytes)
                              : redisCommand(context, "XADD %s * d %b", key, event, bytes);
        freeReplyObject(checked(context, reply));
        if (read(told[0], &byte, 1) != 1) fail(key, "the receiver ended");
    }
    int status;
    waitpid(receiver, &status, 0);
    return status != 0;
}

int main(int argc, char **argv) {
    if (argc < 4 || (argc < 6 && strcmp(argv[1], "delete"))) {
        fputs("usage: redis WORK PORT KEY [EVENTS BYTES [COUNT]]\n", stderr);
        return 2;
    }
    const char *work = argv[1], *port = argv[2], *key = argv[3];
    if (!strcmp(work, "delete")) {
        redisContext *context = connect_to(port);
        freeReplyObject(checked(context, redisCommand(context, "DEL %s", key)));
        return 0;
    }
    long events = atol(argv[4]), count = argc > 6 ? atol(argv[6]) : 1;
    size_t bytes = (size_t)atol(argv[5]);
    if (!strcmp(work, "stream-latency")) return latency(port, key, events, bytes, 0);
    if (!strcmp(work, "list-latency")) return latency(port, key, events, bytes, 1);
    if (!strcmp(work, "request")) return request(port, key, events, bytes, 0);
    if (!strcmp(work, "request-plain")) return request(port, key, events, bytes, 1);
    redisContext *context = connect_to(port);
    if (!strcmp(work, "group-consume")) consume_group(context, key, events, bytes, count, 0);
    else if (!strcmp(work, "group-consume-singly"))
        consume_group(context, key, events, bytes, count, 1);
    else if (!strcmp(work, "stream-produce")) produce(context, key, events, bytes, count);
    else consume(context, key, events, bytes, count);
    return 0;
}
