/* Drives Kafka through librdkafka.
 *
 *   kafka create  BROKER TOPIC
 *   kafka delete  BROKER TOPIC
 *   kafka produce BROKER TOPIC EVENTS BYTES [key=value ...]
 *   kafka consume BROKER TOPIC EVENTS BYTES [key=value ...]
 *   kafka tail    BROKER TOPIC EVENTS BYTES producer-key=value ... -- consumer-key=value ...
 *   kafka latency BROKER TOPIC EVENTS BYTES producer-key=value ... -- consumer-key=value ...
 *
 * The clock runs from the first event to the last acknowledgement, or from
 * the request to read to the last event. Tailing, a consuming process is there
 * before the first event is pushed. Latency is that of one event at a time,
 * from a producing process through the broker to a consuming one.
 */
#include "measure.h"
#include <librdkafka/rdkafka.h>
#include <sys/wait.h>
#include <unistd.h>

static char error[512];
static long acknowledged, refused;

static void delivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err) refused++;
    else acknowledged++;
}

static rd_kafka_conf_t *configure(const char *broker, char **settings, int count) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (rd_kafka_conf_set(conf, "bootstrap.servers", broker, error, sizeof error))
        fail("bootstrap.servers", error);
    for (int index = 0; index < count; index++) {
        char *value = strchr(settings[index], '=');
        if (!value) fail(settings[index], "not key=value");
        *value = 0;
        if (rd_kafka_conf_set(conf, settings[index], value + 1, error, sizeof error))
            fail(settings[index], error);
        *value = '=';
    }
    return conf;
}

static rd_kafka_t *open_client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    rd_kafka_t *client = rd_kafka_new(type, conf, error, sizeof error);
    if (!client) fail("rd_kafka_new", error);
    return client;
}

/* The topic, once its partition is known: that is no part of any measurement. */
static rd_kafka_topic_t *open_topic(rd_kafka_t *client, const char *name) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t result = rd_kafka_metadata(client, 0, topic, &metadata, 10000);
    if (result) fail(name, rd_kafka_err2str(result));
    rd_kafka_metadata_destroy(metadata);
    return topic;
}

static int create(const char *broker, const char *name) {
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, configure(broker, NULL, 0));
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, 1, 1, error, sizeof error);
    if (!topic) fail(name, error);
    rd_kafka_NewTopic_set_config(topic, "max.message.bytes", "26214400");
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_CreateTopics(client, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 30000);
    if (!event) fail(name, "no answer to its creation");
    if (rd_kafka_event_error(event)) fail(name, rd_kafka_event_error_string(event));
    size_t count;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    if (count != 1 || rd_kafka_topic_result_error(results[0]))
        fail(name, "it could not be made");
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_destroy(client);
    return 0;
}

static int delete(const char *broker, const char *name) {
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, configure(broker, NULL, 0));
    rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new(name);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    rd_kafka_DeleteTopics(client, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 30000);
    if (!event) fail(name, "no answer to its deletion");
    if (rd_kafka_event_error(event)) fail(name, rd_kafka_event_error_string(event));
    rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_DeleteTopic_destroy(topic);
    rd_kafka_destroy(client);
    return 0;
}

static void push(rd_kafka_t *client, rd_kafka_topic_t *topic, char *event, size_t bytes) {
    while (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, event, bytes, NULL, 0, NULL)) {
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(client, 1);
    }
}

/* Pushes all events, to the last acknowledgement; returns how long that took.
 * Before the first one a byte is read from `wait_for`, unless that is -1. */
static double push_all(const char *broker, const char *name, long events, size_t bytes,
                       char **settings, int count, int wait_for) {
    rd_kafka_conf_t *conf = configure(broker, settings, count);
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = open_topic(client, name);
    char *event = payload(bytes), byte;
    if (wait_for >= 0 && read(wait_for, &byte, 1) != 1) fail(name, "the consumer ended");
    double began = seconds();
    for (long index = 0; index < events; index++) {
        memcpy(event, &index, bytes < sizeof index ? bytes : sizeof index);
        push(client, topic, event, bytes);
        if (index % 1024 == 0) rd_kafka_poll(client, 0);
    }
    rd_kafka_flush(client, 120000);
    double elapsed = seconds() - began;
    if (acknowledged != events) {
        fprintf(stderr, "%ld of %ld events acknowledged, %ld refused\n", acknowledged, events,
                refused);
        exit(1);
    }
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    return elapsed;
}

static int produce(const char *broker, const char *name, long events, size_t bytes,
                   char **settings, int count) {
    print_rate(events, bytes, push_all(broker, name, events, bytes, settings, count, -1));
    return 0;
}

/* Reads all events. If `tell` is not -1, a byte is written there, and the clock
 * starts, when the end of the topic was reached with nothing read: it is empty
 * then, and the consumer waits. */
static int read_all(const char *broker, const char *name, long events, size_t bytes,
                    char **settings, int count, int tell) {
    enum { AT_ONCE = 4096 };
    static rd_kafka_message_t *messages[AT_ONCE];
    rd_kafka_conf_t *conf = configure(broker, settings, count);
    if (tell >= 0) rd_kafka_conf_set(conf, "enable.partition.eof", "true", error, sizeof error);
    rd_kafka_t *client = open_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *topic = open_topic(client, name);
    double began = seconds(), heard = began;
    if (rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING))
        fail(name, rd_kafka_err2str(rd_kafka_last_error()));
    long seen = 0;
    size_t total = 0;
    while (seen < events) {
        ssize_t got = rd_kafka_consume_batch(topic, 0, 100, messages, AT_ONCE);
        for (ssize_t index = 0; index < got; index++) {
            if (!messages[index]->err) {
                seen++;
                total += messages[index]->len;
            } else if (tell >= 0 && seen == 0) {
                began = seconds();
                if (write(tell, "x", 1) != 1) fail(name, "the producer ended");
                tell = -1;
            }
            rd_kafka_message_destroy(messages[index]);
        }
        if (got > 0) heard = seconds();
        else if (seconds() - heard > 60) fail(name, "no event came for 60 s");
    }
    double elapsed = seconds() - began;
    if (total != (size_t)events * bytes) fail(name, "other bytes came than were sent");
    print_rate(events, bytes, elapsed);
    rd_kafka_consume_stop(topic, 0);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(client);
    return 0;
}

static int consume(const char *broker, const char *name, long events, size_t bytes,
                   char **settings, int count) {
    return read_all(broker, name, events, bytes, settings, count, -1);
}

/* Where the consumer's settings begin: behind `--`. */
static int split_settings(char **settings, int count, int *producer_count) {
    int split = 0;
    while (split < count && strcmp(settings[split], "--")) split++;
    *producer_count = split;
    return split < count ? split + 1 : count;
}

static int tail(const char *broker, const char *name, long events, size_t bytes, char **settings,
                int count) {
    int told[2], producer_count, from = split_settings(settings, count, &producer_count);
    if (pipe(told)) fail("pipe", "could not be made");
    pid_t consumer = fork();
    if (!consumer) {
        int status = read_all(broker, name, events, bytes, settings + from, count - from, told[1]);
        fflush(stdout);
        _exit(status);
    }
    close(told[1]);
    push_all(broker, name, events, bytes, settings, producer_count, told[0]);
    int status;
    waitpid(consumer, &status, 0);
    return status != 0;
}

/* The consuming process: tells by a byte that it is ready, and then each event. */
static void receive(const char *broker, const char *name, long events, int tell, char **settings,
                    int count) {
    rd_kafka_conf_t *conf = configure(broker, settings, count);
    rd_kafka_conf_set(conf, "enable.partition.eof", "true", error, sizeof error);
    rd_kafka_t *client = open_client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_topic_t *topic = open_topic(client, name);
    rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING);
    double *delays = calloc((size_t)events, sizeof *delays), heard = seconds();
    for (long seen = 0; seen < events;) {
        rd_kafka_message_t *message = rd_kafka_consume(topic, 0, 1000);
        if (!message) {
            if (seconds() - heard > 60) fail(name, "no event came for 60 s");
            continue;
        }
        heard = seconds();
        int is_event = !message->err;
        int is_end = message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
        if (is_event) {
            double sent;
            memcpy(&sent, message->payload, sizeof sent);
            delays[seen++] = seconds() - sent;
        }
        rd_kafka_message_destroy(message);
        /* The end of what is there comes once before the first event: ready. */
        if ((is_event || (is_end && seen == 0)) && write(tell, "x", 1) != 1) _exit(1);
    }
    print_delays(delays, events);
    fflush(stdout);
    _exit(0);
}

static int latency(const char *broker, const char *name, long events, size_t bytes,
                   char **settings, int count) {
    int told[2], split, from = split_settings(settings, count, &split);
    if (pipe(told)) fail("pipe", "could not be made");
    pid_t receiver = fork();
    if (!receiver) {
        receive(broker, name, events, told[1], settings + from, count - from);
    }
    close(told[1]);
    rd_kafka_conf_t *conf = configure(broker, settings, split);
    rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    rd_kafka_t *client = open_client(RD_KAFKA_PRODUCER, conf);
    rd_kafka_topic_t *topic = open_topic(client, name);
    char *event = payload(bytes), byte;
    if (read(told[0], &byte, 1) != 1) fail(name, "the receiver ended");
    for (long index = 0; index < events; index++) {
        double now = seconds();
        memcpy(event, &now, sizeof now);
        push(client, topic, event, bytes);
        if (read(told[0], &byte, 1) != 1) fail(name, "the receiver ended");
        rd_kafka_poll(client, 0);
    }
    rd_kafka_flush(client, 10000);
    int status;
    waitpid(receiver, &status, 0);
    return status != 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "create")) return create(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "delete")) return delete(argv[2], argv[3]);
    if (argc < 6) {
        fputs("usage: kafka create|delete|produce|consume|tail|latency BROKER TOPIC [EVENTS BYTES ...]\n",
              stderr);
        return 2;
    }
    long events = atol(argv[4]);
    size_t bytes = (size_t)atol(argv[5]);
    int (*work)(const char *, const char *, long, size_t, char **, int) =
        !strcmp(argv[1], "produce")   ? produce
        : !strcmp(argv[1], "consume") ? consume
        : !strcmp(argv[1], "tail")    ? tail
                                      : latency;
    return work(argv[2], argv[3], events, bytes, argv + 6, argc - 6);
}
