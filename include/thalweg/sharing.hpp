/*
 * Thalweg's C++17 interface: queues, requests and broadcasts. Include thalweg.hpp.
 */
#ifndef THALWEG_SHARING_HPP
#define THALWEG_SHARING_HPP

#include <thalweg/consumer.hpp>
#include <thalweg/data.hpp>
#include <thalweg/error.hpp>
#include <thalweg/future.hpp>
#include <thalweg/message.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thalweg {

/* ------------------------------------------------------------- queue --- */

/* What a settlement resolves to, and an extension. */
struct Settled {};

/*
 * An event of a queue: this program's alone while its lease lasts. It is settled
 * once: acknowledged, returned, rejected or replied to. One that is let go of
 * without (the last copy of it, and the last DataView of it) is returned. What
 * is said does not block; the future, which may be let go of, says when it is
 * durable, and throws LeaseExpired if the event was not this program's any more.
 */
class QueueEvent : public Event {
public:
    explicit QueueEvent(thalweg_event *event) : Event(event, {}) {}

    /* How often it was delivered, this time included. */
    uint32_t deliveries() const noexcept { return thalweg_event_deliveries(handle()); }

    /* It is handled, and never delivered again. */
    Future<Settled> acknowledge() const { return say(thalweg_event_acknowledge); }

    /*
     * It is to be delivered again after `delay`; to the dead-letter topic,
     * with the reason, if it was delivered as often as the queue allows.
     */
    Future<Settled> returnToQueue(Duration delay = 0, const std::string &reason = {}) const
    {
        return say(thalweg_event_return, detail::not_negative(delay), reason.c_str());
    }

    /* It cannot be handled, and goes to the dead-letter topic. */
    Future<Settled> reject(const std::string &reason) const
    {
        return say(thalweg_event_reject, reason.c_str());
    }

    /* Its lease lasts as long as a new one. */
    Future<Settled> extend() const { return say(thalweg_event_extend); }

    /*
     * Replies to a request, and acknowledges it when the reply is stored, where
     * the future says. The data is copied, or borrowed, as by Producer::push.
     */
    Future<EventID> reply(const Metadata &metadata, const DataView &data = {}) const
    {
        return detail::stored(detail::Outgoing(metadata, data).send(thalweg_event_reply, handle()));
    }

private:
    template <class Function, class... Arguments>
    Future<Settled> say(Function function, Arguments... arguments) const
    {
        thalweg_future *future = nullptr;
        detail::call(function, handle(), arguments..., &future);
        return Future<Settled>(future, [](thalweg_future *) { return Settled{}; });
    }
};

/*
 * A queue's events until nothing of it is left: `for (const QueueEvent &event :
 * queue.drain())`. See Queue::drain.
 */
class Drain {
public:
    using value_type = QueueEvent;
    using iterator = detail::Each<Drain>;

    Drain(thalweg_drain *handle, std::shared_ptr<detail::DataCallbacks> callbacks)
        : handle_(handle), callbacks_(std::move(callbacks))
    {
    }

    /*
     * The next event: waits up to `timeout` (negative: for ever). Gives nothing
     * at the end, where ended() is true, and when the time has passed. Throws what
     * a selector or an allocator threw.
     */
    std::optional<QueueEvent> next(Duration timeout = -1)
    {
        thalweg_event *event = nullptr;
        int32_t ended = 0;
        thalweg_error error;
        if (thalweg_drain_next(handle_.get(), timeout.milliseconds(), &event, &ended, &error) !=
            THALWEG_OK) {
            if (callbacks_)
                callbacks_->rethrow();
            detail::raise(error);
        }
        ended_ = ended != 0;
        if (event == nullptr)
            return std::nullopt;
        return QueueEvent(event);
    }

    /* Whether nothing was left, or the program is about to end. */
    bool ended() const noexcept { return ended_; }

    /* For loops: the next event, and the end. */
    iterator begin() { return iterator(this); }
    iterator end() { return {}; }

    thalweg_drain *handle() const noexcept { return handle_.get(); }

private:
    detail::Owned<thalweg_drain, thalweg_drain_free> handle_;
    std::shared_ptr<detail::DataCallbacks> callbacks_;
    bool ended_ = false;
};

/* One member of a queue: gets single events, each under a lease. */
class Queue {
public:
    Queue(thalweg_queue *handle, std::shared_ptr<detail::DataCallbacks> callbacks)
        : handle_(handle), callbacks_(std::move(callbacks))
    {
    }

    /*
     * The next event: waits up to `timeout` (negative: for ever). Gives nothing
     * only if that has passed and nothing was there, of a queue that gives out events.
     * Throws Unreachable if it has passed and the server is away, and Recovering if
     * it waits for members of before its start; the next pull goes on. Throws what a
     * selector or an allocator threw.
     */
    std::optional<QueueEvent> pull(Duration timeout = -1)
    {
        thalweg_event *event = nullptr;
        thalweg_error error;
        if (thalweg_queue_pull(handle_.get(), timeout.milliseconds(), &event, &error) != THALWEG_OK)
            fail(error);
        if (event == nullptr)
            return std::nullopt;
        return QueueEvent(event);
    }

    /* Events that are there, at least one and at most `max`, as pull(timeout). */
    std::vector<QueueEvent> pullBatch(size_t max, Duration timeout = -1)
    {
        std::vector<thalweg_event *> pulled(max);
        size_t count = 0;
        thalweg_error error;
        if (thalweg_queue_pull_batch(handle_.get(), timeout.milliseconds(), pulled.data(), max,
                                     &count, &error) != THALWEG_OK)
            fail(error);
        return std::vector<QueueEvent>(pulled.begin(),
                                       pulled.begin() + static_cast<std::ptrdiff_t>(count));
    }

    /*
     * Events until the server says that nothing of the queue is ready, leased (to
     * anybody, this program included: settle each event), delayed or on its way to
     * the dead-letter topic, and that held for `idle`. Goes on while the server is
     * away or recovers, for as long as that takes. See thalweg_drain_next.
     */
    Drain drain(Duration idle = 1000)
    {
        thalweg_drain *drain = nullptr;
        detail::call(thalweg_drain_open, handle_.get(), detail::not_negative(idle), &drain);
        return Drain(drain, callbacks_);
    }

    /* The queue's options as they are, as JSON: see thalweg_queue_options. */
    Metadata options() { return Metadata(detail::text(thalweg_queue_options, handle_.get())); }

    /* The gaps that were met since the last call, as JSON. */
    Metadata gaps() { return Metadata(detail::text(thalweg_queue_gaps, handle_.get())); }

    /*
     * The program is about to end: pulls give nothing from now on, and at once; what
     * was pulled can be settled for `within`. See thalweg_queue_wind_down.
     */
    void windDown(Duration within)
    {
        detail::call(thalweg_queue_wind_down, handle_.get(), detail::not_negative(within));
    }

    /* Whether nothing new is handed out any more, because the program is about to end. */
    bool windingDown() const noexcept { return thalweg_queue_winding_down(handle_.get()) != 0; }

    /*
     * Leaves the queue, and waits until everything that was settled is durable.
     * Destroying it leaves as well, and says nothing.
     */
    void close(Duration timeout = -1)
    {
        detail::call(thalweg_queue_close, handle_.get(), timeout.milliseconds());
    }

    thalweg_queue *handle() const noexcept { return handle_.get(); }

private:
    [[noreturn]] void fail(const thalweg_error &error)
    {
        if (callbacks_)
            callbacks_->rethrow();
        detail::raise(error);
    }

    detail::Owned<thalweg_queue, thalweg_queue_free> handle_;
    std::shared_ptr<detail::DataCallbacks> callbacks_;
};

/* ---------------------------------------------------------- requests --- */

/* The replies to a broadcast, in the order of arrival, and who did not reply. */
struct Gathered {
    std::vector<Event> replies;
    std::vector<std::string> missing;
};

/* Sends requests to a topic, whose workers are members of a queue, and gets the replies. */
class Requester {
public:
    explicit Requester(thalweg_requester *handle) : handle_(handle) {}

    /*
     * Sends a request; the future is the reply, an event of the topic
     * TOPIC.replies. It throws Timeout after `timeout` (negative: 120 s)
     * without one. The data is copied, or borrowed, as by Producer::push.
     */
    Future<Event> request(const Metadata &metadata, const DataView &data = {},
                          Duration timeout = -1)
    {
        detail::Outgoing outgoing(metadata, data);
        thalweg_future *future =
            outgoing.send(thalweg_requester_request, handle_.get(), timeout.milliseconds());
        return Future<Event>(future, [](thalweg_future *resolved) {
            return Event(take(resolved), {});
        });
    }

    /*
     * Asks everybody who is live on the topic. The future is there when all have
     * replied, or `at_least` have (0: all), or after `timeout`, and says who
     * is missing. Event::replier() names who gave a reply.
     */
    Future<Gathered> broadcast(const Metadata &metadata, const DataView &data = {},
                               Duration timeout = -1, size_t at_least = 0)
    {
        detail::Outgoing outgoing(metadata, data);
        thalweg_future *future =
            outgoing.send(thalweg_requester_broadcast, handle_.get(), at_least,
                          timeout.milliseconds());
        return Future<Gathered>(future, [](thalweg_future *resolved) {
            Gathered gathered;
            while (thalweg_event *event = take(resolved))
                gathered.replies.emplace_back(event, std::weak_ptr<detail::ConsumerHandle>());
            for (size_t index = 0;; index++) {
                char *name = nullptr;
                detail::call(thalweg_future_missing, resolved, index, &name);
                if (name == nullptr)
                    return gathered;
                const std::unique_ptr<char, void (*)(char *)> owned(name, thalweg_string_free);
                gathered.missing.emplace_back(name);
            }
        });
    }

    /*
     * Ends all requests that are under way, and waits until what was sent is stored,
     * up to `timeout` (negative: 120 s). Destroying it does so too, and says nothing.
     */
    void close(Duration timeout = -1)
    {
        detail::call(thalweg_requester_close, handle_.get(), timeout.milliseconds());
    }

    thalweg_requester *handle() const noexcept { return handle_.get(); }

private:
    static thalweg_event *take(thalweg_future *resolved)
    {
        thalweg_event *event = nullptr;
        detail::call(thalweg_future_event, resolved, &event);
        return event;
    }

    detail::Owned<thalweg_requester, thalweg_requester_free> handle_;
};

} // namespace thalweg

#endif
