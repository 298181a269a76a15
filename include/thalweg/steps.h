/*
 * Thalweg's C interface to steps of arrays: what the ranks of a program write
 * step by step, and what other programs, of any number of ranks, read of it,
 * now or later (docs/guide/steps.md). The conventions of thalweg.h hold here.
 *
 * A stream is a topic of kind `steps`. The ranks of a writing program make a
 * run of it, from its opening to its end; in each step every rank puts blocks
 * of variables. A step is committed when all ranks have ended it, and is seen
 * whole or not at all. Steps of a run count from 0, runs of a stream from 1.
 *
 * Threads. A stream and a step may be used by several threads at once. A
 * writer and a reader serve one call after the other: a second thread waits
 * until the first one's call is over. After a fork, a child's calls of what
 * its parent has opened fail with THALWEG_FORKED.
 *
 * Elements stand in row-major (C) order. A type is a text as NumPy writes it:
 * "|b1", "|i1", "<i4", "<u8", "<f4", "<f8", "<f16" (a long double, as the
 * machine has it), "<c8" and "<c16" (complex), "|S8" (bytes), "<M8[ns]", "|V16"
 * (16 bytes of any meaning), or a structure of fields, each with a name, a type
 * and, if it is an array, its shape: [["x","<f8"],["m","<f4",[2,3]],["","|V4"]], where one
 * without a name is padding. "str" is UTF-8 of any length, for values and
 * attributes. docs/format/steps.md has all of them.
 */
#ifndef THALWEG_STEPS_H
#define THALWEG_STEPS_H

#include <thalweg/thalweg.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct thalweg_step_stream thalweg_step_stream;
typedef struct thalweg_step_runs thalweg_step_runs;
typedef struct thalweg_step_writer thalweg_step_writer;
typedef struct thalweg_step_reader thalweg_step_reader;
typedef struct thalweg_step_attributes thalweg_step_attributes;
typedef struct thalweg_step thalweg_step;

/* How the blocks of a variable make a whole. */
enum {
    THALWEG_STEP_VALUE = 0,       /* one value for all; of several ranks' the lowest one's */
    THALWEG_STEP_ARRAY = 1,       /* blocks of one array, each at its place */
    THALWEG_STEP_JOINED = 2,      /* blocks behind one another along a dimension, by rank */
    THALWEG_STEP_LOCAL_VALUE = 3, /* a value of each rank: an array of one dimension */
    THALWEG_STEP_LOCAL_ARRAY = 4  /* each block is an array by itself */
};

/* No index: what a search found nothing by. */
#define THALWEG_STEP_NONE ((size_t)-1)

/* ------------------------------------------------------------ stream --- */

/*
 * Makes a stream. Blocks up to `request_timeout_ms`. Durable when it returns.
 *
 * options   partitions (1: over how many the data of the ranks is spread),
 *           storage ("disk", or "memory": what is gone with the server),
 *           durability ("memory", "written" or "synced": what an accepted part and
 *             a committed step survive; default: as of a topic, and "memory" in memory),
 *           retention (what is kept: an object as of a topic, such as
 *             {"count": 100}, of steps, or {"total_bytes": 1000000000}; all by default),
 *           exist_ok (false: true opens a stream that is there as it is).
 * stream    NULL, or where a handle of it goes.
 *
 * Errors: THALWEG_SERVER_TOPIC_EXISTS, THALWEG_SERVER_INVALID_TOPIC,
 * THALWEG_INVALID_ARGUMENT, and then nothing was made.
 */
int32_t thalweg_step_stream_create(thalweg_driver *driver, const char *name, const char *options,
                                   thalweg_step_stream **stream, thalweg_error *error);

/*
 * Opens a stream that is there, to look at what is stored of it. Blocks up to
 * `request_timeout_ms`. Errors: THALWEG_SERVER_UNKNOWN_TOPIC;
 * THALWEG_INVALID_ARGUMENT of a topic that has no steps.
 */
int32_t thalweg_step_stream_open(thalweg_driver *driver, const char *name,
                                 thalweg_step_stream **stream, thalweg_error *error);

void thalweg_step_stream_free(thalweg_step_stream *stream);

/* How a run is. */
enum {
    THALWEG_RUN_OPEN = 0,   /* its ranks write, or may come back yet */
    THALWEG_RUN_CLOSED = 1, /* all of its ranks have closed it */
    THALWEG_RUN_BROKEN = 2  /* it has ended without that */
};

/* How reading programs are given steps: to each all of them, or each to one of those that share. */
enum { THALWEG_GIVEN_ALL = 0, THALWEG_GIVEN_ROUND_ROBIN = 1, THALWEG_GIVEN_ON_DEMAND = 2 };

/* A run of which something is stored. Pointers are valid until the list is freed. */
typedef struct thalweg_step_run_info {
    uint64_t run;
    const char *writer; /* name of the writing program */
    const char *reason; /* why it is broken; else empty */
    uint64_t first;     /* first and last step that are stored, where step_count is not 0 */
    uint64_t last;
    uint64_t step_count;    /* steps that are stored */
    uint64_t discarded;     /* steps that were dropped because the queue was full */
    uint64_t bytes;         /* of the stored steps' data */
    uint64_t first_time_ns; /* of its first and last stored record, nanoseconds since 1970 */
    uint64_t last_time_ns;
    uint32_t ranks; /* how many write */
    int32_t state;  /* THALWEG_RUN_... */
    int32_t distribution; /* how its writers ask that readers are given steps: THALWEG_GIVEN_... */
    int32_t reserved32;
    uint64_t reserved[3];
} thalweg_step_run_info;

/*
 * The runs of which something is stored now, in their order. Blocks up to
 * `request_timeout_ms`; reads no data, and nobody's position moves. What was read by
 * an earlier call for the stream is not read again.
 */
int32_t thalweg_step_stream_runs(thalweg_step_stream *stream, thalweg_step_runs **runs,
                                 thalweg_error *error);

/* How many runs the list has. */
size_t thalweg_step_runs_count(const thalweg_step_runs *runs);

/* Run `index` of the list, from 0. */
int32_t thalweg_step_runs_at(const thalweg_step_runs *runs, size_t index,
                             thalweg_step_run_info *info, thalweg_error *error);

void thalweg_step_runs_free(thalweg_step_runs *runs);

/*
 * The numbers of the steps of a run that are stored now, in their order: the
 * first `max` of them go to `numbers` (NULL if max is 0), and to `*count` how
 * many there are. `run` 0 is the last run. Blocks as thalweg_step_stream_runs.
 */
int32_t thalweg_step_stream_steps(thalweg_step_stream *stream, uint64_t run, uint64_t *numbers,
                                  size_t max, size_t *count, thalweg_error *error);

/*
 * A stored step by its number, to be freed; `run` 0 is the last run. Blocks up to
 * `request_timeout_ms`. Nobody's position moves, and nobody waits for it: retention
 * may take the step meanwhile. Errors: THALWEG_SERVER_OFFSET_OUT_OF_RANGE if the
 * step is not there, or no more.
 */
int32_t thalweg_step_stream_step(thalweg_step_stream *stream, uint64_t run, uint64_t number,
                                 thalweg_step **step, thalweg_error *error);

/* ------------------------------------------------------------ writer --- */

/*
 * Opens one rank of a writing program; the stream is made if it is not there.
 * Ranks need not know of one another: each opens a writer, by the same options
 * but `rank`. The first that comes begins a run, or takes up the one that its program
 * left open, behind its last committed step. Blocks up to `open_timeout_ms`.
 *
 * options   writer ("writer": name of the program), rank (0), ranks (1),
 *           queue_steps (0: most committed steps that attached readers have not
 *             released; 0 is without a limit, the stream's retention bounds it),
 *           queue_bytes (0: the same in bytes of data),
 *           when_full ("block", or "discard": a step that does not fit is dropped as a
 *             whole),
 *           distribution ("all": how reading programs are asked to be given steps, as in
 *             thalweg_step_reader_open; kept with the run, and binds nobody),
 *           readers (0: opening waits until so many reading programs are attached),
 *           session_timeout_ms (30000: how long a rank may be away before its run is
 *             broken),
 *           open_timeout_ms (600000),
 *           timeout_ms (600000: what negative timeouts of its calls mean),
 *           close_timeout_ms (60000: how long closing waits for readers of a stream in memory),
 *           kept_bytes_max (536870912: memory kept for blocks of later steps),
 *           keep ("server", or "writer": of a stream in memory, the data of steps stays in
 *             this program until a reader first reads of it, and is lost with it),
 *           held_bytes_max (1073741824: how much of it stays here),
 *           and how a stream that is not there is made: partitions, storage, durability
 *           (also of one that is there, where it is more than that promises), retention.
 *
 * Errors: THALWEG_TIMEOUT, whose message says what was waited for;
 * THALWEG_INVALID_ARGUMENT; what the server says while another program writes the stream.
 */
int32_t thalweg_step_writer_open(thalweg_driver *driver, const char *stream, const char *options,
                                 thalweg_step_writer **writer, thalweg_error *error);

/* The number of the run that it writes. Does not change. */
uint64_t thalweg_step_writer_run(const thalweg_step_writer *writer);

/*
 * The step that is being written, or else the next one. A rank that took up a run
 * goes on behind its last committed step. Waits for a call that another thread makes.
 */
uint64_t thalweg_step_writer_next(const thalweg_step_writer *writer);

/*
 * Begins the next step; its number goes to `number` (or NULL). Nothing travels, and
 * it does not block. Errors: THALWEG_INVALID_ARGUMENT if a step is begun and not
 * ended; THALWEG_SERVER_RUN_ENDED if the run is over for this rank, whose message
 * says which rank is gone, or that another life of this one has taken its place:
 * so with every call from then on.
 */
int32_t thalweg_step_writer_begin(thalweg_step_writer *writer, uint64_t *number,
                                  thalweg_error *error);

/* What is done with the memory of a block; see thalweg_step_block.flags. */
enum {
    /*
     * Sent from where it lies. It may be filled until thalweg_step_writer_end is called, and
     * must stay as it is from then on until that, or thalweg_step_writer_wait, has returned
     * THALWEG_OK for THALWEG_STEP_ACCEPTED or _COMMITTED, or until the step is dropped or the
     * writer freed. Without it the block is copied before a put returns.
     */
    THALWEG_STEP_BORROW = 1,
    /* Readers are not told its least and greatest element. */
    THALWEG_STEP_NO_EXTREMES = 2
};

/* A block that is put. All zeroes is a start; arrays are read during the call only. */
typedef struct thalweg_step_block {
    const char *name;  /* of the variable: 1 to 1024 bytes */
    const char *dtype; /* type of its elements, not "str" */
    int32_t kind;      /* THALWEG_STEP_ARRAY, _JOINED or _LOCAL_ARRAY */
    uint32_t flags;    /* THALWEG_STEP_BORROW, _NO_EXTREMES, or 0 */
    uint32_t ndim;     /* how many dimensions, 0 to 32 */
    uint32_t joined;   /* of _JOINED: along which dimension the blocks follow one another */
    /*
     * Of _ARRAY: lengths of the whole that all ranks make, and where the block begins
     * in it. Both NULL: the block is the whole. Otherwise NULL.
     */
    const uint64_t *shape;
    const uint64_t *start;
    const uint64_t *count; /* the block's own lengths; 0 is allowed */
    const void *data;      /* its first element; not looked at by thalweg_step_writer_span */
    /*
     * NULL: the elements lie one behind the other. Else the distance in bytes from one to
     * the next along each dimension, as in memory with ghost cells (with `data` where the
     * first wanted element is) or of another order. Not with THALWEG_STEP_BORROW.
     */
    const int64_t *strides;
    uint64_t reserved[4];
} thalweg_step_block;

/*
 * Puts a block. Several puts of a name are several blocks of the variable. Does not
 * block. Errors: THALWEG_INVALID_ARGUMENT, and the step is as it was: outside of a step;
 * a variable that was put with another type, kind or shape in this step; a block outside
 * of its array.
 */
int32_t thalweg_step_writer_put(thalweg_step_writer *writer, const thalweg_step_block *block,
                                thalweg_error *error);

/*
 * Puts a block that is made in place: memory for it, aligned to 64 bytes, goes to `*base`, to
 * be filled until the step is ended, and sent from there: over shared memory the server
 * reads it where it lies. Not initialized. `*span` (or NULL) is its number in the step, from
 * 0, by which thalweg_step_writer_span_memory finds it. Errors: as of thalweg_step_writer_put.
 */
int32_t thalweg_step_writer_span(thalweg_step_writer *writer, const thalweg_step_block *block,
                                 size_t *span, void **base, thalweg_error *error);

/*
 * The memory of a span of the step that is being written, which may lie elsewhere than
 * before the last put or span: where it is goes to `*base`, and to `*size` (or NULL) how
 * many bytes. Errors: THALWEG_INVALID_ARGUMENT if there is none of that number.
 */
int32_t thalweg_step_writer_span_memory(thalweg_step_writer *writer, size_t span, void **base,
                                        size_t *size, thalweg_error *error);

/*
 * Puts a value: one for all ranks, or, if `is_local` is not 0, one of this rank. `value`
 * is one element of the type, or UTF-8 text of "str", without a zero behind it; 1 MiB at
 * most, and copied. Errors: as of thalweg_step_writer_put.
 */
int32_t thalweg_step_writer_put_value(thalweg_step_writer *writer, const char *name,
                                      const char *dtype, int32_t is_local, const void *value,
                                      size_t size, thalweg_error *error);

/*
 * Sets an attribute of the run from the step on that is being written, or from the next
 * one. `is_list` 0: `value` is one element of the type; else any number of them, one behind the
 * other. Of "str" each text stands behind its length, a uint32_t in little endian. Copied. Of
 * several ranks' in one step the lowest one's counts. An attribute can be set anew, not removed.
 * Does not block. Errors: THALWEG_INVALID_ARGUMENT.
 */
int32_t thalweg_step_writer_set_attribute(thalweg_step_writer *writer, const char *name,
                                          const char *dtype, int32_t is_list, const void *value,
                                          size_t size, thalweg_error *error);

/* Sets an attribute of `count` texts; with `is_list` 0 of one. As the function before. */
int32_t thalweg_step_writer_set_texts(thalweg_step_writer *writer, const char *name,
                                      int32_t is_list, const char *const *texts, size_t count,
                                      thalweg_error *error);

/*
 * The attributes of the run as they are now, to be freed: what was set by this rank, and by
 * those of before in a run that was taken up.
 */
int32_t thalweg_step_writer_attributes(thalweg_step_writer *writer,
                                       thalweg_step_attributes **attributes,
                                       thalweg_error *error);

/*
 * Pins the step that is begun: retention leaves it, and late readers are given it first. All ranks
 * pin a step, or none. Errors: THALWEG_INVALID_ARGUMENT without a step, or of a stream that was made
 * without a place for pinned steps. Where too much is pinned already, thalweg_step_writer_end fails
 * with THALWEG_SERVER_LIMIT_EXCEEDED, and called again sends the step unpinned.
 */
int32_t thalweg_step_writer_pin(thalweg_step_writer *writer, thalweg_error *error);

/*
 * Gives up the step that is begun: nothing of it is sent, memory that was lent is the
 * caller's, and the next step has its number. Attributes that were set stay. Does nothing if
 * no step is begun. Errors: THALWEG_INVALID_ARGUMENT if the step was ended and waits for room.
 */
int32_t thalweg_step_writer_drop(thalweg_step_writer *writer, thalweg_error *error);

/* What is waited for. */
enum {
    /*
     * Nothing but room: that the step before the last one is committed, and what the queue
     * asks for. What was copied is the library's; memory that was lent stays lent.
     */
    THALWEG_STEP_BEGUN = 0,
    /* This rank's part is as durable as the stream promises; lent memory is the caller's. */
    THALWEG_STEP_ACCEPTED = 1,
    /* All ranks' parts are: the step has its record, and readers have it. */
    THALWEG_STEP_COMMITTED = 2
};

/* What has become of a step. */
typedef struct thalweg_step_ended {
    uint64_t step;
    int32_t reached;   /* THALWEG_STEP_BEGUN, _ACCEPTED or _COMMITTED: what is known of it */
    int32_t discarded; /* not 0: it was dropped as a whole, by the queue's policy or by */
    char reason[1008]; /* ranks that do not agree on a variable; why, else empty */
} thalweg_step_ended;

/*
 * Ends the step: it is sent, and waited for as `wait` says, up to `timeout_ms`
 * (negative: the writer's). `ended` (or NULL) is written when it returns THALWEG_OK.
 *
 * Errors: THALWEG_TIMEOUT, whose message says who is behind ("rank 3 of 4 has not ended
 * step 17"; a reader that has not released, ...): the step is not lost, and the same call, or
 * thalweg_step_writer_wait, goes on with it. THALWEG_SERVER_RUN_ENDED: it will never be
 * committed, unless it was already.
 */
int32_t thalweg_step_writer_end(thalweg_step_writer *writer, int32_t wait, int64_t timeout_ms,
                                thalweg_step_ended *ended, thalweg_error *error);

/*
 * Waits for the step that was ended last, also for one whose end came to its timeout, up
 * to `timeout_ms` (negative: the writer's); 0 looks. Errors: as of thalweg_step_writer_end.
 */
int32_t thalweg_step_writer_wait(thalweg_step_writer *writer, int32_t wait, int64_t timeout_ms,
                                 thalweg_step_ended *ended, thalweg_error *error);

/* What closing has left behind. */
enum {
    /* The stream keeps the steps: nobody was waited for. */
    THALWEG_CLOSED_KEPT = 0,
    /* Of a stream in memory: the readers that were attached have released them. */
    THALWEG_CLOSED_RELEASED = 1,
    /* Of a stream in memory: close_timeout_ms was over, and some have not. */
    THALWEG_CLOSED_BEHIND = 2
};

typedef struct thalweg_step_closed {
    int32_t state; /* THALWEG_CLOSED_KEPT, _RELEASED or _BEHIND */
    int32_t reserved;
    char behind[1008]; /* of _BEHIND: which readers have not released which step; else empty */
} thalweg_step_closed;

/*
 * Says that this rank has written its last step, and waits until that is committed, up to
 * `timeout_ms` (negative: the writer's). When all ranks have, the run is closed. Of a stream whose
 * steps are in the server's memory alone it waits then, up to `close_timeout_ms`, until the readers
 * that are attached have released them. `closed` (or NULL) is written when it returns THALWEG_OK. Does
 * nothing the second time; after it every other call fails. Errors: THALWEG_INVALID_ARGUMENT if a
 * step is not ended; THALWEG_TIMEOUT, and it may be called again.
 */
int32_t thalweg_step_writer_close(thalweg_step_writer *writer, int64_t timeout_ms,
                                  thalweg_step_closed *closed, thalweg_error *error);

/*
 * Frees the handle. A writer that was not closed leaves its run open, as a program does that
 * is killed: it is broken after the session timeout, unless the rank comes back before. Waits until
 * no memory that was lent is read any more, which the writer's timeout_ms bounds.
 */
void thalweg_step_writer_free(thalweg_step_writer *writer);

/* ------------------------------------------------------------ reader --- */

/*
 * Opens one rank of a reading program. All ranks of it are given the same steps, each
 * once; which boxes of them a rank reads is its own choice. The program's position is kept
 * under its name. Blocks up to `open_timeout_ms`.
 *
 * options   name ("reader"),
 *           distribution ("all": the program is given every step; else several programs
 *             share those of the name, and each step is given to one of them: "round_robin":
 *             to each in its turn, "on_demand": to the first that asks; a step that a program
 *             had not released when it went is given to another),
 *           group (the name of one such program, the same for all of its ranks; not needed
 *             for one of one rank),
 *           rank (0), ranks (1),
 *           start ("cursor": at the position of the name, or the oldest step; "oldest";
 *             "newest"; "next": what is committed from now on; "open": the run that is open,
 *             or the next one, from its beginning; {"run": 3}; {"incarnation", "offset"}:
 *             the record there, or the first one behind it: to go on behind what
 *             thalweg_step_reader_position gives, its offset and 1),
 *           latest (false; true: each time the newest step, and others are passed over),
 *           session_timeout_ms (30000: how long a rank may be away before its steps are
 *             given up, writers wait for it no more, and the program's other ranks are told
 *             THALWEG_SERVER_GROUP_INCOMPLETE),
 *           open_timeout_ms (120000: also how long attaching anew may take after the
 *             connection was lost),
 *           stream_timeout_ms (0: how long to wait for a stream that is not there yet),
 *           preload ("nothing"; "all": all arrays of each step are read before they are asked
 *             for; see thalweg_step_reader_preload),
 *           preload_bytes_max (268435456: the most bytes of a step that are; others are read
 *             when they are asked for. A reader has them twice at most).
 *
 * Errors: THALWEG_SERVER_UNKNOWN_TOPIC; THALWEG_INVALID_ARGUMENT; THALWEG_TIMEOUT; what the
 * server refuses, such as a name that is in use by a program of another size.
 */
int32_t thalweg_step_reader_open(thalweg_driver *driver, const char *stream, const char *options,
                                 thalweg_step_reader **reader, thalweg_error *error);

/* What the next step is. */
enum {
    THALWEG_NEXT_STEP = 0,      /* there is one */
    THALWEG_NEXT_NOT_READY = 1, /* there was none in that time */
    THALWEG_NEXT_END = 2,       /* a run was closed, and all of its steps were given */
    THALWEG_NEXT_BROKEN = 3     /* a run has ended without that, and all of its steps were given */
};

typedef struct thalweg_step_next {
    int32_t state; /* THALWEG_NEXT_... */
    uint32_t reserved;
    uint64_t run;      /* of the step, or which has ended; 0 if there is none */
    char reason[1008]; /* not ready: what the server waits for; broken: why; else empty */
} thalweg_step_next;

/*
 * The next step, as soon as there is one, up to `timeout_ms`: 0 looks, negative waits
 * for ever, and a call of thalweg_step_reader_close by another thread ends that. The step before
 * is released, if it is not, and may still be read as long as it is stored. `*step`, to be
 * freed, is written in any case: NULL unless the state is THALWEG_NEXT_STEP.
 *
 * A run's end is told once; the next call goes on with the run behind it, and waits for one.
 * A lost connection and a restart of the server are survived. Errors:
 * THALWEG_SERVER_MEMBER_FENCED if another life of this rank has its place, so from then on;
 * THALWEG_DAMAGED; THALWEG_CLOSED.
 */
int32_t thalweg_step_reader_next(thalweg_step_reader *reader, int64_t timeout_ms,
                                 thalweg_step **step, thalweg_step_next *next,
                                 thalweg_error *error);

/*
 * Says that the step that was given last is read, and waits up to `timeout_ms` (negative:
 * 120 s) until that is noted: when all ranks of the program have said so, the position of its
 * name is behind the step, durably. With 0 it is said and not waited for. Without it the next
 * step's coming says so. Does nothing if no step is held.
 */
int32_t thalweg_step_reader_release(thalweg_step_reader *reader, int64_t timeout_ms,
                                    thalweg_error *error);

/*
 * Where the record of the step that was given last is, in partition 0; incarnation 0 if there
 * was none. With the option start of another reader: where that one begins.
 */
int32_t thalweg_step_reader_position(thalweg_step_reader *reader, thalweg_event_id *position,
                                     thalweg_error *error);

/*
 * Leaves. If `release` is not 0 the step that was given last is released, as
 * thalweg_step_reader_release does; else the program is given it again when it comes back. May be
 * called while another thread waits in thalweg_step_reader_next, which fails with THALWEG_CLOSED
 * within a second. Does nothing the second time. The reader has left whatever is returned.
 */
int32_t thalweg_step_reader_close(thalweg_step_reader *reader, int32_t release,
                                  int64_t timeout_ms, thalweg_error *error);

/* Leaves, without releasing the step that was given last, and frees the handle. */
void thalweg_step_reader_free(thalweg_step_reader *reader);

/* -------------------------------------------------------------- step --- */

/* What there is to know of a step. Pointers are valid until the step is freed. */
typedef struct thalweg_step_info {
    uint64_t run;
    uint64_t number;
    uint64_t skipped; /* steps passed over since the one before: with the option latest */
    uint64_t lost;    /* records since the one before that retention took unread */
    uint64_t bytes;   /* of data, of all ranks */
    uint64_t time_ns; /* when it was committed, nanoseconds since 1970 */
    thalweg_event_id position; /* of its record */
    const char *writer;        /* name of the writing program */
    uint32_t writer_ranks;     /* how many ranks wrote it */
    uint32_t reserved32;
    size_t variable_count;
    uint64_t reserved[4];
} thalweg_step_info;

/* Writes what there is to know. Does not block. */
int32_t thalweg_step_info_of(const thalweg_step *step, thalweg_step_info *info,
                             thalweg_error *error);

/* A variable of a step. Pointers are valid until the step is freed. */
typedef struct thalweg_step_variable {
    const char *name;
    const char *dtype;     /* type of its elements */
    const uint64_t *shape; /* ndim lengths of the whole */
    uint32_t ndim;         /* of values and local arrays 0, of local values 1 */
    int32_t kind;          /* THALWEG_STEP_VALUE, ... */
    uint32_t item_bytes;   /* of an element; 0 of "str" */
    uint32_t joined;       /* of _JOINED: along which dimension */
    size_t block_count;    /* how many blocks, or values */
    uint64_t reserved[4];
} thalweg_step_variable;

/* Variable `index`, from 0, in the order in which they were put first. Does not block. */
int32_t thalweg_step_variable_at(const thalweg_step *step, size_t index,
                                 thalweg_step_variable *variable, thalweg_error *error);

/* The index of a variable; THALWEG_STEP_NONE if the step has none of that name. */
size_t thalweg_step_find(const thalweg_step *step, const char *name);

/* A block as it was put. Pointers are valid until the step is freed. */
typedef struct thalweg_step_block_info {
    uint32_t rank;         /* who put it */
    uint32_t ndim;         /* also of a local array */
    const uint64_t *start; /* where it begins in the whole; of a local array zeros */
    const uint64_t *count; /* its lengths */
    const void *min;       /* its least and greatest element, item_bytes each; NULL: not known */
    const void *max;
    uint64_t reserved[2];
} thalweg_step_block_info;

/*
 * Block `block`, from 0, of variable `variable`: those of all ranks in the order of the
 * ranks, and of a rank's puts. Not of values. Does not block. Errors: THALWEG_DAMAGED.
 */
int32_t thalweg_step_block_at(const thalweg_step *step, size_t variable, size_t block,
                              thalweg_step_block_info *info, thalweg_error *error);

/*
 * The least and greatest element of a whole variable, `size` bytes each into the caller's
 * memory, which is item_bytes; `*known` is 0 if they are not known. Nothing travels.
 */
int32_t thalweg_step_extremes(const thalweg_step *step, size_t variable, void *min, void *max,
                              size_t size, int32_t *known, thalweg_error *error);

/*
 * Value `index` of a variable of kind THALWEG_STEP_VALUE (0 alone) or _LOCAL_VALUE (one of each
 * rank that put one, in their order): an element, or UTF-8 text. Valid until the step is
 * freed. Nothing travels.
 */
int32_t thalweg_step_value(const thalweg_step *step, size_t variable, size_t index,
                           thalweg_bytes *value, thalweg_error *error);

/* The attributes of the run as they are at this step, to be freed; they outlive the step. */
int32_t thalweg_step_attributes_of(const thalweg_step *step, thalweg_step_attributes **attributes,
                                   thalweg_error *error);

/* What is wanted of a variable, and the caller's memory for it. All zeroes is a start. */
typedef struct thalweg_step_get {
    const char *name; /* of the variable */
    /*
     * 0: of the whole. Else of one block, by its number and 1: block 0 is 1. Indices count
     * from the block's own beginning then. Of local arrays a block is needed.
     */
    uint64_t block;
    /* 0: all of it, and start, count and step are not looked at. Else its dimensions. */
    uint32_t ndim;
    uint32_t reserved32;
    const uint64_t *start; /* first element along each dimension; NULL: 0 */
    const uint64_t *count; /* how many; NULL: as many as there are from start on */
    const uint64_t *step;  /* from one to the next; NULL: 1 */
    void *into;            /* where the first wanted element goes */
    /*
     * Bytes of all that is wanted: count elements. Of an array that is spread out (strides) the
     * same, and not what it takes.
     */
    size_t size;
    const int64_t *strides; /* of `into`, as of thalweg_step_block; NULL: one behind the other */
    /* Written: how many elements nobody has put. They keep what was there. */
    uint64_t uncovered;
    uint64_t reserved[4];
} thalweg_step_get;

/*
 * Reads `count` selections, of any variables, with one request, up to `timeout_ms` (negative:
 * the driver's request_timeout_ms), and asks for what intersects them alone. Where blocks
 * overlap, the highest rank's counts. When it returns, with an error too, nobody uses the memory
 * any more; what it holds after one is not specified.
 *
 * Errors: THALWEG_INVALID_ARGUMENT: no such variable, outside of it, memory of another size;
 * THALWEG_SERVER_OFFSET_OUT_OF_RANGE: retention has taken the step meanwhile; THALWEG_TIMEOUT,
 * and it may be called again; THALWEG_DAMAGED.
 */
int32_t thalweg_step_read(const thalweg_step *step, thalweg_step_get *gets, size_t count,
                          int64_t timeout_ms, thalweg_error *error);

/*
 * What is read of each step before the program asks for it, from the next step on and until this is
 * called again; a `count` of 0 is nothing. thalweg_step_read of it, or of a part of it, waits for
 * nothing then, or less. While the program is at work on a step the next one is read, as soon as it
 * is committed, unless the reader shares its steps or has the latest alone: then it is read when it
 * is given.
 *
 * `wanted` is as of thalweg_step_read, without memory: `into`, `size` and `strides` are not looked
 * at. A count that is NULL or larger than what there is ends with the array, dimensions behind
 * `ndim` are whole, and block 0 of a local array is all of its blocks. What a step does not have is
 * left out. Everything is copied.
 *
 * Errors: THALWEG_INVALID_ARGUMENT; THALWEG_CLOSED.
 */
int32_t thalweg_step_reader_preload(thalweg_step_reader *reader,
                                    const thalweg_step_get *wanted, size_t count,
                                    thalweg_error *error);

/*
 * Frees the handle. A step of a reader stays that reader's until it is released:
 * thalweg_step_reader_release, _next, or _close.
 */
void thalweg_step_free(thalweg_step *step);

/* -------------------------------------------------------- attributes --- */

/* An attribute. Pointers are valid until the attributes are freed. */
typedef struct thalweg_step_attribute {
    const char *name;
    const char *dtype;
    const void *value;   /* its elements; NULL of "str": see thalweg_step_attributes_text */
    size_t size;         /* of the value in bytes */
    size_t count;        /* how many elements, or texts */
    uint32_t item_bytes; /* of an element; 0 of "str" */
    int32_t is_list;     /* not 0: a list, of any length; 0: a single value */
    uint64_t reserved[2];
} thalweg_step_attribute;

/* How many there are. */
size_t thalweg_step_attributes_count(const thalweg_step_attributes *attributes);

/* Attribute `index`, from 0, in the order of their names. */
int32_t thalweg_step_attributes_at(const thalweg_step_attributes *attributes, size_t index,
                                   thalweg_step_attribute *attribute, thalweg_error *error);

/* The index of an attribute; THALWEG_STEP_NONE if there is none of that name. */
size_t thalweg_step_attributes_find(const thalweg_step_attributes *attributes, const char *name);

/* Text `text`, from 0, of attribute `index`, without a zero behind it. Valid as the attribute. */
int32_t thalweg_step_attributes_text(const thalweg_step_attributes *attributes, size_t index,
                                     size_t text, thalweg_bytes *value, thalweg_error *error);

void thalweg_step_attributes_free(thalweg_step_attributes *attributes);

#ifdef __cplusplus
}
#endif

#endif
