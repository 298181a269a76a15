/*
 * An MPI program: each rank pushes to a partition of its own.
 *
 *   mpiexec -n 4 ranks GROUP_FILE
 *
 * Rank 0 makes a topic with one partition a rank, or takes that of an earlier
 * run with as many ranks. Every rank pushes its part of each step as data that
 * lies in the simulation's own array, then goes on computing; it waits for a
 * step only when it is about to overwrite the array.
 * At the end each rank reads its neighbour's partition back and checks it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <thalweg/thalweg.h>

enum { STEPS = 10, CELLS = 40000 };

static void check(int32_t code, const thalweg_error *error, const char *what)
{
    if (code != THALWEG_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, error->message, thalweg_code_name(code));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static double cell(int rank, int step, int index)
{
    return 1000.0 * rank + step + index / (double)CELLS;
}

/* Returns the offset of the first step: 0, or what an earlier run left behind. */
static uint64_t produce(thalweg_topic *topic, int rank)
{
    /* Two arrays in turn: one is computed while the other is on its way. */
    static double cells[2][CELLS];
    thalweg_future *futures[2] = {NULL, NULL};
    thalweg_producer *producer;
    thalweg_event_id last;
    thalweg_error error;

    check(thalweg_producer_open(topic, NULL, &producer, &error), &error, "opening a producer");
    for (int step = 0; step < STEPS; step++) {
        double *array = cells[step % 2];
        thalweg_future **future = &futures[step % 2];
        if (*future != NULL) {
            check(thalweg_future_wait(*future, -1, &error), &error, "waiting for a step");
            thalweg_future_free(*future);
        }
        for (int index = 0; index < CELLS; index++)
            array[index] = cell(rank, step, index);
        char metadata[64];
        thalweg_bytes data = {array, sizeof cells[0]};
        thalweg_message message;
        memset(&message, 0, sizeof message);
        message.metadata.base = metadata;
        message.metadata.size = (size_t)snprintf(metadata, sizeof metadata,
                                                 "{\"rank\": %d, \"step\": %d}", rank, step);
        message.data = &data;
        message.data_count = 1;
        message.has_partition = 1;
        message.partition = (uint32_t)rank;
        check(thalweg_producer_push(producer, &message, future, &error), &error, "pushing");
    }
    check(thalweg_producer_flush(producer, -1, &error), &error, "flushing");
    check(thalweg_future_id(futures[(STEPS - 1) % 2], &last, &error), &error, "asking for an id");
    thalweg_future_free(futures[0]);
    thalweg_future_free(futures[1]);
    thalweg_producer_free(producer);
    return last.offset + 1 - STEPS;
}

/* Reads a rank's partition from `first` on; returns how many steps are as they should be. */
static int consume(thalweg_topic *topic, int rank, uint64_t first)
{
    thalweg_consumer *consumer;
    thalweg_error error;
    char name[32], options[96];
    int right = 0;

    snprintf(name, sizeof name, "reader-%d", rank);
    snprintf(options, sizeof options, "{\"partitions\": [%d], \"start\": %llu}", rank,
             (unsigned long long)first);
    check(thalweg_consumer_open(topic, name, options, NULL, &consumer, &error), &error,
          "opening a consumer");
    for (int step = 0; step < STEPS; step++) {
        thalweg_event *event;
        thalweg_event_info info;
        check(thalweg_consumer_pull(consumer, 30000, &event, &error), &error, "pulling");
        if (event == NULL)
            break;
        check(thalweg_event_info_of(event, &info, &error), &error, "looking at an event");
        const double *cells = info.data.base;
        int same = info.data.size == CELLS * sizeof *cells &&
                   info.id.offset == first + (uint64_t)step;
        for (int index = 0; same && index < CELLS; index++)
            same = cells[index] == cell(rank, step, index);
        right += same;
        thalweg_event_free(event);
    }
    thalweg_consumer_free(consumer);
    return right;
}

int main(int argc, char **argv)
{
    thalweg_driver *driver;
    thalweg_topic *topic;
    thalweg_error error;
    int rank, size, right, all = 0;
    char name[32];
    uint64_t first, theirs;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2) {
        fprintf(stderr, "usage: %s GROUP_FILE\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    check(thalweg_driver_connect(argv[1], NULL, &driver, &error), &error, "connecting");
    snprintf(name, sizeof name, "mpi-ranks-%d", size);
    if (rank == 0) {
        char options[160];
        snprintf(options, sizeof options,
                 "{\"exist_ok\": true, \"partitions\": %d, \"durability\": \"written\", "
                 "\"partition_selector\": {\"type\": \"explicit\"}}",
                 size);
        check(thalweg_topic_create(driver, name, options, NULL, &error), &error,
              "making a topic");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    check(thalweg_topic_open(driver, name, &topic, &error), &error, "opening the topic");
    first = produce(topic, rank);
    MPI_Sendrecv(&first, 1, MPI_UINT64_T, (rank + size - 1) % size, 0, &theirs, 1, MPI_UINT64_T,
                 (rank + 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    right = consume(topic, (rank + 1) % size, theirs);
    MPI_Reduce(&right, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %d of %d steps as they should be\n", size, all, size * STEPS);
    thalweg_topic_free(topic);
    check(thalweg_driver_close(driver, -1, &error), &error, "closing");
    thalweg_driver_free(driver);
    MPI_Bcast(&all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return all == size * STEPS ? 0 : 1;
}
