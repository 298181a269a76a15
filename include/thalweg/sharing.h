/*
 * Thalweg's C interface: consumers that share. Groups, queues, requests and
 * replies, broadcasts. Include thalweg.h, whose conventions hold here.
 */
#ifndef THALWEG_SHARING_H
#define THALWEG_SHARING_H

#include <thalweg/thalweg.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct thalweg_queue thalweg_queue;
typedef struct thalweg_drain thalweg_drain;
typedef struct thalweg_requester thalweg_requester;

/* ------------------------------------------------------------ groups --- */

/*
 * What a member of a group hears of its partitions. All may be NULL. They are
 * called on a thread that pulls, from within the pull, or on the driver's
 * thread for a pull that has a callback; a program that does not pull loses
 * partitions after the revoke timeout.
 */
typedef struct thalweg_group_callbacks {
    /* These `count` partitions are read from now on. */
    void (*assigned)(void *context, const uint32_t *partitions, size_t count);
    /*
     * These are to go to others: when it returns, what was acknowledged is sent
     * and they are released. Acknowledge there what is finished.
     */
    void (*revoking)(void *context, const uint32_t *partitions, size_t count);
    /* These are gone already: acknowledgements of them are refused. */
    void (*lost)(void *context, const uint32_t *partitions, size_t count);
    /* Called once when none of the others will be called any more, by whoever frees the consumer. */
    void (*destroy)(void *context);
    void *context;
} thalweg_group_callbacks;

/*
 * Joins a group: its members, in any number of programs, share the topic's
 * partitions, and each reads those that it is assigned, in order. Gives a
 * consumer; what holds of one holds of it. Freeing it leaves the group.
 * Blocks up to `request_timeout_ms`.
 *
 * options    start (of a new group: "beginning" or "latest"), instance (a name
 *              of this member: a program that comes back under it within the
 *              session timeout takes over what its predecessor had),
 *            session_timeout_ms (10000: how long the server may hear nothing of
 *              this program; the library gives signs of life by itself),
 *            processing_timeout_ms (none: how long the program may stay away
 *              from its consumer; then it leaves by itself),
 *            revoke_timeout_ms (30000; the group's, set by whoever is first),
 *            data, credit_bytes, acknowledge_interval_ms as for a consumer.
 * callbacks  NULL, or which data is wanted, as for a consumer.
 * listener   NULL, or what is called for partitions; copied. `destroy` is called
 *            also if joining fails, unless an argument or the options are refused.
 *
 * Pulls fail with THALWEG_SERVER_MEMBER_FENCED once after the processing
 * timeout (the next one joins again), and for good when a successor of the same
 * instance name took over.
 */
int32_t thalweg_group_join(thalweg_topic *topic, const char *name, const char *options,
                           const thalweg_data_callbacks *callbacks,
                           const thalweg_group_callbacks *listener, thalweg_consumer **consumer,
                           thalweg_error *error);

/* ------------------------------------------------------------ queues --- */

/*
 * Joins a queue: its members, in any number of programs, share the topic's
 * events, each under a lease: while it lasts, no other member gets the event.
 * Each event is settled by itself, by one of the functions below; one that is
 * freed without is returned, and the delivery counts. Every event is handled at
 * least once. Blocks up to `request_timeout_ms`.
 *
 * options    of the queue, set by whoever uses the name first:
 *            lease_ms (30000), deliveries_max (20; 0: without limit),
 *            dead_letter_topic (TOPIC.dead; made if it is missing),
 *            ordered_by_key (false: while an event of a key is out, no later
 *              one of that key is given out);
 *            of this member: start (of a new queue: "beginning" or "latest"),
 *            instance, session_timeout_ms, processing_timeout_ms as for a group,
 *            prefetch (256 events) and prefetch_bytes (16777216): what is here
 *              and not settled at most,
 *            data ("all" or "none"), renew (false: whether leases of pulled
 *              events are extended in the background),
 *            job_end (when the batch job ends, seconds since 1970; unless given,
 *              what SLURM_JOB_END_TIME says in the environment; false: never) and
 *              wind_down_ms (60000): so long before it nothing new is handed out,
 *              and a quarter of that before it the member leaves, as
 *              thalweg_queue_wind_down.
 * callbacks  as for a consumer.
 */
int32_t thalweg_queue_open(thalweg_topic *topic, const char *name, const char *options,
                           const thalweg_data_callbacks *callbacks, thalweg_queue **queue,
                           thalweg_error *error);

/*
 * The next event, as thalweg_consumer_pull. Its lease runs from now on. NULL only
 * if the time has passed, the consumer was connected and a member, the queue gave
 * out events, and none was ready for it (others may still have some); or at
 * once when the program is about to end, see thalweg_queue_wind_down. While the
 * queue recovers the error is THALWEG_RECOVERING.
 */
int32_t thalweg_queue_pull(thalweg_queue *queue, int64_t timeout_ms, thalweg_event **event,
                           thalweg_error *error);

/* Events that are there, as thalweg_consumer_pull_batch. */
int32_t thalweg_queue_pull_batch(thalweg_queue *queue, int64_t timeout_ms, thalweg_event **events,
                                 size_t max, size_t *count, thalweg_error *error);

/*
 * Begins to take a queue's events until nothing of it is left. Does not block. The
 * member leaves the queue when the queue and its drains are freed.
 */
int32_t thalweg_drain_open(thalweg_queue *queue, uint64_t idle_ms, thalweg_drain **drain,
                           thalweg_error *error);

/*
 * The next event, as thalweg_queue_pull gives it; waits up to `timeout_ms`
 * (negative: for ever), also while the server is away or recovers. *event is NULL
 * and *ended 1 at the end: when the server says that nothing of the queue is
 * ready, leased (to anybody, the program itself included), delayed or on its way to
 * the dead-letter topic, and that held for `idle_ms`; or when the program is about
 * to end (thalweg_queue_wind_down). *event is NULL and *ended 0 when the time has
 * passed. An event that the program was given and has not settled counts as
 * leased: settle each. Errors: as of thalweg_queue_pull, but not for a server
 * that is away; THALWEG_SERVER_STORAGE_FAILED if a partition failed, for nobody
 * knows what is left in it. It can be called again after an error. One thread
 * waits at a time; others wait for it.
 */
int32_t thalweg_drain_next(thalweg_drain *drain, int64_t timeout_ms, thalweg_event **event,
                           int32_t *ended, thalweg_error *error);

/* Frees the handle. */
void thalweg_drain_free(thalweg_drain *drain);

/* Calls `callback(context)` whenever a pull may have news, as thalweg_consumer_on_ready. */
int32_t thalweg_queue_on_ready(thalweg_queue *queue, void (*callback)(void *context),
                               void *context, thalweg_error *error);

/*
 * The queue's options as they were set when its name was first used, as JSON:
 * {"lease_ms", "deliveries_max", "dead_letter_topic", "ordered_by_key"}.
 */
int32_t thalweg_queue_options(thalweg_queue *queue, char **json, thalweg_error *error);

/* The gaps that were met since the last call, as thalweg_consumer_gaps. */
int32_t thalweg_queue_gaps(thalweg_queue *queue, char **json, thalweg_error *error);

/*
 * The program is about to end: from now on pulls give nothing, and at once. What
 * lies here goes back; what was pulled can be settled for `within_ms`: then the
 * member leaves, and what is unsettled goes to others, without counting as a
 * delivery. Does not block; called again, the earlier end counts. It takes locks:
 * a handler of SIGTERM leaves it to a thread (sigwait).
 */
int32_t thalweg_queue_wind_down(thalweg_queue *queue, uint64_t within_ms, thalweg_error *error);

/* 1 if nothing new is handed out any more, because the program is about to end; else 0. */
int32_t thalweg_queue_winding_down(thalweg_queue *queue);

/*
 * Leaves the queue: gives back what was not pulled, and waits until everything
 * that was settled is durable, up to `timeout_ms` (negative: 120 s). Events that
 * were pulled and are not settled go to others.
 */
int32_t thalweg_queue_close(thalweg_queue *queue, int64_t timeout_ms, thalweg_error *error);

/* Leaves the queue, waiting for it up to the session timeout, and frees the handle. */
void thalweg_queue_free(thalweg_queue *queue);

/*
 * How often the event was delivered, this time included; 0 if it is not of a
 * queue. The functions below refuse such an event.
 */
uint32_t thalweg_event_deliveries(const thalweg_event *event);

/*
 * What becomes of an event of a queue: it is settled once, by one of these. They
 * do not block; what is said at about the same time travels together. `future`
 * is NULL, or where a future goes that resolves when it is durable: to
 * THALWEG_SERVER_LEASE_EXPIRED if the event was not this member's any more.
 * The event stays to be freed.
 */

/* It is handled: once this is durable it is never delivered again. */
int32_t thalweg_event_acknowledge(thalweg_event *event, thalweg_future **future,
                                  thalweg_error *error);

/*
 * It is to be delivered again, after `delay_ms`. Once it was delivered as often
 * as the queue allows it goes to the dead-letter topic instead, with `reason`
 * (NULL: none; its first 1024 bytes).
 */
int32_t thalweg_event_return(thalweg_event *event, uint64_t delay_ms, const char *reason,
                             thalweg_future **future, thalweg_error *error);

/* It cannot be handled: it goes to the dead-letter topic, with `reason`. */
int32_t thalweg_event_reject(thalweg_event *event, const char *reason, thalweg_future **future,
                             thalweg_error *error);

/* Not settled yet: its lease lasts as long as a new one, once the future is resolved. */
int32_t thalweg_event_extend(thalweg_event *event, thalweg_future **future, thalweg_error *error);

/*
 * Replies to a request, and acknowledges it when the reply is stored. The
 * message has metadata and data alone. The future resolves to the reply's id in
 * the topic TOPIC.replies, when both are durable. Blocks with the first reply of
 * a queue, until that topic is open, and while too much is not stored yet. If it
 * fails, the event is not settled: THALWEG_INVALID_ARGUMENT if it is no request.
 */
int32_t thalweg_event_reply(thalweg_event *event, const thalweg_message *message,
                            thalweg_future **future, thalweg_error *error);

/* ---------------------------------------------------------- requests --- */

/*
 * Opens a requester: it sends requests to the topic, whose workers are members
 * of a queue, and gets their replies, by the topic TOPIC.replies, which is made
 * if it is missing. Blocks up to `request_timeout_ms`.
 *
 * options   data ("all" or "none": of replies), budget_bytes (67108864),
 *           at_budget ("block" or "fail"), block_timeout_ms (120000),
 *           durability, inline_bytes_max, as for a producer.
 */
int32_t thalweg_requester_open(thalweg_topic *topic, const char *options,
                               thalweg_requester **requester, thalweg_error *error);

/*
 * Sends a request. Many may be under way. The future resolves when the reply is
 * there (thalweg_future_event takes it), or to THALWEG_TIMEOUT after `timeout_ms`
 * (negative: 120 s); whether it was handled is not known then. Does not block
 * below the budget. The message's data is copied, or borrowed, as by
 * thalweg_producer_push.
 */
int32_t thalweg_requester_request(thalweg_requester *requester, const thalweg_message *message,
                                  int64_t timeout_ms, thalweg_future **future,
                                  thalweg_error *error);

/*
 * Asks everybody who is live on the topic: each program that reads it as an
 * independent consumer once, a group or queue once. The future resolves when all
 * have replied, or `at_least` have (0: all), or after `timeout_ms` (negative:
 * 120 s): thalweg_future_event takes one reply after the other, whose header
 * "thalweg.replier" names who gave it, and thalweg_future_missing says who did
 * not. It resolves to THALWEG_TIMEOUT only if the server did not say in time who
 * is there. Does not block below the budget.
 */
int32_t thalweg_requester_broadcast(thalweg_requester *requester, const thalweg_message *message,
                                    size_t at_least, int64_t timeout_ms, thalweg_future **future,
                                    thalweg_error *error);

/*
 * Who was asked by a broadcast and has not replied: the `index`th of them, from
 * 0, to be freed; NULL behind the last. Does not block: THALWEG_TIMEOUT if the
 * future is not resolved.
 */
int32_t thalweg_future_missing(thalweg_future *future, size_t index, char **name,
                               thalweg_error *error);

/*
 * Ends all requests that are under way: their futures resolve to THALWEG_CLOSED
 * at once. Then waits until what was sent is stored, up to `timeout_ms` (negative:
 * 120 s); THALWEG_TIMEOUT says that some is not, and may never be. Nothing more
 * can be asked.
 */
int32_t thalweg_requester_close(thalweg_requester *requester, int64_t timeout_ms,
                                thalweg_error *error);

/*
 * Frees the requester; one that was not closed is, and waits up to 120 s.
 */
void thalweg_requester_free(thalweg_requester *requester);

#ifdef __cplusplus
}
#endif

#endif
