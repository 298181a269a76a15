/*
 * A topic whose metadata plugins check, spread and shrink: those of energy.c
 * or energy.cpp, as libenergy.so in a directory of THALWEG_PLUGIN_PATH.
 *
 *   pipeline DIRECTORY       with a server in this process, on that directory
 *
 * The server needs no plugin; without libenergy.so it is the producer that
 * cannot be opened, and the error says where it was looked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg/thalweg.h>

enum { EVENTS = 100, PARTITIONS = 4 };

static const char topic_options[] =
    "{\"partitions\": 4,"
    " \"validator\": {\"type\": \"plugin\", \"name\": \"energy_validator:libenergy.so\","
    "                 \"options\": {\"energy_max\": 100.0}},"
    " \"partition_selector\": {\"type\": \"plugin\", \"name\": \"energy_selector:libenergy.so\","
    "                          \"options\": {\"energy_max\": 100.0}},"
    " \"serializer\": {\"type\": \"plugin\", \"name\": \"energy_serializer:libenergy.so\"}}";

static void check(int32_t code, const thalweg_error *error, const char *what)
{
    if (code != THALWEG_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, error->message, thalweg_code_name(code));
        exit(1);
    }
}

static int32_t push(thalweg_producer *producer, double energy, thalweg_future **future,
                    thalweg_error *error)
{
    char metadata[64];
    thalweg_message message;
    memset(&message, 0, sizeof message);
    message.metadata.base = metadata;
    message.metadata.size =
        (size_t)snprintf(metadata, sizeof metadata, "{\"energy\": %g}", energy);
    return thalweg_producer_push(producer, &message, future, error);
}

static void produce(thalweg_topic *topic)
{
    thalweg_producer *producer;
    thalweg_future *futures[EVENTS];
    thalweg_error error;

    check(thalweg_producer_open(topic, NULL, &producer, &error), &error, "opening a producer");
    if (push(producer, 100.5, &futures[0], &error) == THALWEG_OK) {
        fprintf(stderr, "an energy above energy_max was taken\n");
        exit(1);
    }
    printf("%s\n", error.message);
    for (int number = 0; number < EVENTS; number++)
        check(push(producer, number, &futures[number], &error), &error, "pushing");
    for (int number = 0; number < EVENTS; number++) {
        thalweg_event_id id;
        check(thalweg_future_wait(futures[number], -1, &error), &error, "waiting for a push");
        check(thalweg_future_id(futures[number], &id, &error), &error, "asking for an id");
        if (id.partition != (uint32_t)(number * PARTITIONS / EVENTS)) {
            fprintf(stderr, "energy %d is in partition %u\n", number, (unsigned)id.partition);
            exit(1);
        }
        thalweg_future_free(futures[number]);
    }
    thalweg_producer_free(producer);
}

static void consume(thalweg_topic *topic)
{
    thalweg_consumer *consumer;
    thalweg_error error;
    int seen[EVENTS] = {0};

    check(thalweg_consumer_open(topic, "reader", NULL, NULL, &consumer, &error), &error,
          "opening a consumer");
    for (int count = 0; count < EVENTS; count++) {
        thalweg_event *event;
        thalweg_event_info info;
        char metadata[64];
        int energy;
        check(thalweg_consumer_pull(consumer, 10000, &event, &error), &error, "pulling");
        if (event == NULL) {
            fprintf(stderr, "%d events came, not %d\n", count, EVENTS);
            exit(1);
        }
        check(thalweg_event_info_of(event, &info, &error), &error, "looking at an event");
        snprintf(metadata, sizeof metadata, "%.*s", (int)info.metadata.size,
                 (const char *)info.metadata.base);
        if (sscanf(metadata, "{\"energy\":%d}", &energy) != 1 || energy < 0 ||
            energy >= EVENTS || seen[energy]++) {
            fprintf(stderr, "an event has the metadata %s\n", metadata);
            exit(1);
        }
        thalweg_event_free(event);
    }
    thalweg_consumer_free(consumer);
}

int main(int argc, char **argv)
{
    thalweg_driver *driver;
    thalweg_topic *topic;
    thalweg_error error;

    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    check(thalweg_driver_embedded(argv[1], NULL, &driver, &error), &error, "starting");
    check(thalweg_topic_create(driver, "energies", topic_options, &topic, &error), &error,
          "making a topic");
    produce(topic);
    consume(topic);
    printf("%d energies in %d partitions, 8 bytes each, there and back\n", EVENTS, PARTITIONS);
    thalweg_topic_free(topic);
    check(thalweg_driver_close(driver, -1, &error), &error, "closing");
    thalweg_driver_free(driver);
    return 0;
}
