/*
 * Thalweg's C++17 interface: persistent event streaming.
 *
 * Header only, over thalweg.h, whose conventions hold here, too. Link with
 * libthalweg.
 *
 * Handles (Driver, TopicHandle, Producer, Consumer, Future) own what they
 * stand for and are moved, not copied; Event is a shared handle and can be
 * copied. They may be destroyed in any order. Whatever fails throws an
 * exception derived from thalweg::Error. Times are in milliseconds; a
 * negative one means the operation's own limit, 0 only looks.
 */
#ifndef THALWEG_THALWEG_HPP
#define THALWEG_THALWEG_HPP

#include <thalweg/data.hpp>
#include <thalweg/error.hpp>
#include <thalweg/options.hpp>
#include <thalweg/thalweg.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

/* ------------------------------------------------------------ future --- */

/* Where an event is. */
struct EventID {
    uint32_t partition = 0;
    uint64_t incarnation = 0;
    uint64_t offset = 0;

    EventID() = default;
    EventID(uint32_t partition_, uint64_t incarnation_, uint64_t offset_)
        : partition(partition_), incarnation(incarnation_), offset(offset_)
    {
    }
    explicit EventID(const thalweg_event_id &id)
        : EventID(id.partition, id.incarnation, id.offset)
    {
    }
    explicit operator thalweg_event_id() const
    {
        thalweg_event_id id{};
        id.partition = partition;
        id.incarnation = incarnation;
        id.offset = offset;
        return id;
    }
    friend bool operator==(const EventID &a, const EventID &b)
    {
        return a.partition == b.partition && a.incarnation == b.incarnation &&
               a.offset == b.offset;
    }
    friend bool operator!=(const EventID &a, const EventID &b) { return !(a == b); }
};

/* What a flush resolves to. */
struct Flushed {};

/*
 * What becomes of a push, a flush or a pull. Resolves once, when all memory
 * that was lent for it is the caller's again. Destroying that of a push or a
 * flush gives up the knowledge alone; that of a pull cancels it.
 */
template <class T> class Future {
public:
    /* One that stands for nothing. */
    Future() = default;

    /* Whether it stands for anything. */
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    bool completed() const { return thalweg_future_done(valid()) != 0; }

    /*
     * Waits for the result, up to `timeout_ms`; nothing when that has passed,
     * and it may be waited for again. Throws what it failed with. Asked again,
     * it gives the same again.
     */
    std::optional<T> wait(int64_t timeout_ms = -1)
    {
        if (value_)
            return value_;
        thalweg_error error;
        if (thalweg_future_wait(valid(), timeout_ms, &error) != THALWEG_OK) {
            if (error.code == THALWEG_TIMEOUT && !completed())
                return std::nullopt;
            if (explain_)
                explain_();
            detail::raise(error);
        }
        value_ = take_(valid());
        return value_;
    }

    /* Waits as long as it takes. */
    T get()
    {
        std::optional<T> value = wait();
        if (!value)
            detail::refuse(THALWEG_TIMEOUT, "timed out waiting for a future");
        return *std::move(value);
    }

    /*
     * Gives up what it stands for, if it is not too late, and never blocks: it
     * resolves to Cancelled, or to what becomes of it all the same. See
     * thalweg_future_cancel.
     */
    void cancel() { detail::call(thalweg_future_cancel, valid()); }

    /* Calls `callback` once, when it is resolved: see thalweg_future_on_done. */
    void onDone(std::function<void()> callback)
    {
        auto context = std::make_unique<std::function<void()>>(std::move(callback));
        detail::call(thalweg_future_on_done, valid(), &Future::done,
                     static_cast<void *>(context.get()));
        context.release();
    }

    using Take = std::function<T(thalweg_future *)>;
    Future(thalweg_future *handle, Take take, std::function<void()> explain = {})
        : handle_(handle), take_(std::move(take)), explain_(std::move(explain))
    {
    }

private:
    static void done(void *context)
    {
        std::unique_ptr<std::function<void()>> callback(
            static_cast<std::function<void()> *>(context));
        try {
            (*callback)();
        } catch (...) {
            // There is nobody to tell: the callback runs on its own.
        }
    }

    thalweg_future *valid() const
    {
        if (!handle_)
            detail::refuse(THALWEG_INVALID_ARGUMENT, "the future stands for nothing");
        return handle_.get();
    }

    detail::Owned<thalweg_future, thalweg_future_free> handle_;
    Take take_;
    std::function<void()> explain_;
    std::optional<T> value_;
};

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
    uint64_t producerTime() const noexcept { return info_.producer_time_ns; }

    /* Events up to this one are done with, in its partition. Does not block. */
    void acknowledge() const
    {
        const auto consumer = consumer_.lock();
        if (!consumer)
            detail::refuse(THALWEG_CLOSED, "the event's consumer is gone");
        detail::call(thalweg_consumer_acknowledge, consumer->get(), &info_.id);
    }

private:
    std::shared_ptr<thalweg_event> event_;
    std::weak_ptr<detail::ConsumerHandle> consumer_;
    thalweg_event_info info_{};
};

/* ---------------------------------------------------------- producer --- */

/* An event to be pushed, where metadata and data are not all. */
struct Message {
    Metadata metadata;
    DataView data;
    std::optional<uint32_t> partition;
    std::optional<std::string> key;
    std::vector<std::pair<std::string, std::string>> headers;
    uint64_t producer_time_ns = 0;
    bool tombstone = false;
};

/* Appends events to a topic, each stored once, in the order of each thread's pushes. */
class Producer {
public:
    explicit Producer(thalweg_producer *handle) : handle_(handle) {}

    /*
     * Pushes an event. The metadata is copied. The data is borrowed: it must
     * stay as it is until the future has resolved or a flush that began later
     * has; data with an owner keeps that, and nobody needs to wait. Blocks at
     * the producer's budget only.
     */
    Future<EventID> push(const Metadata &metadata, const DataView &data = {},
                         std::optional<uint32_t> partition = {})
    {
        thalweg_message message{};
        if (partition) {
            message.has_partition = 1;
            message.partition = *partition;
        }
        return push(message, metadata, data);
    }

    Future<EventID> push(const Message &event)
    {
        thalweg_message message{};
        if (event.partition) {
            message.has_partition = 1;
            message.partition = *event.partition;
        }
        if (event.key)
            message.key = {event.key->data(), event.key->size()};
        std::vector<thalweg_header> headers;
        for (const auto &[name, value] : event.headers)
            headers.push_back({{name.data(), name.size()}, {value.data(), value.size()}});
        message.headers = headers.data();
        message.header_count = headers.size();
        message.producer_time_ns = event.producer_time_ns;
        message.tombstone = event.tombstone ? 1 : 0;
        return push(message, event.metadata, event.data);
    }

    /*
     * Resolves when everything that was pushed before is acknowledged and no
     * data is borrowed for it any more. Does not block; what gathers is sent.
     */
    [[nodiscard]] Future<Flushed> flush()
    {
        thalweg_future *future = nullptr;
        detail::call(thalweg_producer_flush_begin, handle_.get(), &future);
        return Future<Flushed>(future, [](thalweg_future *) { return Flushed{}; });
    }

    thalweg_producer *handle() const noexcept { return handle_.get(); }

private:
    Future<EventID> push(thalweg_message &message, const Metadata &metadata, const DataView &data)
    {
        message.metadata = {metadata.string().data(), metadata.string().size()};
        std::vector<thalweg_bytes> pieces;
        pieces.reserve(data.segments().size());
        for (const DataView::Segment &segment : data.segments())
            pieces.push_back({segment.ptr, segment.size});
        message.data = pieces.data();
        message.data_count = pieces.size();
        std::unique_ptr<std::shared_ptr<const void>> owner;
        if (data.owner()) {
            owner = std::make_unique<std::shared_ptr<const void>>(data.owner());
            message.release = &Producer::release;
            message.release_context = owner.get();
        }
        thalweg_future *future = nullptr;
        detail::call(thalweg_producer_push, handle_.get(),
                     static_cast<const thalweg_message *>(&message), &future);
        // It is the library's from now on, or was released already.
        static_cast<void>(owner.release());
        return Future<EventID>(future, [](thalweg_future *resolved) {
            thalweg_event_id id;
            detail::call(thalweg_future_id, resolved, &id);
            return EventID(id);
        });
    }

    static void release(void *context)
    {
        delete static_cast<std::shared_ptr<const void> *>(context);
    }

    detail::Owned<thalweg_producer, thalweg_producer_free> handle_;
};

/* ---------------------------------------------------------- consumer --- */

/* Reads a topic's events, each partition's in order. */
class Consumer {
public:
    Consumer(thalweg_consumer *handle, std::shared_ptr<detail::DataCallbacks> callbacks)
        : handle_(std::make_shared<detail::ConsumerHandle>(handle)),
          callbacks_(std::move(callbacks))
    {
    }

    /* Begins to wait for an event: events go to pulls in the order of the pulls. */
    Future<Event> pull()
    {
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
     * The next event: waits up to `timeout_ms` (negative: for ever), and gives
     * nothing when that has passed. Throws what a selector or an allocator threw.
     */
    std::optional<Event> pull(int64_t timeout_ms)
    {
        thalweg_event *event = nullptr;
        thalweg_error error;
        if (thalweg_consumer_pull(get(), timeout_ms, &event, &error) != THALWEG_OK)
            fail(error);
        if (event == nullptr)
            return std::nullopt;
        return Event(event, handle_);
    }

    /* Events that are there, at least one and at most `max`, as pull(timeout_ms). */
    std::vector<Event> pullBatch(size_t max, int64_t timeout_ms = -1)
    {
        std::vector<thalweg_event *> pulled(max);
        size_t count = 0;
        thalweg_error error;
        if (thalweg_consumer_pull_batch(get(), timeout_ms, pulled.data(), max, &count, &error) !=
            THALWEG_OK)
            fail(error);
        std::vector<Event> events;
        events.reserve(count);
        for (size_t index = 0; index < count; index++)
            events.emplace_back(pulled[index], handle_);
        return events;
    }

    /* Waits until everything that was acknowledged is durable. */
    void flush(int64_t timeout_ms = -1)
    {
        detail::call(thalweg_consumer_flush, get(), timeout_ms);
    }

    /* Goes on at `to`, be it backwards; the cursor moves there. */
    void seek(const EventID &to)
    {
        const auto id = static_cast<thalweg_event_id>(to);
        detail::call(thalweg_consumer_seek, get(), &id);
    }

    /* The gaps that were met since the last call, as JSON. */
    Metadata gaps() { return Metadata(detail::text(thalweg_consumer_gaps, get())); }

    thalweg_consumer *handle() const noexcept { return get(); }

private:
    thalweg_consumer *get() const noexcept { return handle_->get(); }

    [[noreturn]] void fail(const thalweg_error &error)
    {
        if (callbacks_)
            callbacks_->rethrow();
        detail::raise(error);
    }

    std::shared_ptr<detail::ConsumerHandle> handle_;
    std::shared_ptr<detail::DataCallbacks> callbacks_;
};

/* ------------------------------------------------------------- topic --- */

namespace detail {

/* Options in any order, told apart by their types. */
struct ProducerArguments {
    Object object;

    void take(std::string_view name) { object.add("name", quoted(name)); }
    void take(BatchSize size)
    {
        object.add("batch", size.isAdaptive() ? "\"adaptive\"" : std::to_string(size.value));
    }
    void take(MaxNumBatches max) { object.add("batches_in_flight", std::to_string(max.value)); }
    void take(Durability durability) { object.add("durability", detail::name(durability)); }
    void take(Ordering ordering)
    {
        object.add("ordering", ordering == Ordering::Loose ? "\"loose\"" : "\"strict\"");
    }
    void take(const ThreadPool &pool)
    {
        object.add("threads", std::to_string(pool.threadCount().value));
    }
    void take(const Options &options) { object.merge(options.string()); }
};

struct ConsumerArguments {
    Object object;
    DataSelector selector;
    DataAllocator allocator;

    // Flow control is by bytes: the option credit_bytes.
    void take(BatchSize) {}
    void take(MaxNumBatches) {}
    void take(const ThreadPool &) {}
    void take(const Start &start) { object.add("start", start.json()); }
    void take(const Targets &targets)
    {
        std::string list;
        for (const size_t index : targets.indices)
            list += (list.empty() ? "" : ", ") + std::to_string(index);
        object.add("partitions", "[" + list + "]");
    }
    void take(const std::vector<size_t> &targets) { take(Targets{targets}); }
    void take(const Options &options) { object.merge(options.string()); }

    template <class Callable,
              class Result =
                  std::invoke_result_t<Callable &, const Metadata &, const DataDescriptor &>>
    void take(Callable callable)
    {
        if constexpr (std::is_same<Result, DataDescriptor>::value)
            selector = std::move(callable);
        else if constexpr (std::is_same<Result, DataView>::value)
            allocator = std::move(callable);
        else
            static_assert(always_false<Callable>::value,
                          "a selector returns a DataDescriptor, an allocator a DataView");
    }
};

struct TopicArguments {
    Object object;

    void take(const Validator &named) { object.add("validator", named.json()); }
    void take(const PartitionSelector &named) { object.add("partition_selector", named.json()); }
    void take(const Serializer &named) { object.add("serializer", named.json()); }
    void take(Partitions partitions)
    {
        object.add("partitions", std::to_string(partitions.count));
    }
    void take(const Storage &storage) { object.add("storage", storage.json()); }
    void take(Durability durability) { object.add("durability", detail::name(durability)); }
    void take(const Options &options) { object.merge(options.string()); }
};

} // namespace detail

/* A topic that exists: where producers and consumers come from. */
class TopicHandle {
public:
    TopicHandle(std::string name, thalweg_topic *handle) : name_(std::move(name)), handle_(handle)
    {
    }

    const std::string &name() const noexcept { return name_; }

    /* How many partitions it has, as last known. */
    size_t partitions() const noexcept { return thalweg_topic_partition_count(handle_.get()); }

    /* The topic as it is now, as JSON: see thalweg_topic_describe. */
    Metadata describe() const { return Metadata(detail::text(thalweg_topic_describe, handle_.get())); }

    /*
     * Opens a producer. Options in any order: a name, BatchSize, MaxNumBatches,
     * Ordering, ThreadPool, Durability, Options.
     */
    template <class... Arguments> Producer producer(const Arguments &...options) const
    {
        detail::ProducerArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        thalweg_producer *producer = nullptr;
        detail::call(thalweg_producer_open, handle_.get(), json.c_str(), &producer);
        return Producer(producer);
    }

    /*
     * Opens a consumer, whose cursors are kept under `name`. Options in any
     * order: a DataSelector, a DataAllocator (or what can be called like one),
     * Targets, Start, BatchSize, MaxNumBatches, ThreadPool, Options.
     */
    template <class... Arguments>
    Consumer consumer(const std::string &name, const Arguments &...options) const
    {
        detail::ConsumerArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        std::shared_ptr<detail::DataCallbacks> shared;
        thalweg_data_callbacks callbacks{};
        std::unique_ptr<detail::DataCallbacks::Shared> context;
        if (arguments.selector || arguments.allocator) {
            shared = std::make_shared<detail::DataCallbacks>();
            shared->selector = std::move(arguments.selector);
            shared->allocator = std::move(arguments.allocator);
            if (shared->selector)
                callbacks.select = &detail::DataCallbacks::select;
            if (shared->allocator)
                callbacks.allocate = &detail::DataCallbacks::allocate;
            callbacks.release = &detail::DataCallbacks::release;
            callbacks.destroy = &detail::DataCallbacks::destroy;
            context = std::make_unique<detail::DataCallbacks::Shared>(shared);
            callbacks.context = context.get();
        }
        const thalweg_data_callbacks *given = context ? &callbacks : nullptr;
        // Whatever becomes of it, `destroy` is called.
        static_cast<void>(context.release());
        thalweg_consumer *consumer = nullptr;
        detail::call(thalweg_consumer_open, handle_.get(), name.c_str(), json.c_str(), given,
                     &consumer);
        return Consumer(consumer, std::move(shared));
    }

    thalweg_topic *handle() const noexcept { return handle_.get(); }

private:
    std::string name_;
    detail::Owned<thalweg_topic, thalweg_topic_free> handle_;
};

/* ------------------------------------------------------------ driver --- */

/* A connection to a server, from which topics come. */
class Driver {
public:
    /* Connects by the group file that `thalweg serve` writes, or to an address. */
    explicit Driver(const std::string &endpoint, const Options &options = {})
    {
        thalweg_driver *driver = nullptr;
        detail::call(thalweg_driver_connect, endpoint.c_str(), options.string().c_str(), &driver);
        handle_.reset(driver);
    }

    /* Runs a server in this process, on a data directory, and connects to it. */
    static Driver embedded(const std::string &directory, const Options &options = {})
    {
        thalweg_driver *driver = nullptr;
        detail::call(thalweg_driver_embedded, directory.c_str(), options.string().c_str(),
                     &driver);
        return Driver(driver);
    }

    /*
     * Makes a topic. Options in any order: Partitions, Storage, Validator,
     * PartitionSelector, Serializer, Durability, Options.
     */
    template <class... Arguments>
    TopicHandle createTopic(const std::string &name, const Arguments &...options)
    {
        detail::TopicArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        thalweg_topic *topic = nullptr;
        detail::call(thalweg_topic_create, handle_.get(), name.c_str(), json.c_str(), &topic);
        return TopicHandle(name, topic);
    }

    TopicHandle openTopic(const std::string &name)
    {
        thalweg_topic *topic = nullptr;
        detail::call(thalweg_topic_open, handle_.get(), name.c_str(), &topic);
        return TopicHandle(name, topic);
    }

    bool topicExists(const std::string &name)
    {
        try {
            openTopic(name);
            return true;
        } catch (const UnknownTopic &) {
            return false;
        }
    }

    /* Adds partitions to a live topic. Options: Partitions, Storage, Options. */
    template <class... Arguments>
    void addPartitions(const std::string &name, const Arguments &...options)
    {
        detail::TopicArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::call(thalweg_topic_add_partitions, handle_.get(), name.c_str(), json.c_str());
    }

    void deleteTopic(const std::string &name)
    {
        detail::call(thalweg_topic_delete, handle_.get(), name.c_str());
    }

    /* All topics, as a JSON list: see thalweg_topic_describe. */
    Metadata listTopics() { return Metadata(detail::text(thalweg_topic_list, handle_.get())); }

    /* The server's state, as JSON. */
    Metadata status() { return Metadata(detail::text(thalweg_driver_status, handle_.get())); }

    /*
     * Memory for data of events, which the view owns: over shared memory it is
     * sent with fewest copies. See thalweg_memory_new.
     */
    DataView allocate(size_t size)
    {
        thalweg_memory *memory = nullptr;
        void *base = nullptr;
        detail::call(thalweg_memory_new, handle_.get(), size, &memory, &base);
        return DataView(base, size, std::shared_ptr<const void>(memory, [](const void *owned) {
                            thalweg_memory_free(
                                static_cast<thalweg_memory *>(const_cast<void *>(owned)));
                        }));
    }

    /*
     * With Options(R"({"progress": "caller"})") the driver has no thread: this
     * drives it, whenever fd() is readable. See thalweg_driver_progress.
     */
    void progress(int64_t timeout_ms = 0)
    {
        detail::call(thalweg_driver_progress, handle_.get(), timeout_ms);
    }
    int fd() const
    {
        int fd = -1;
        detail::call(thalweg_driver_fd, handle_.get(), &fd);
        return fd;
    }

    ThreadPool makeThreadPool(ThreadCount count) const { return ThreadPool(count); }
    ThreadPool defaultThreadPool() const { return ThreadPool(); }

    /*
     * Sends all acknowledgements, waits until everything that was pushed is
     * acknowledged, and ends the connection. All handles are closed then.
     */
    void close(int64_t timeout_ms = -1)
    {
        detail::call(thalweg_driver_close, handle_.get(), timeout_ms);
    }

    thalweg_driver *handle() const noexcept { return handle_.get(); }

private:
    explicit Driver(thalweg_driver *handle) : handle_(handle) {}
    detail::Owned<thalweg_driver, thalweg_driver_free> handle_;
};

} // namespace thalweg

#endif
