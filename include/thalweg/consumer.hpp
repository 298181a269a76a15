/*
 * Thalweg's C++17 interface: events as they are read, and what reads them. Include thalweg.hpp.
 */
#ifndef THALWEG_CONSUMER_HPP
#define THALWEG_CONSUMER_HPP

#include <thalweg/data.hpp>
#include <thalweg/error.hpp>
#include <thalweg/future.hpp>
#include <thalweg/message.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace thalweg {

/* ------------------------------------------------------------- event --- */

namespace detail {

using ConsumerHandle = Owned<thalweg_consumer, thalweg_consumer_free>;

/* The callbacks of a consumer, and what they threw last. */
struct DataCallbacks {
    DataSelector selector;
    DataAllocator allocator;
    std::mutex mutex;
    std::exception_ptr thrown;

    /* Throws what a callback threw, if one did. */
    void rethrow()
    {
        std::exception_ptr taken;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            std::swap(taken, thrown);
        }
        if (taken)
            std::rethrow_exception(taken);
    }

    void keep(std::exception_ptr caught)
    {
        const std::lock_guard<std::mutex> lock(mutex);
        thrown = std::move(caught);
    }

    /* Runs a callback; what it throws is kept for whoever pulls. */
    template <class Call> int32_t guard(thalweg_error *error, Call call) noexcept
    {
        try {
            call();
            return THALWEG_OK;
        } catch (const std::exception &caught) {
            std::snprintf(error->message, sizeof error->message, "%s", caught.what());
            keep(std::current_exception());
        } catch (...) {
            std::snprintf(error->message, sizeof error->message, "it threw something");
            keep(std::current_exception());
        }
        return THALWEG_INVALID_ARGUMENT;
    }

    static std::string_view view(const thalweg_bytes &bytes)
    {
        return std::string_view(static_cast<const char *>(bytes.base), bytes.size);
    }

    using Shared = std::shared_ptr<DataCallbacks>;

    static int32_t select(void *context, const thalweg_event_info *event, thalweg_view *into,
                          thalweg_error *error)
    {
        const Shared &self = *static_cast<Shared *>(context);
        return self->guard(error, [&] {
            const DataDescriptor all(event->data_bytes_total);
            const DataDescriptor chosen = self->selector(Metadata(view(event->metadata)), all);
            thalweg_view_assign(into, chosen.handle());
        });
    }

    static int32_t allocate(void *context, const thalweg_event_info *event,
                            const thalweg_view *wanted, thalweg_buffer *buffer,
                            thalweg_error *error)
    {
        const Shared &self = *static_cast<Shared *>(context);
        return self->guard(error, [&] {
            DataDescriptor descriptor(thalweg_view_bytes(wanted));
            {
                // The same selection, as a descriptor of its own.
                std::vector<thalweg_segment> segments(thalweg_view_segments(wanted, nullptr, 0));
                thalweg_view_segments(wanted, segments.data(), segments.size());
                uint64_t reach = 0;
                for (const thalweg_segment &segment : segments)
                    reach = segment.offset + segment.bytes > reach
                                ? segment.offset + segment.bytes
                                : reach;
                descriptor = DataDescriptor(reach).makeUnstructuredView(segments);
            }
            auto given = std::make_unique<DataView>(
                self->allocator(Metadata(view(event->metadata)), descriptor));
            if (given->segments().size() > 1)
                refuse(THALWEG_INVALID_ARGUMENT, "an allocator gives one piece of memory");
            if (!given->segments().empty()) {
                buffer->base = given->segments()[0].ptr;
                buffer->size = given->segments()[0].size;
            }
            buffer->owner = given.release();
        });
    }

    static void release(void *, void *owner) { delete static_cast<DataView *>(owner); }
    static void destroy(void *context) { delete static_cast<Shared *>(context); }
};

} // namespace detail

/* An event that was pulled. A shared handle: copies stand for the same event. */
class Event {
public:
    Event(thalweg_event *event, std::weak_ptr<detail::ConsumerHandle> consumer)
        : event_(event, thalweg_event_free), consumer_(std::move(consumer))
    {
        detail::call(thalweg_event_info_of, static_cast<const thalweg_event *>(event), &info_);
    }

    EventID id() const { return EventID(info_.id); }
    uint32_t partition() const noexcept { return info_.id.partition; }

    /* A copy of the metadata; metadataView() needs none, and lives as long as the event. */
    Metadata metadata() const { return Metadata(metadataView()); }
    std::string_view metadataView() const
    {
        return std::string_view(static_cast<const char *>(info_.metadata.base),
                                info_.metadata.size);
    }

    /*
     * The data that came along, where it lies. It keeps the event's memory for
     * as long as it lives; memory of the allocator's belongs to its owner.
     */
    DataView data() const
    {
        if (info_.data_owner != nullptr) {
            const auto *given = static_cast<const DataView *>(info_.data_owner);
            if (given->owner())
                return *given;
        }
        return DataView(info_.data.base, info_.data.size, event_);
    }
    /* Length of the whole data, wanted or not. */
    uint64_t dataSize() const noexcept { return info_.data_bytes_total; }

    std::optional<std::string_view> key() const
    {
        if (info_.key.base == nullptr)
            return std::nullopt;
        return std::string_view(static_cast<const char *>(info_.key.base), info_.key.size);
    }

    std::vector<std::pair<std::string, std::string>> headers() const
    {
        std::vector<std::pair<std::string, std::string>> headers;
        const size_t count = thalweg_event_header_count(event_.get());
        for (size_t index = 0; index < count; index++) {
            thalweg_header header;
            detail::call(thalweg_event_header, static_cast<const thalweg_event *>(event_.get()),
                         index, &header);
            headers.emplace_back(
                std::string(static_cast<const char *>(header.name.base), header.name.size),
                std::string(static_cast<const char *>(header.value.base), header.value.size));
        }
        return headers;
    }

    bool tombstone() const noexcept { return info_.tombstone != 0; }
    /* Nanoseconds since 1970: when the server took it; the producer's own, 0 for none. */
    uint64_t appendTime() const noexcept { return info_.append_time_ns; }
    /* When the server took it, to the clock's resolution. */
    std::chrono::system_clock::time_point appendedAt() const noexcept
    {
        using clock = std::chrono::system_clock;
        return clock::time_point(std::chrono::duration_cast<clock::duration>(
            std::chrono::nanoseconds(info_.append_time_ns)));
    }
    uint64_t producerTime() const noexcept { return info_.producer_time_ns; }

    /* Who gave it, if it is a reply: a consumer's name, perhaps with its client's behind a slash. */
    std::optional<std::string> replier() const
    {
        for (auto &[name, value] : headers())
            if (name == "thalweg.replier")
                return value;
        return std::nullopt;
    }

    /*
     * Replies to a broadcast that a consumer got. The data is copied, or
     * borrowed, as by Producer::push. Blocks with the consumer's first reply.
     */
    Future<EventID> reply(const Metadata &metadata, const DataView &data = {}) const
    {
        const auto consumer = consumer_.lock();
        if (!consumer)
            detail::refuse(THALWEG_CLOSED, "the event's consumer is gone");
        detail::Outgoing outgoing(metadata, data);
        thalweg_future *future = nullptr;
        detail::call(thalweg_consumer_reply, consumer->get(), handle(), outgoing.get(), &future);
        outgoing.taken();
        return detail::stored(future);
    }

    /* Events up to this one are done with, in its partition. Does not block. */
    void acknowledge() const
    {
        const auto consumer = consumer_.lock();
        if (!consumer)
            detail::refuse(THALWEG_CLOSED, "the event's consumer is gone");
        detail::call(thalweg_consumer_acknowledge, consumer->get(), &info_.id);
    }

    thalweg_event *handle() const noexcept { return event_.get(); }

private:
    std::shared_ptr<thalweg_event> event_;
    std::weak_ptr<detail::ConsumerHandle> consumer_;
    thalweg_event_info info_{};
};

/* ---------------------------------------------------------- consumer --- */

/*
 * What a member of a group does when partitions come (`assigned`), are to go
 * (`revoking`: acknowledge what is finished) or are gone (`lost`). Called from
 * within a pull. What they throw is thrown by the next pull.
 */
struct GroupListener {
    using Told = std::function<void(const std::vector<uint32_t> &partitions)>;
    Told assigned;
    Told revoking;
    Told lost;
};

namespace detail {

/* A listener, and what it threw last. */
struct Listener {
    GroupListener listener;
    std::mutex mutex;
    std::exception_ptr thrown;

    explicit Listener(GroupListener given) : listener(std::move(given)) {}

    void rethrow()
    {
        std::exception_ptr taken;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            std::swap(taken, thrown);
        }
        if (taken)
            std::rethrow_exception(taken);
    }

    using Shared = std::shared_ptr<Listener>;

    /* As thalweg.h takes it. */
    static thalweg_group_callbacks give(const Shared &shared)
    {
        thalweg_group_callbacks callbacks{};
        callbacks.assigned = &tell<&GroupListener::assigned>;
        callbacks.revoking = &tell<&GroupListener::revoking>;
        callbacks.lost = &tell<&GroupListener::lost>;
        callbacks.destroy = [](void *context) { delete static_cast<Shared *>(context); };
        callbacks.context = new Shared(shared);
        return callbacks;
    }

    template <GroupListener::Told GroupListener::*Which>
    static void tell(void *context, const uint32_t *partitions, size_t count)
    {
        const Shared &self = *static_cast<Shared *>(context);
        try {
            if (const auto &told = self->listener.*Which)
                told(std::vector<uint32_t>(partitions, partitions + count));
        } catch (...) {
            const std::lock_guard<std::mutex> lock(self->mutex);
            self->thrown = std::current_exception();
        }
    }
};

} // namespace detail

/* Reads a topic's events, each partition's in order. */
class Consumer {
public:
    Consumer(thalweg_consumer *handle, std::shared_ptr<detail::DataCallbacks> callbacks,
             std::shared_ptr<detail::Listener> listener = {})
        : handle_(std::make_shared<detail::ConsumerHandle>(handle)),
          callbacks_(std::move(callbacks)), listener_(std::move(listener))
    {
    }

    /* Begins to wait for an event: events go to pulls in the order of the pulls. */
    Future<Event> pull()
    {
        heard();
        thalweg_future *future = nullptr;
        detail::call(thalweg_consumer_pull_begin, get(), &future);
        std::weak_ptr<detail::ConsumerHandle> consumer = handle_;
        auto take = [consumer](thalweg_future *resolved) {
            thalweg_event *event = nullptr;
            detail::call(thalweg_future_event, resolved, &event);
            return Event(event, consumer);
        };
        auto callbacks = callbacks_;
        return Future<Event>(future, take, [callbacks] {
            if (callbacks)
                callbacks->rethrow();
        });
    }

    /*
     * The next event: waits up to `timeout` (negative: for ever). Gives nothing
     * only if that has passed and nothing was there, of a consumer that is connected and subscribed.
     * Throws Unreachable if it has passed and the server is away, and Recovering if
     * it waits for members of before its start; the next pull goes on. Throws what a
     * selector or an allocator threw.
     */
    std::optional<Event> pull(Duration timeout)
    {
        heard();
        thalweg_event *event = nullptr;
        thalweg_error error;
        if (thalweg_consumer_pull(get(), timeout.milliseconds(), &event, &error) != THALWEG_OK)
            fail(error);
        if (event == nullptr)
            return std::nullopt;
        return Event(event, handle_);
    }

    /* Events that are there, at least one and at most `max`, as pull(timeout). */
    std::vector<Event> pullBatch(size_t max, Duration timeout = -1)
    {
        heard();
        std::vector<thalweg_event *> pulled(max);
        size_t count = 0;
        thalweg_error error;
        if (thalweg_consumer_pull_batch(get(), timeout.milliseconds(), pulled.data(), max, &count,
                                        &error) != THALWEG_OK)
            fail(error);
        std::vector<Event> events;
        events.reserve(count);
        for (size_t index = 0; index < count; index++)
            events.emplace_back(pulled[index], handle_);
        return events;
    }

    /* Waits until everything that was acknowledged is durable. */
    void flush(Duration timeout = -1)
    {
        detail::call(thalweg_consumer_flush, get(), timeout.milliseconds());
    }

    /* Goes on at `to`, be it backwards; the cursor moves there. */
    void seek(const EventID &to)
    {
        const auto id = static_cast<thalweg_event_id>(to);
        detail::call(thalweg_consumer_seek, get(), &id);
    }

    /* The partitions that it reads now: for a member of a group, those that it is assigned. */
    std::vector<uint32_t> partitions()
    {
        std::vector<uint32_t> partitions;
        size_t count = 0;
        do {
            partitions.resize(count);
            detail::call(thalweg_consumer_partitions, get(), partitions.data(),
                         partitions.size(), &count);
        } while (count > partitions.size());
        partitions.resize(count);
        return partitions;
    }

    /* The gaps that were met since the last call, as JSON. */
    Metadata gaps() { return Metadata(detail::text(thalweg_consumer_gaps, get())); }

    /*
     * How many events were passed over because there were newer ones, of all partitions
     * together: with Latest; without it 0. See thalweg_consumer_skipped.
     */
    uint64_t skipped() const
    {
        uint64_t count = 0;
        detail::call(thalweg_consumer_skipped, get(), &count);
        return count;
    }

    thalweg_consumer *handle() const noexcept { return get(); }

private:
    /* Null after a move: the call then throws, as those of other handles do. */
    thalweg_consumer *get() const noexcept { return handle_ ? handle_->get() : nullptr; }

    [[noreturn]] void fail(const thalweg_error &error)
    {
        if (callbacks_)
            callbacks_->rethrow();
        detail::raise(error);
    }

    /* Throws what a listener threw. */
    void heard()
    {
        if (listener_)
            listener_->rethrow();
    }

    std::shared_ptr<detail::ConsumerHandle> handle_;
    std::shared_ptr<detail::DataCallbacks> callbacks_;
    std::shared_ptr<detail::Listener> listener_;
};

/* ------------------------------------------------------ bounded read --- */

namespace detail {

/* Goes through what a source's `next()` gives, for range-based loops. Once. */
template <class Source> class Each {
public:
    using iterator_category = std::input_iterator_tag;
    using value_type = typename Source::value_type;
    using difference_type = std::ptrdiff_t;
    using pointer = const value_type *;
    using reference = const value_type &;

    /* The end. */
    Each() = default;
    explicit Each(Source *source) : source_(source) { ++*this; }

    reference operator*() const { return *item_; }
    pointer operator->() const { return &*item_; }
    Each &operator++()
    {
        item_ = source_->next();
        if (!item_)
            source_ = nullptr;
        return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(const Each &other) const noexcept { return source_ == other.source_; }
    bool operator!=(const Each &other) const noexcept { return source_ != other.source_; }

private:
    Source *source_ = nullptr;
    std::optional<value_type> item_;
};

} // namespace detail

/*
 * Reads what a topic had when the read began, and ends: `for (const Event &event :
 * topic.read())`. Nothing is acknowledged. Goes on while the server is away, for as
 * long as that takes. Gaps do not keep it from its end.
 */
class Reader {
public:
    using value_type = Event;
    using iterator = detail::Each<Reader>;

    Reader(thalweg_reader *handle, std::shared_ptr<detail::DataCallbacks> callbacks)
        : handle_(handle), callbacks_(std::move(callbacks))
    {
    }

    /*
     * The next event: waits up to `timeout` (negative: for ever). Gives nothing
     * at the end, where ended() is true, and when the time has passed. Throws what
     * a selector or an allocator threw.
     */
    std::optional<Event> next(Duration timeout = -1)
    {
        thalweg_event *event = nullptr;
        int32_t ended = 0;
        thalweg_error error;
        if (thalweg_reader_next(handle_.get(), timeout.milliseconds(), &event, &ended, &error) !=
            THALWEG_OK) {
            if (callbacks_)
                callbacks_->rethrow();
            detail::raise(error);
        }
        ended_ = ended != 0;
        if (event == nullptr)
            return std::nullopt;
        return Event(event, {});
    }

    /* Whether every partition has come to its end. */
    bool ended() const noexcept { return ended_; }

    /* For loops: the next event, and the end. */
    iterator begin() { return iterator(this); }
    iterator end() { return {}; }

    /* The gaps that were met since the last call, as JSON. */
    Metadata gaps() { return Metadata(detail::text(thalweg_reader_gaps, handle_.get())); }

    thalweg_reader *handle() const noexcept { return handle_.get(); }

private:
    detail::Owned<thalweg_reader, thalweg_reader_free> handle_;
    std::shared_ptr<detail::DataCallbacks> callbacks_;
    bool ended_ = false;
};

} // namespace thalweg

#endif
