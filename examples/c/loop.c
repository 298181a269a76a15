/*
 * A program with an event loop of its own and no other thread: Thalweg is one
 * more descriptor in it.
 *
 *   loop GROUP_FILE          with the server that wrote the group file
 *
 * The driver is opened with {"progress": "caller"}: nothing happens but in
 * thalweg_driver_progress and in calls that block. A timer of the program's
 * pushes an event every few milliseconds; pushes and pulls tell by callbacks
 * what became of them, from within the loop.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <thalweg/thalweg.h>
#include <unistd.h>

enum { EVENTS = 25, WATCHDOG_MS = 60000 };

static thalweg_consumer *consumer;
static thalweg_future *pushes[EVENTS];
static thalweg_future *pulling;
static int pushed, acknowledged, pulled;

static void check(int32_t code, const thalweg_error *error, const char *what)
{
    if (code != THALWEG_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, error->message, thalweg_code_name(code));
        exit(1);
    }
}

static void require(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;)
        count += task->d_name[0] != '.';
    if (tasks != NULL)
        closedir(tasks);
    return count;
}

/* A push is acknowledged: its event is as durable as the topic promises. */
static void on_pushed(void *context)
{
    thalweg_future **future = context;
    thalweg_event_id id;
    thalweg_error error;

    check(thalweg_future_id(*future, &id, &error), &error, "pushing");
    thalweg_future_free(*future);
    *future = NULL;
    acknowledged++;
}

/* A pull has its event; the next one is begun. */
static void on_pulled(void *context)
{
    thalweg_event *event;
    thalweg_event_info info;
    thalweg_error error;
    int number;

    (void)context;
    check(thalweg_future_event(pulling, &event, &error), &error, "pulling");
    thalweg_future_free(pulling);
    pulling = NULL;
    check(thalweg_event_info_of(event, &info, &error), &error, "looking at an event");
    char text[32] = "";
    memcpy(text, info.metadata.base,
           info.metadata.size < sizeof text ? info.metadata.size : sizeof text - 1);
    require(sscanf(text, "{\"number\": %d}", &number) == 1 && number == pulled,
            "events come in their order");
    check(thalweg_consumer_acknowledge(consumer, &info.id, &error), &error, "acknowledging");
    thalweg_event_free(event);
    pulled++;
}

static void push(thalweg_producer *producer)
{
    thalweg_error error;
    thalweg_message message;
    char metadata[32];

    memset(&message, 0, sizeof message);
    message.metadata.base = metadata;
    message.metadata.size =
        (size_t)snprintf(metadata, sizeof metadata, "{\"number\": %d}", pushed);
    check(thalweg_producer_push(producer, &message, &pushes[pushed], &error), &error, "pushing");
    check(thalweg_future_on_done(pushes[pushed], on_pushed, &pushes[pushed], &error), &error,
          "asking to be told");
    pushed++;
}

/* A timer that ticks every two milliseconds. */
static int ticks(void)
{
    const struct itimerspec every = {{0, 2000000}, {0, 2000000}};
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    require(fd >= 0 && timerfd_settime(fd, 0, &every, NULL) == 0, "no timer");
    return fd;
}

static void watch(int loop, int fd)
{
    struct epoll_event event;
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    event.data.fd = fd;
    require(epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) == 0, "no epoll");
}

/* What is begun can be given up: no event is lost by a pull that is. */
static void give_up_a_pull(void)
{
    thalweg_future *future;
    thalweg_error error;

    check(thalweg_consumer_pull_begin(consumer, &future, &error), &error, "beginning a pull");
    check(thalweg_future_cancel(future, &error), &error, "giving up a pull");
    require(thalweg_future_wait(future, 0, &error) == THALWEG_CANCELLED, "it is given up");
    thalweg_future_free(future);
}

/* An event that is not sent yet is never stored, and its data is free at once. */
static void give_up_a_push(thalweg_producer *producer)
{
    static char data[100000];
    const thalweg_bytes piece = {data, sizeof data};
    thalweg_future *future;
    thalweg_message message;
    thalweg_error error;

    memset(&message, 0, sizeof message);
    message.metadata.base = "{\"number\": -1}";
    message.metadata.size = strlen(message.metadata.base);
    message.data = &piece;
    message.data_count = 1;
    check(thalweg_producer_push(producer, &message, &future, &error), &error, "pushing");
    /* Nobody has driven the network since. */
    require(!thalweg_future_done(future), "it is not sent");
    check(thalweg_future_cancel(future, &error), &error, "giving up a push");
    require(thalweg_future_wait(future, 0, &error) == THALWEG_CANCELLED, "it is given up");
    memset(data, 1, sizeof data);
    thalweg_future_free(future);
}

int main(int argc, char **argv)
{
    thalweg_driver *driver;
    thalweg_topic *topic;
    thalweg_producer *producer;
    thalweg_error error;
    int fd, wakes = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: %s GROUP_FILE\n", argv[0]);
        return 2;
    }
    /* Calls that block drive the network themselves, on this thread. */
    check(thalweg_driver_connect(argv[1], "{\"progress\": \"caller\"}", &driver, &error), &error,
          "connecting");
    check(thalweg_topic_create(driver, "ticks", "{\"storage\": \"memory\", \"exist_ok\": true}",
                               &topic, &error),
          &error, "making a topic");
    check(thalweg_producer_open(topic, NULL, &producer, &error), &error, "opening a producer");
    check(thalweg_consumer_open(topic, "loop", NULL, NULL, &consumer, &error), &error,
          "opening a consumer");
    check(thalweg_driver_fd(driver, &fd, &error), &error, "asking for the descriptor");
    give_up_a_pull();
    give_up_a_push(producer);

    int loop = epoll_create1(EPOLL_CLOEXEC), timer = ticks();
    watch(loop, fd);
    watch(loop, timer);
    while (acknowledged < EVENTS || pulled < EVENTS) {
        if (pulling == NULL && pulled < EVENTS) {
            check(thalweg_consumer_pull_begin(consumer, &pulling, &error), &error, "beginning");
            check(thalweg_future_on_done(pulling, on_pulled, NULL, &error), &error, "asking");
            /* It may have been there, and be done already. */
            continue;
        }
        struct epoll_event event;
        require(epoll_wait(loop, &event, 1, WATCHDOG_MS) == 1, "nothing happens");
        wakes++;
        if (event.data.fd == timer) {
            uint64_t count;
            require(read(timer, &count, sizeof count) == sizeof count, "no tick");
            if (pushed < EVENTS)
                push(producer);
        } else {
            check(thalweg_driver_progress(driver, 0, &error), &error, "driving");
        }
    }
    require(threads() == 1, "there is another thread");
    /* The loop slept: it was not woken for nothing again and again. */
    require(wakes < 100 * EVENTS, "the descriptor is always readable");
    printf("%d events through a loop of one thread\n", pulled);

    close(timer);
    close(loop);
    thalweg_consumer_free(consumer);
    thalweg_producer_free(producer);
    thalweg_topic_free(topic);
    check(thalweg_driver_close(driver, -1, &error), &error, "closing");
    thalweg_driver_free(driver);
    return 0;
}
