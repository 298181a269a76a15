/*
 * A producer and a consumer in C.
 *
 *   pipeline GROUP_FILE      with the server that wrote the group file
 *   pipeline DIRECTORY       with a server in this process, on that directory
 *
 * Pushes EVENTS frames of a detector: metadata in JSON, and an image as data,
 * which is sent from where it lies. Then reads them back and compares.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <thalweg/thalweg.h>

enum { EVENTS = 20, WIDTH = 512, HEIGHT = 256 };

static void check(int32_t code, const thalweg_error *error, const char *what)
{
    if (code != THALWEG_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, error->message, thalweg_code_name(code));
        exit(1);
    }
}

/* Every pixel of image `number` is told by its place. */
static uint16_t pixel(int number, int place)
{
    return (uint16_t)(number * 31 + place);
}

/* Returns the offset of the first frame: 0, or what an earlier run left behind. */
static uint64_t produce(thalweg_topic *topic)
{
    static uint16_t images[EVENTS][WIDTH * HEIGHT];
    thalweg_future *futures[EVENTS];
    thalweg_producer *producer;
    thalweg_error error;
    uint64_t first = 0;

    check(thalweg_producer_open(topic, NULL, &producer, &error), &error, "opening a producer");
    for (int number = 0; number < EVENTS; number++) {
        for (int place = 0; place < WIDTH * HEIGHT; place++)
            images[number][place] = pixel(number, place);
        char metadata[64];
        int length = snprintf(metadata, sizeof metadata, "{\"frame\": %d}", number);
        thalweg_bytes image = {images[number], sizeof images[number]};
        thalweg_message message;
        memset(&message, 0, sizeof message);
        message.metadata.base = metadata;
        message.metadata.size = (size_t)length;
        message.data = &image;
        message.data_count = 1;
        /* The image stays as it is until the future resolves, and is not copied. */
        message.borrow = 1;
        check(thalweg_producer_push(producer, &message, &futures[number], &error), &error,
              "pushing");
    }
    for (int number = 0; number < EVENTS; number++) {
        thalweg_event_id id;
        check(thalweg_future_wait(futures[number], -1, &error), &error, "waiting for a push");
        check(thalweg_future_id(futures[number], &id, &error), &error, "asking for an id");
        if (number == 0)
            first = id.offset;
        if (id.offset != first + (uint64_t)number) {
            fprintf(stderr, "frame %d is at offset %llu\n", number, (unsigned long long)id.offset);
            exit(1);
        }
        thalweg_future_free(futures[number]);
    }
    thalweg_producer_free(producer);
    return first;
}

static void consume(thalweg_topic *topic)
{
    thalweg_consumer *consumer;
    thalweg_error error;

    check(thalweg_consumer_open(topic, "reader", NULL, NULL, &consumer, &error), &error,
          "opening a consumer");
    for (int number = 0; number < EVENTS; number++) {
        thalweg_event *event;
        thalweg_event_info info;
        check(thalweg_consumer_pull(consumer, 10000, &event, &error), &error, "pulling");
        if (event == NULL) {
            fprintf(stderr, "frame %d does not come\n", number);
            exit(1);
        }
        check(thalweg_event_info_of(event, &info, &error), &error, "looking at an event");
        char metadata[64];
        snprintf(metadata, sizeof metadata, "{\"frame\": %d}", number);
        if (info.metadata.size != strlen(metadata) ||
            memcmp(info.metadata.base, metadata, info.metadata.size) != 0) {
            fprintf(stderr, "frame %d has the metadata %.*s\n", number, (int)info.metadata.size,
                    (const char *)info.metadata.base);
            exit(1);
        }
        const uint16_t *image = info.data.base;
        for (int place = 0; place < WIDTH * HEIGHT; place++) {
            if (info.data.size != sizeof(uint16_t) * WIDTH * HEIGHT ||
                image[place] != pixel(number, place)) {
                fprintf(stderr, "frame %d differs at pixel %d\n", number, place);
                exit(1);
            }
        }
        check(thalweg_consumer_acknowledge(consumer, &info.id, &error), &error, "acknowledging");
        thalweg_event_free(event);
    }
    check(thalweg_consumer_flush(consumer, -1, &error), &error, "flushing acknowledgements");
    thalweg_consumer_free(consumer);
}

/* One row of one frame, without a consumer: the rest does not travel. */
static void look(thalweg_topic *topic, uint64_t first)
{
    enum { NUMBER = 7, ROW = 3 };
    static uint16_t row[WIDTH];
    const thalweg_event_id from = {0, 0, 0, first + NUMBER}; /* of the present incarnation */
    const thalweg_segment segment = {ROW * sizeof row, sizeof row};
    thalweg_event *event;
    thalweg_event_info info;
    thalweg_future *future;
    thalweg_error error;
    size_t count;

    check(thalweg_topic_fetch(topic, &from, 1 << 20, 10000, &event, 1, &count, &error), &error,
          "fetching");
    if (count != 1) {
        fprintf(stderr, "frame %d is not there\n", NUMBER);
        exit(1);
    }
    check(thalweg_event_info_of(event, &info, &error), &error, "looking at an event");
    check(thalweg_topic_read_data(topic, &info.id, &segment, 1, row, sizeof row, &future, &error),
          &error, "reading a row");
    check(thalweg_future_wait(future, -1, &error), &error, "waiting for a row");
    for (int column = 0; column < WIDTH; column++) {
        if (row[column] != pixel(NUMBER, ROW * WIDTH + column)) {
            fprintf(stderr, "the row differs at column %d\n", column);
            exit(1);
        }
    }
    thalweg_future_free(future);
    thalweg_event_free(event);
}

int main(int argc, char **argv)
{
    thalweg_driver *driver;
    thalweg_topic *topic;
    thalweg_error error;
    struct stat found;
    uint64_t first;

    if (argc != 2) {
        fprintf(stderr, "usage: %s GROUP_FILE | DIRECTORY\n", argv[0]);
        return 2;
    }
    if (stat(argv[1], &found) == 0 && S_ISDIR(found.st_mode))
        check(thalweg_driver_embedded(argv[1], NULL, &driver, &error), &error, "starting");
    else
        check(thalweg_driver_connect(argv[1], NULL, &driver, &error), &error, "connecting");

    /* A topic that an earlier run made is opened as it is. */
    check(thalweg_topic_create(driver, "pipeline-frames",
                               "{\"validator\": {\"type\": \"json\"}, \"exist_ok\": true}", &topic,
                               &error),
          &error, "making a topic");
    first = produce(topic);
    consume(topic);
    look(topic, first);
    printf("%d frames of %d bytes, there and back\n", EVENTS, 2 * WIDTH * HEIGHT);

    thalweg_topic_free(topic);
    check(thalweg_driver_close(driver, -1, &error), &error, "closing");
    thalweg_driver_free(driver);
    return 0;
}
