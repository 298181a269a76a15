/*
 * Thalweg's C interface: persistent event streaming.
 *
 * CONVENTIONS
 *
 * Result. A function that can fail returns a code, THALWEG_OK or why it
 * failed, and takes a `thalweg_error *` as its last argument, which may be
 * NULL. It is written when the code is not THALWEG_OK and left alone
 * otherwise; it needs no initialization and nothing is to be freed. Results
 * (`**topic`, `*id`) are written when the code is THALWEG_OK, unless said
 * otherwise.
 *
 * Handles. What a function gives by a pointer to a pointer is the caller's,
 * and is freed by the function `thalweg_..._free` for it, once, when no other
 * thread uses it. Freeing NULL does nothing. Handles may be freed in any
 * order: a topic keeps its connection, a producer its topic, and so on; the
 * connection ends with the last of them. Passing NULL where it is not allowed
 * is an error of code THALWEG_INVALID_ARGUMENT; passing a freed handle is
 * undefined.
 *
 * Strings end with a zero and are UTF-8. Those that are given are read
 * during the call only. Those that come back (`char **`) are freed with
 * thalweg_string_free.
 *
 * Options are JSON objects; NULL and "" are the defaults. A key that is not
 * known is refused, by a message that names it and lists those that are.
 *
 * Times. `timeout_ms` is in milliseconds; 0 only looks; a negative one means
 * the operation's own limit, which each function names.
 *
 * Threads. Drivers, topics, producers, consumers, queues, requesters and
 * futures may be used by several threads at once, events and views by one at a
 * time. A driver has
 * one thread of its own, on which callbacks come, unless it is opened with
 * {"progress": "caller"}: then it has none, and the network is driven by
 * thalweg_driver_progress and by calls that block, on the thread that makes
 * them; callbacks come there.
 *
 * Callbacks come while the library holds no lock of its own that the
 * functions below take, so they may call them; but a callback must not wait
 * (for a future, a pull, a flush) on the same driver, and must not free
 * anything but futures and events. A C++ exception must not leave it.
 *
 * fork. After a fork, a child may go on with drivers, topics, producers,
 * consumers and queues: they connect anew. Futures, events of queues and
 * requesters of its parent fail there with THALWEG_FORKED. A driver of thalweg_driver_embedded is its parent's alone.
 */
#ifndef THALWEG_THALWEG_H
#define THALWEG_THALWEG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The ABI that this header describes; thalweg_abi_version tells the library's. */
#define THALWEG_ABI_VERSION 1

typedef struct thalweg_driver thalweg_driver;
typedef struct thalweg_topic thalweg_topic;
typedef struct thalweg_producer thalweg_producer;
typedef struct thalweg_consumer thalweg_consumer;
typedef struct thalweg_reader thalweg_reader;
typedef struct thalweg_future thalweg_future;
typedef struct thalweg_event thalweg_event;
typedef struct thalweg_view thalweg_view;
typedef struct thalweg_memory thalweg_memory;

/* ------------------------------------------------------------ errors --- */

/*
 * Why a function fails. Codes below 100 are the client's, the others the
 * server's. A code keeps its meaning for ever; later versions may add more.
 */
enum {
    THALWEG_OK = 0,
    THALWEG_TIMEOUT = 1,          /* the time given has passed; one may wait again */
    THALWEG_CLOSED = 2,           /* the handle, or its driver, is closed */
    THALWEG_INVALID_ARGUMENT = 3, /* what was given cannot be right */
    THALWEG_BUDGET = 4,           /* a budget of memory is full, and its policy is to fail */
    THALWEG_WRONG_SERVER = 5,     /* another server than the expected one answers */
    THALWEG_UNREACHABLE = 6,      /* no server answers, or not yet; retryable */
    THALWEG_DAMAGED = 7,          /* bytes arrived that fail their checksum */
    THALWEG_FORKED = 8,           /* the future belongs to the process that was forked from */
    THALWEG_IO = 9,               /* the operating system says no */
    THALWEG_CANCELLED = 10,       /* thalweg_future_cancel was in time */
    THALWEG_INTERNAL = 11,        /* a bug of the library's */
    THALWEG_NOT_EMBEDDED = 12,    /* the server in this process cannot start */
    THALWEG_PLUGIN_UNUSABLE = 13, /* the topic needs a plugin that cannot be had here */
    THALWEG_DATA_CHANGED = 14,    /* data that was borrowed was changed: see check_borrowed */
    THALWEG_RECOVERING = 15,      /* a queue or group waits for members of before; retryable */

    THALWEG_SERVER_INTERNAL = 101,
    THALWEG_SERVER_MALFORMED = 102,
    THALWEG_SERVER_UNSUPPORTED = 103,
    THALWEG_SERVER_NOT_AUTHENTICATED = 104,
    THALWEG_SERVER_NOT_AUTHORIZED = 105,
    THALWEG_SERVER_WRONG_SERVER = 106,
    THALWEG_SERVER_DEADLINE_PASSED = 107,
    THALWEG_SERVER_LIMIT_EXCEEDED = 108,
    THALWEG_SERVER_DRAINING = 109,
    THALWEG_SERVER_CANCELLED = 110,
    THALWEG_SERVER_CREDENTIAL_EXPIRED = 111,
    THALWEG_SERVER_UNKNOWN_TOPIC = 120,
    THALWEG_SERVER_TOPIC_EXISTS = 121,
    THALWEG_SERVER_INVALID_TOPIC = 122,
    THALWEG_SERVER_UNKNOWN_PARTITION = 123,
    THALWEG_SERVER_NO_PARTITIONS = 124,
    THALWEG_SERVER_INVALID_STORAGE = 125,
    THALWEG_SERVER_NOT_LEADER = 126,
    THALWEG_SERVER_INVALID_EVENT = 140,
    THALWEG_SERVER_CHECKSUM_MISMATCH = 141,
    THALWEG_SERVER_OUT_OF_SEQUENCE = 142,
    THALWEG_SERVER_PRODUCER_FENCED = 143,
    THALWEG_SERVER_PRODUCER_EXPIRED = 144,
    THALWEG_SERVER_INVALID_DURABILITY = 145,
    THALWEG_SERVER_TOPIC_FULL = 146,
    THALWEG_SERVER_EVENT_DROPPED = 147,
    THALWEG_SERVER_OFFSET_OUT_OF_RANGE = 160,
    THALWEG_SERVER_WRONG_INCARNATION = 161,
    THALWEG_SERVER_DAMAGED = 162,
    THALWEG_SERVER_INVALID_SELECTION = 163,
    THALWEG_SERVER_CURSOR_BACKWARDS = 164,
    THALWEG_SERVER_UNKNOWN_CONSUMER = 165,
    THALWEG_SERVER_INVALID_CONSUMER = 166,
    THALWEG_SERVER_MEMBER_FENCED = 167,
    THALWEG_SERVER_LEASE_EXPIRED = 168,
    THALWEG_SERVER_RUN_ENDED = 170,
    THALWEG_SERVER_GROUP_INCOMPLETE = 171,
    THALWEG_SERVER_STORAGE_FULL = 180,
    THALWEG_SERVER_STORAGE_FAILED = 181
};

/* What is known of a failure. Lies wherever the caller puts it. */
typedef struct thalweg_error {
    int32_t code;
    int32_t retryable;       /* not 0: the same call may succeed later */
    uint32_t retry_after_ms; /* when, if the server said so; 0 otherwise */
    uint32_t reserved;
    char message[1008];      /* one sentence that names the thing and the numbers */
} thalweg_error;

/* The library's ABI: compare with THALWEG_ABI_VERSION. Cannot fail. */
uint32_t thalweg_abi_version(void);

/* The library's version, such as "0.1.0". Static; not to be freed. */
const char *thalweg_version(void);

/* A code in words, such as "unknown topic"; "unknown" if it is none. Static. */
const char *thalweg_code_name(int32_t code);

/* Frees a string that a function gave as `char **`. */
void thalweg_string_free(char *string);

/* ------------------------------------------------------------- plain --- */

/* A piece of memory. */
typedef struct thalweg_bytes {
    const void *base;
    size_t size;
} thalweg_bytes;

/*
 * Where an event is. Offsets count from 0 in each partition, within one of
 * its lives (incarnations, from 1): a partition in memory begins another one
 * when its server is started again. Where a position is asked for, incarnation
 * 0 stands for the present one.
 */
typedef struct thalweg_event_id {
    uint32_t partition;
    uint32_t reserved;
    uint64_t incarnation;
    uint64_t offset;
} thalweg_event_id;

/* A pair of a name and a value. The name is UTF-8. */
typedef struct thalweg_header {
    thalweg_bytes name;
    thalweg_bytes value;
} thalweg_header;

/* ------------------------------------------------------------ driver --- */

/*
 * Connects to a server. Blocks up to `connect_timeout_ms`. A group file that
 * is not there is an error at once, unless `connect_timeout_ms` is given: then
 * it is waited for as long.
 *
 * endpoint  the path of the group file that `thalweg serve` writes, or an
 *           address, such as "tcp://127.0.0.1:7000", "unix:///run/t.sock" or
           "shm:///run/t.sock" (shared memory, agreed on over the socket).
 * options   client_name (default: program and process id), namespace,
 *           connect_timeout_ms (10000), request_timeout_ms (120000),
 *           reconnect_timeout_ms (none: how long a lost server may be away before
 *             pulls, with and without a timeout, fail with THALWEG_UNREACHABLE),
 *           memory_bytes_max (536870912: producers and consumers have shares of
 *             it, and where they are too many a 512th each, beyond it),
 *           progress ("thread", or "caller": see thalweg_driver_progress),
 *           spin_us (0: how long to look for answers before sleeping, for lowest
 *             latency over shared memory where a processor can be spared),
 *           stripes (1: how many connections there may be, up to 16, which carry
 *             its bytes together over tcp:// and tls://, for long lines),
 *           token (for an address: the group file's, in hexadecimal),
 *           credential (a file with a token, as `thalweg token new` makes it, in
 *             place of `token`; default: the one that THALWEG_CREDENTIAL names).
 *
 * The connection is made again by itself when it is lost, to the same data
 * directory only. Errors: THALWEG_UNREACHABLE, THALWEG_WRONG_SERVER,
 * THALWEG_TIMEOUT, THALWEG_SERVER_NOT_AUTHENTICATED.
 */
int32_t thalweg_driver_connect(const char *endpoint, const char *options,
                               thalweg_driver **driver, thalweg_error *error);

/*
 * Runs a server in this process, on the data directory `directory` (made if
 * it is not there), and connects to it without a network: nobody else can.
 * `thalweg serve` may serve the directory later.
 *
 * options   as above, without token and credential; and settings: an object with the
 *           settings of `thalweg serve`, such as {"memory_bytes_max": "1GiB"}.
 *
 * The server has threads of its own, also with {"progress": "caller"}. It ends
 * with thalweg_driver_close, or with the last handle. Errors:
 * THALWEG_NOT_EMBEDDED, for example because another server has the directory.
 */
int32_t thalweg_driver_embedded(const char *directory, const char *options,
                                thalweg_driver **driver, thalweg_error *error);

/*
 * Sends all acknowledgements, leaves all queues, waits until everything that
 * was pushed is acknowledged, then ends the connection and the server in this process.
 * Blocks up to `timeout_ms` (negative: 120 s). All handles of the driver fail
 * with THALWEG_CLOSED afterwards, and are to be freed all the same. The driver
 * is closed whatever is returned; what is not acknowledged has failed then.
 */
int32_t thalweg_driver_close(thalweg_driver *driver, int64_t timeout_ms, thalweg_error *error);

/*
 * Memory for data of events, at `*base`, to be written, pushed and written
 * again as often as one likes: over shared memory the server reads it where it
 * lies, and this process does nothing for it; over any other way, or where
 * that memory is used up, it is ordinary memory. Not initialized. May be kept
 * across reconnects. Does not block. Push it with `borrow`, and write to it
 * again when the future has resolved: a push without that copies it.
 */
int32_t thalweg_memory_new(thalweg_driver *driver, size_t size, thalweg_memory **memory,
                           void **base, thalweg_error *error);

/* Frees the memory; not while it is borrowed. NULL does nothing. */
void thalweg_memory_free(thalweg_memory *memory);

/*
 * Has `callback(context, text)` called while a pull without a timeout is kept
 * from events by the server, which is away or recovers: every 10 s, and once
 * when the pull goes on; `text` says what it waits for and for how long, and is
 * valid for the call. In place of the callback before; NULL, the default, ends
 * that. Called on threads that pull; it must not use the consumer.
 */
int32_t thalweg_driver_on_waiting(thalweg_driver *driver,
                                  void (*callback)(void *context, const char *text),
                                  void *context, thalweg_error *error);

/*
 * Has `callback(context, text)` called a minute before the credential of the
 * driver ends, and again at its end; `text` names the file and what to do, has
 * no secret, and is valid for the call. What was said before, as while the
 * driver connected, is said at once, on this thread; the rest on the one that
 * drives the network, where nothing of the driver may be waited for. In place
 * of the callback before; NULL, the default, ends that.
 */
int32_t thalweg_driver_on_credential(thalweg_driver *driver,
                                     void (*callback)(void *context, const char *text),
                                     void *context, thalweg_error *error);

/* The server's state, as JSON (docs/reference/status.md). Blocks. */
int32_t thalweg_driver_status(thalweg_driver *driver, char **json, thalweg_error *error);

/*
 * Drives the network of a driver that was opened with {"progress": "caller"}:
 * does what there is to do; if there was nothing, waits up to `timeout_ms`
 * (negative: an hour) for it first. Callbacks come meanwhile, on this thread.
 * To be called whenever thalweg_driver_fd is readable. Every call that blocks
 * does the same while it waits; one thread drives at a time, and another one
 * waits until it has. A driver that is not driven for long is taken for dead
 * by the server, and connects anew when it is. Errors: THALWEG_CLOSED;
 * THALWEG_INVALID_ARGUMENT if a thread drives, or from a callback.
 */
int32_t thalweg_driver_progress(thalweg_driver *driver, int64_t timeout_ms, thalweg_error *error);

/*
 * A descriptor for poll, epoll and the like: readable when
 * thalweg_driver_progress has something to do, be it a message, a timer or what
 * another thread wants. It covers all of the driver's networks, and stays the
 * same until the driver is closed. Only to be waited for: never read, written
 * or closed. THALWEG_INVALID_ARGUMENT if the driver has a thread.
 */
int32_t thalweg_driver_fd(thalweg_driver *driver, int *fd, thalweg_error *error);

/*
 * Frees the handle. The connection ends with the last handle of the driver's;
 * a server in this process is drained then, which may block.
 */
void thalweg_driver_free(thalweg_driver *driver);

/* ------------------------------------------------------------- topic --- */

/*
 * Makes a topic. Blocks up to `request_timeout_ms`.
 *
 * options   partitions (1), storage ("disk", "memory", {"kind", "config"}, or
 *           a list with one for each partition), and the keys of
 *           docs/reference/topic-definition.md: validator,
 *           partition_selector, serializer, durability, retention, ...
 *           exist_ok (false): a topic of that name that is there already is
 *           opened as it is, and the other keys change nothing of it.
 * topic     NULL, or where a handle of it goes.
 *
 * Durable when it returns. Errors: THALWEG_SERVER_TOPIC_EXISTS,
 * THALWEG_SERVER_INVALID_TOPIC, THALWEG_INVALID_ARGUMENT, and then nothing was made.
 */
int32_t thalweg_topic_create(thalweg_driver *driver, const char *name, const char *options,
                             thalweg_topic **topic, thalweg_error *error);

/* Opens a topic that exists. Blocks. Errors: THALWEG_SERVER_UNKNOWN_TOPIC. */
int32_t thalweg_topic_open(thalweg_driver *driver, const char *name, thalweg_topic **topic,
                           thalweg_error *error);

/* Deletes a topic with everything in it. Blocks. Errors: THALWEG_SERVER_UNKNOWN_TOPIC. */
int32_t thalweg_topic_delete(thalweg_driver *driver, const char *name, thalweg_error *error);

/*
 * Adds partitions to a live topic: `options` has partitions and storage, as
 * in thalweg_topic_create. Blocks. Durable when it returns. Producers and
 * consumers that are open notice within some seconds.
 */
int32_t thalweg_topic_add_partitions(thalweg_driver *driver, const char *name,
                                     const char *options, thalweg_error *error);

/*
 * Changes the definition of a live topic: `changes` is a JSON object of
 * validator, retention, keep_until_acknowledged and metadata_bytes_max, each
 * with its new value, or null for its default. Blocks. Durable when it
 * returns; a new validator holds for producers that are opened later.
 * Errors: THALWEG_SERVER_UNKNOWN_TOPIC, THALWEG_SERVER_INVALID_TOPIC.
 */
int32_t thalweg_topic_alter(thalweg_driver *driver, const char *name, const char *changes,
                            thalweg_error *error);

/* All topics, as a JSON list of what thalweg_topic_describe gives. Blocks. */
int32_t thalweg_topic_list(thalweg_driver *driver, char **json, thalweg_error *error);

/*
 * The topic as it is now, as JSON: {"name", "id", "definition", "partitions":
 * [{"partition", "storage", "config", "durability", "incarnation", "first",
 * "end", "durable", "committed", "bytes", "failure"}]}. Blocks.
 */
int32_t thalweg_topic_describe(thalweg_topic *topic, char **json, thalweg_error *error);

/* How many partitions the topic has, as last known. Does not block. */
size_t thalweg_topic_partition_count(const thalweg_topic *topic);

void thalweg_topic_free(thalweg_topic *topic);

/* ------------------------------------------------------------ future --- */

/*
 * A future resolves once: to a result, or to a failure. It is resolved when
 * what it stands for is over and all memory that was lent for it is the
 * caller's again. Freeing it gives up neither a push nor a flush, only the
 * knowledge of it; memory that was lent stays lent until then (see
 * thalweg_message.release and thalweg_producer_flush). Freeing that of a pull
 * cancels it.
 */

/*
 * Waits until the future is resolved, up to `timeout_ms`; negative: as long as
 * it takes, which is bounded by the producer's ack_timeout_ms or the driver's
 * request_timeout_ms, but not for a pull. Returns THALWEG_OK or the failure
 * that it resolved to; THALWEG_TIMEOUT also when the time has passed, and
 * thalweg_future_done tells the two apart. May be called again, always with
 * the same answer once it is resolved.
 */
int32_t thalweg_future_wait(thalweg_future *future, int64_t timeout_ms, thalweg_error *error);

/* 1 if the future is resolved, 0 if not. Does not block. */
int32_t thalweg_future_done(thalweg_future *future);

/*
 * Where the event that was pushed, or the reply, is stored: it has the
 * durability of its topic, or of its producer if that asks for more. Does not block:
 * THALWEG_TIMEOUT if the future is not resolved, its failure if it failed.
 */
int32_t thalweg_future_id(thalweg_future *future, thalweg_event_id *id, thalweg_error *error);

/*
 * Takes the event that was pulled, or the reply to a request, once; of a
 * broadcast the next reply, in the order of arrival, or NULL behind the last.
 * Does not block, as thalweg_future_id.
 */
int32_t thalweg_future_event(thalweg_future *future, thalweg_event **event, thalweg_error *error);

/*
 * Calls `callback(context)` once, when the future is resolved; at once, on this
 * thread, if it is. A future has one callback, which is called also if the
 * future is freed before (except for a pull, which freeing cancels: it is
 * called then). For a read of data it comes when the answer is there, and
 * thalweg_future_done or _wait settles the rest.
 */
int32_t thalweg_future_on_done(thalweg_future *future, void (*callback)(void *context),
                               void *context, thalweg_error *error);

/*
 * Gives up what the future stands for. Does not block and asks nobody: the
 * future resolves, soon or at once, as it would if it were waited for, and
 * then all memory is the caller's again. THALWEG_OK whatever it comes to:
 *
 * - a push whose batch is still gathering or waiting here resolves to
 *   THALWEG_CANCELLED, and the event is never stored. One whose batch is with
 *   the network stays: the future resolves to what becomes of it, as if this
 *   had not been called, and its data stays borrowed until then. So
 *   THALWEG_CANCELLED says for certain that the event is not stored.
 * - a pull resolves to THALWEG_CANCELLED unless it has its event already; no
 *   event is lost by it, the next pull gets what this one would have got.
 *   Buffers of an allocator are not touched: data that is read ahead goes on
 *   to its event. The consumer is as before.
 * - a read of data resolves to THALWEG_CANCELLED unless its answer is there;
 *   what is in the memory then is not specified.
 * - what was said of a queue's event, a request and a broadcast stay, and a
 *   flush does; nobody has to wait for them.
 */
int32_t thalweg_future_cancel(thalweg_future *future, thalweg_error *error);

/* Frees a future, resolved or not. Does not block. */
void thalweg_future_free(thalweg_future *future);

/* ---------------------------------------------------------- producer --- */

/*
 * Opens a producer. Blocks up to `request_timeout_ms`, or `ack_timeout_ms` if
 * that is less.
 *
 * options   name (kept across restarts of the program; opening it again fences
 *             the one before),
 *           batch ("adaptive", or a number of events: batches of that many; a
 *             flush or a wait for a future sends what there is),
 *           batch_bytes (1048576), linger_ms,
 *           batches_in_flight (4: sent and not acknowledged, a partition),
 *           budget_bytes (67108864: held until acknowledged; one larger event
 *             is let in alone), at_budget ("block" or "fail"),
 *           block_timeout_ms (120000), durability ("written", "synced": if more
 *             than the topic promises), journal (a file, for `thalweg audit`),
 *           inline_bytes_max (65536: data up to this is copied),
 *           ack_timeout_ms (120000), threads (0: whoever pushes validates and
 *           serializes, and is told by the push; else so many threads do,
 *           pushing returns at once and the future tells), ordering
 *           ("strict": in the order of pushing; "loose": as threads are done),
 *           check_borrowed (false; true, to look for mistakes: borrowed data is
 *             compared, when it is sent, with what it was when it was pushed. If it
 *             was changed, the event is not stored, and its future and all that
 *             follow resolve to THALWEG_DATA_CHANGED. Without it such an event is
 *             stored with what its memory held when it was sent).
 */
int32_t thalweg_producer_open(thalweg_topic *topic, const char *options,
                              thalweg_producer **producer, thalweg_error *error);

/*
 * An event to be pushed. Fill it with zeroes, then set what there is. What it
 * points to is copied during the call and is the caller's again when that
 * returns. Data above inline_bytes_max need not be copied: with `borrow` or
 * `release` it is sent from where it lies, and must stay as it is until the
 * future has resolved, or `release` was called, or a thalweg_producer_flush
 * that began later returned THALWEG_OK; check_borrowed finds who changes it.
 */
typedef struct thalweg_message {
    thalweg_bytes metadata;        /* copied */
    thalweg_bytes key;             /* base NULL: none, which differs from empty; copied */
    const thalweg_bytes *data;     /* pieces, one behind the other; copied, or borrowed */
    size_t data_count;
    const thalweg_header *headers; /* copied */
    size_t header_count;
    uint64_t producer_time_ns;     /* nanoseconds since 1970; 0: none */
    uint32_t partition;            /* if has_partition is not 0 */
    int32_t has_partition;
    int32_t tombstone;             /* not 0: the event deletes its key */
    int32_t borrow;                /* not 0: the data is borrowed */
    /*
     * NULL, or the data is borrowed and this is called once, as
     * `release(release_context)`, when it is not any more: on any thread, perhaps before the push returns.
     * Not called if the push fails. The driver waits for it: it must not wait
     * for a lock that is held around calls of this library, as an
     * interpreter's may be.
     */
    void (*release)(void *context);
    void *release_context;
} thalweg_message;

/*
 * Pushes an event. Does not block below the producer's budget; at it, blocks
 * up to `block_timeout_ms` or fails, as at_budget says. Events of one thread
 * and one partition are stored in the order of their pushes, each once.
 *
 * future    NULL, or where a future goes that resolves to the event's id when
 *           it is as durable as was asked for.
 *
 * Errors: THALWEG_INVALID_ARGUMENT if the topic's validator, limit or
 * partition selector refuses the event; THALWEG_BUDGET or THALWEG_TIMEOUT at
 * the budget; and what the producer has failed with, if it has: when a batch is
 * refused for good, or not acknowledged within `ack_timeout_ms`, every future
 * that is not resolved and every later push fails, and another producer is to
 * be opened. Nothing is borrowed if it fails.
 */
int32_t thalweg_producer_push(thalweg_producer *producer, const thalweg_message *message,
                              thalweg_future **future, thalweg_error *error);

/*
 * Waits until everything that was pushed before is acknowledged, the journal,
 * if there is one, is synced, and no data is borrowed for it any more. Blocks
 * up to `timeout_ms` (negative: ack_timeout_ms). Errors: THALWEG_TIMEOUT, and
 * one may wait again; what the producer has failed with.
 */
int32_t thalweg_producer_flush(thalweg_producer *producer, int64_t timeout_ms,
                               thalweg_error *error);

/* The same as a future. What gathers is sent at once. Does not block. */
int32_t thalweg_producer_flush_begin(thalweg_producer *producer, thalweg_future **future,
                                     thalweg_error *error);

/*
 * Frees the producer, after waiting up to ack_timeout_ms until everything that
 * was pushed is acknowledged; flush before to learn how that went.
 */
void thalweg_producer_free(thalweg_producer *producer);

/* -------------------------------------------------------------- view --- */

/*
 * Which bytes of an event's data are wanted, in which order. A view begins as
 * the whole and is narrowed step by step; each step counts within the view as
 * it was before, so that any nesting can be said. A step that leaves its
 * bounds fails with THALWEG_INVALID_ARGUMENT and changes nothing.
 */

/* A piece of an event's data. */
typedef struct thalweg_segment {
    uint64_t offset;
    uint64_t bytes;
} thalweg_segment;

/* All of `bytes` bytes; to be freed. */
thalweg_view *thalweg_view_new(uint64_t bytes);

/* The same selection again; to be freed. NULL gives NULL. */
thalweg_view *thalweg_view_copy(const thalweg_view *view);

/* Makes `view` select what `other` selects. */
void thalweg_view_assign(thalweg_view *view, const thalweg_view *other);

/* Narrows the view to the `bytes` bytes from `offset` on; 0 bytes select nothing. */
int32_t thalweg_view_range(thalweg_view *view, uint64_t offset, uint64_t bytes,
                           thalweg_error *error);

/*
 * Narrows the view to `count` blocks of `block_bytes`, the first at `offset`,
 * with `gap_bytes` between one and the next. The gap behind the last need not
 * be within bounds.
 */
int32_t thalweg_view_stride(thalweg_view *view, uint64_t offset, uint64_t count,
                            uint64_t block_bytes, uint64_t gap_bytes, thalweg_error *error);

/* Narrows the view to the parts that are listed, in that order; they may overlap. */
int32_t thalweg_view_list(thalweg_view *view, const thalweg_segment *segments, size_t count,
                          thalweg_error *error);

/* How many bytes are selected. */
uint64_t thalweg_view_bytes(const thalweg_view *view);

/*
 * Writes the first `max` segments of the selection, as pieces of the event's
 * whole data, to `segments` (NULL if max is 0). Returns how many there are.
 */
size_t thalweg_view_segments(const thalweg_view *view, thalweg_segment *segments, size_t max);

/* Frees a view that was made by _new or _copy, not one that a callback gets. */
void thalweg_view_free(thalweg_view *view);

/* ------------------------------------------------------------- event --- */

/*
 * What there is to know of an event. Pointers are valid until the event is
 * freed; in a callback, until it returns.
 */
typedef struct thalweg_event_info {
    thalweg_event_id id;
    thalweg_bytes metadata;
    thalweg_bytes key;         /* base NULL: none */
    thalweg_bytes data;        /* what came along: all, what was selected, or nothing */
    void *data_owner;          /* what the allocator put into thalweg_buffer.owner */
    uint64_t data_bytes_total; /* length of the whole data, wanted or not */
    uint64_t append_time_ns;   /* when the server took it, nanoseconds since 1970 */
    uint64_t producer_time_ns; /* the producer's time; 0: none */
    int32_t tombstone;         /* not 0: it deletes its key; always 0 in a callback */
    uint32_t reserved[7];
} thalweg_event_info;

/* Writes what there is to know. Does not block. */
int32_t thalweg_event_info_of(const thalweg_event *event, thalweg_event_info *info,
                              thalweg_error *error);

/* How many headers the event has. */
size_t thalweg_event_header_count(const thalweg_event *event);

/* Header `index`, from 0. Valid until the event is freed. */
int32_t thalweg_event_header(const thalweg_event *event, size_t index, thalweg_header *header,
                             thalweg_error *error);

/* Frees an event, with the memory that its data is in; calls the allocator's `release`. */
void thalweg_event_free(thalweg_event *event);

/* ---------------------------------------------------------- consumer --- */

/* Memory of the user's that data is to be received in. */
typedef struct thalweg_buffer {
    void *base;
    size_t size; /* exactly thalweg_view_bytes of the view */
    void *owner; /* anything; comes back in thalweg_event_info.data_owner and `release` */
} thalweg_buffer;

/*
 * Which data of events is wanted, and where it goes. All may be NULL: without
 * `select` all data comes (or what the option `data` says), without `allocate`
 * it goes to memory of the library's.
 *
 * `select` and `allocate` are called in the order of the events, on the thread
 * that pulls, a batch or two ahead of the event that is handed out; on the
 * driver's thread for a pull that has a callback. They return THALWEG_OK, or
 * anything else to refuse, with a message in `error` (which is all zeroes
 * before): the pull fails with it, and they are asked again by the next.
 */
typedef struct thalweg_data_callbacks {
    /* Narrows `view`, which selects all of the event's data. Called for events with data. */
    int32_t (*select)(void *context, const thalweg_event_info *event, thalweg_view *view,
                      thalweg_error *error);
    /* Fills `buffer`. Called where something is selected. */
    int32_t (*allocate)(void *context, const thalweg_event_info *event, const thalweg_view *view,
                        thalweg_buffer *buffer, thalweg_error *error);
    /*
     * Called once for each buffer, on any thread but the driver's, when the
     * library does not use it any more: when its event is freed, or when that
     * event will not be handed out (the consumer is closed, or goes elsewhere).
     */
    void (*release)(void *context, void *owner);
    /*
     * Called once when none of the others will be called any more: by whoever
     * frees the consumer and the last of its events; if data of theirs was
     * under way then, later, on a thread of its own.
     */
    void (*destroy)(void *context);
    void *context;
} thalweg_data_callbacks;

/*
 * Opens a consumer under `name`, which its cursors are kept under. Blocks up
 * to `request_timeout_ms`. Each consumer gets every event of its partitions,
 * from its cursor on; a new name begins with the first event that is there.
 *
 * options    partitions (a list of indices; all, also later ones, by default),
 *            start ("cursor", "cursor_or_latest", "beginning", "latest", an
 *              offset, a negative number: with so many last events of each
 *              partition, {"incarnation", "offset"}, or {"time_ns"}: at the first
 *              batch that the server took then or later, nanoseconds since 1970;
 *              a time may be a text: "-15m" ago, "2026-11-23 04:00" of this
 *              machine's time zone, "2026-11-23T04:00:00Z"),
 *            data ("all" or "none"), inline_along (false: with a selector,
 *              only what it selects travels; true: data that travels with its
 *              event comes along, and the selector picks from it here, which
 *              is faster where data is short and most of it is wanted),
 *            credit_bytes (16777216, a partition: how much may wait here),
 *            acknowledge_interval_ms (50),
 *            merge_wait_ms (none: partitions take turns; else the events of all
 *              partitions come in the order in which the server appended them,
 *              and one is held back while there may be an older one: until every
 *              partition has one here, or for this long after it arrived),
 *            latest (false; true: of each partition only the newest event comes. One that
 *              was not pulled when a newer one arrives is passed over, and counted by
 *              thalweg_consumer_skipped; one at most waits here, and the last event of a
 *              quiet topic always comes. Begins with the newest event there is, unless
 *              start says otherwise. Not with merge_wait_ms).
 * callbacks  NULL, or which data is wanted; copied. `destroy` is called also
 *            if opening fails, unless an argument or the options are refused.
 */
int32_t thalweg_consumer_open(thalweg_topic *topic, const char *name, const char *options,
                              const thalweg_data_callbacks *callbacks,
                              thalweg_consumer **consumer, thalweg_error *error);

/*
 * The next event, to be freed. Waits up to `timeout_ms` (negative: for ever).
 * *event is NULL, and the code THALWEG_OK, only if that has passed, the consumer
 * was connected and subscribed, and nothing was there for it. While the server is
 * away the pull waits; when its time has passed, the error is THALWEG_UNREACHABLE
 * (also just after the server came back, or after reconnect_timeout_ms),
 * or THALWEG_RECOVERING in a group whose server was started anew and
 * waits for members of before. The next pull goes on. With timeout 0 it looks at
 * what has arrived, and fails in the same way while the server is known to be away.
 * Other errors: THALWEG_INVALID_ARGUMENT from a callback; THALWEG_DAMAGED, and the bytes are
 * read again with the next pull.
 */
int32_t thalweg_consumer_pull(thalweg_consumer *consumer, int64_t timeout_ms,
                              thalweg_event **event, thalweg_error *error);

/*
 * Events that are there, at least one and at most `max`, written to
 * `events[0]` to `events[*count - 1]`, each to be freed; waits for the first as
 * thalweg_consumer_pull does. *count is 0 when the time has passed.
 */
int32_t thalweg_consumer_pull_batch(thalweg_consumer *consumer, int64_t timeout_ms,
                                    thalweg_event **events, size_t max, size_t *count,
                                    thalweg_error *error);

/*
 * Begins a pull: the future resolves when there is an event for it. Events go
 * to pulls in the order in which these were begun. Does not block.
 */
int32_t thalweg_consumer_pull_begin(thalweg_consumer *consumer, thalweg_future **future,
                                    thalweg_error *error);

/*
 * Calls `callback(context)` whenever a pull may have something new to say, from
 * now on, in place of the one before; NULL ends that. For bridges to other ways
 * of waiting: the callback is to wake a thread that pulls with timeout 0.
 */
int32_t thalweg_consumer_on_ready(thalweg_consumer *consumer, void (*callback)(void *context),
                                  void *context, thalweg_error *error);

/*
 * Events up to and including `id` are done with, in its partition: the cursor
 * moves behind it. Does not block; sent after acknowledge_interval_ms together
 * with others, and durable a little later (thalweg_consumer_flush waits for
 * that). A cursor never moves back by this. Errors: what the server had
 * against acknowledgements sent before.
 */
int32_t thalweg_consumer_acknowledge(thalweg_consumer *consumer, const thalweg_event_id *id,
                                     thalweg_error *error);

/* Waits until everything that was acknowledged is durable, up to `timeout_ms` (negative: 120 s). */
int32_t thalweg_consumer_flush(thalweg_consumer *consumer, int64_t timeout_ms,
                               thalweg_error *error);

/*
 * Goes on at `to`, be it backwards; the cursor moves there, durably when it
 * returns. Blocks. Events of that partition that were pulled before stay valid.
 */
int32_t thalweg_consumer_seek(thalweg_consumer *consumer, const thalweg_event_id *to,
                              thalweg_error *error);

/*
 * The partitions that it reads now: for a member of a group, those that it is
 * assigned. Writes the first `max` of them, in their order, to `partitions`
 * (NULL if max is 0), and to `*count` how many there are. Does not block.
 */
int32_t thalweg_consumer_partitions(thalweg_consumer *consumer, uint32_t *partitions, size_t max,
                                    size_t *count, thalweg_error *error);

/*
 * Replies to a request that this consumer got, as thalweg_requester_broadcast
 * sends it. The message has metadata and data alone. The future (or NULL)
 * resolves to the reply's id in the topic TOPIC.replies, when it is durable.
 * Blocks with the first reply, until that topic is open, and while too much is
 * not stored yet. Errors: THALWEG_INVALID_ARGUMENT if the event is no request.
 */
int32_t thalweg_consumer_reply(thalweg_consumer *consumer, thalweg_event *event,
                               const thalweg_message *message, thalweg_future **future,
                               thalweg_error *error);

/*
 * The gaps that pulls met since the last call, as a JSON list of {"partition",
 * "incarnation", "first", "end", "reason", "time_ns"}: events from first to
 * before end are missing, and why. Does not block.
 */
int32_t thalweg_consumer_gaps(thalweg_consumer *consumer, char **json, thalweg_error *error);

/*
 * How many events were passed over because there were newer ones, of all partitions
 * together since the consumer was opened: with the option latest; without it 0. In each
 * partition these, the events that were pulled and those that were lost are all from where
 * it began to the last one that was pulled. Does not block.
 */
int32_t thalweg_consumer_skipped(thalweg_consumer *consumer, uint64_t *count,
                                 thalweg_error *error);

/*
 * Ends the subscriptions and frees the handle. Acknowledgements that were not
 * sent yet are sent; thalweg_consumer_flush before waits for them. Pulls that
 * are begun resolve to THALWEG_CLOSED. Events stay valid.
 */
void thalweg_consumer_free(thalweg_consumer *consumer);

/* ------------------------------------------------------- point reads --- */

/*
 * Reads what the topic has now, or a part of that, and ends: without a name and a
 * cursor. Blocks up to `request_timeout_ms`, until the server has said where
 * each partition ends.
 *
 * options    partitions (a list of indices; all by default),
 *            start ("beginning", "latest", an offset, a negative number,
 *              {"incarnation", "offset"}, or a time, as for a consumer),
 *            end ("now": behind what is visible when the read begins; or sooner:
 *              an offset, before that event of each partition; a time, before
 *              the first event that the server appended then or later; a list of
 *              {"partition", "incarnation" (0: the present one), "offset"}),
 *            data, credit_bytes as for a consumer.
 * callbacks  as for a consumer.
 *
 * Errors: THALWEG_SERVER_UNKNOWN_PARTITION; THALWEG_SERVER_STORAGE_FAILED if
 * what a partition has is not known.
 */
int32_t thalweg_reader_open(thalweg_topic *topic, const char *options,
                            const thalweg_data_callbacks *callbacks, thalweg_reader **reader,
                            thalweg_error *error);

/*
 * The next event, to be freed: each that was visible once, in the order of its
 * partition. Waits up to `timeout_ms` (negative: for ever), also while the server is
 * away. *event is NULL at the end, where *ended is 1, and when the time has
 * passed, where it is 0. Threads that share a reader share the events. Errors:
 * THALWEG_DAMAGED, THALWEG_INVALID_ARGUMENT from a callback; it can be called again
 * after an error.
 */
int32_t thalweg_reader_next(thalweg_reader *reader, int64_t timeout_ms, thalweg_event **event,
                            int32_t *ended, thalweg_error *error);

/* The gaps that were met since the last call, as thalweg_consumer_gaps. */
int32_t thalweg_reader_gaps(thalweg_reader *reader, char **json, thalweg_error *error);

/* Ends the read and frees the handle; events of it may outlive it. */
void thalweg_reader_free(thalweg_reader *reader);

/*
 * Reads events from the position `from` on, without a subscription and without
 * a cursor; data that is not in the batch (see inline_bytes_max) does not come
 * along: thalweg_topic_read_data reads it. Blocks up to `wait_ms` (negative: an
 * hour) for the first event. At most `bytes_max` bytes of batches are read,
 * unless the first is larger; of their events at most `max` are written.
 */
int32_t thalweg_topic_fetch(thalweg_topic *topic, const thalweg_event_id *from,
                            uint64_t bytes_max, int64_t wait_ms, thalweg_event **events,
                            size_t max, size_t *count, thalweg_error *error);

/*
 * Begins to read parts of the data of the event `id` into `into`, one behind
 * the other; `size` is what they are together. The memory is lent until the
 * future has resolved. Does not block. If it fails, what is in the memory is
 * not specified.
 */
int32_t thalweg_topic_read_data(thalweg_topic *topic, const thalweg_event_id *id,
                                const thalweg_segment *segments, size_t segment_count, void *into,
                                size_t size, thalweg_future **future, thalweg_error *error);

#ifdef __cplusplus
}
#endif

/* Groups, queues, requests and replies. */
#include <thalweg/sharing.h>

#endif
