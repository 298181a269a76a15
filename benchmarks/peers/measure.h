/* What the load programs share: a clock, percentiles, and the one line of
 * JSON that each of them prints. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Bytes that nothing on the way can profit from. */
static inline char *payload(size_t bytes) {
    char *memory = malloc(bytes ? bytes : 1);
    if (!memory) fail("payload", "no memory");
    for (size_t at = 0; at < bytes; at++) memory[at] = (char)(at * 167 + 13);
    return memory;
}

static inline void print_rate(long events, size_t bytes_each, double elapsed) {
    printf("{\"events\": %ld, \"bytes_each\": %zu, \"seconds\": %.6f, \"events_per_s\": %.1f}\n",
           events, bytes_each, elapsed, (double)events / elapsed);
}

static inline int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Percentiles of delays in seconds, printed in microseconds. */
static inline void print_delays(double *delays, long count) {
    qsort(delays, (size_t)count, sizeof *delays, by_value);
    printf("{\"events\": %ld, \"min_us\": %.2f, \"p50_us\": %.2f, \"p90_us\": %.2f, "
           "\"p99_us\": %.2f, \"max_us\": %.2f}\n",
           count, delays[0] * 1e6, delays[count / 2] * 1e6, delays[count * 9 / 10] * 1e6,
           delays[count * 99 / 100] * 1e6, delays[count - 1] * 1e6);
}

#endif
