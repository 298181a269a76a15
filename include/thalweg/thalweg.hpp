/*
 * Thalweg's C++17 interface: persistent event streaming.
 *
 * Header only, over thalweg.h, whose conventions hold here, too. Link with
 * libthalweg.
 *
 * Handles (Driver, TopicHandle, Producer, Consumer, Queue, Requester, Future)
 * own what they stand for and are moved, not copied; Event and QueueEvent are
 * shared handles and can be copied. They may be destroyed in any order. Whatever fails throws an
 * exception derived from thalweg::Error. Times are a Duration: any std::chrono::duration,
 * or a number of milliseconds, of which a negative one means the operation's own limit;
 * 0 only looks.
 */
#ifndef THALWEG_THALWEG_HPP
#define THALWEG_THALWEG_HPP

#include <thalweg/consumer.hpp>
#include <thalweg/data.hpp>
#include <thalweg/error.hpp>
#include <thalweg/future.hpp>
#include <thalweg/message.hpp>
#include <thalweg/options.hpp>
#include <thalweg/sharing.hpp>
#include <thalweg/thalweg.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

/* ---------------------------------------------------------- producer --- */

/* Appends events to a topic, each stored once, in the order of each thread's pushes. */
class Producer {
public:
    explicit Producer(thalweg_producer *handle) : handle_(handle) {}

    /*
     * Pushes an event. Metadata and data are copied, and the caller's own again
     * when it returns. Large data that has an owner, or is borrow()ed, is not
     * copied but sent from where it lies: it must stay as it is until the future
     * has resolved or a flush that began later has; an owner is kept until then.
     * Blocks at the producer's budget only.
     */
    Future<EventID> push(const Metadata &metadata, const DataView &data = {},
                         std::optional<uint32_t> partition = {})
    {
        detail::Outgoing outgoing(metadata, data);
        outgoing.partition(partition);
        return detail::stored(outgoing.send(thalweg_producer_push, handle_.get()));
    }

    Future<EventID> push(const Message &event)
    {
        detail::Outgoing outgoing(event);
        return detail::stored(outgoing.send(thalweg_producer_push, handle_.get()));
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
    detail::Owned<thalweg_producer, thalweg_producer_free> handle_;
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

/* Of a consumer that reads for itself. */
struct IndependentArguments : ConsumerArguments {
    using ConsumerArguments::take;
    void take(Latest latest) { object.add("latest", latest.value ? "true" : "false"); }
};

struct ReadArguments : ConsumerArguments {
    using ConsumerArguments::take;
    void take(const End &end) { object.add("end", end.json()); }
};

struct GroupArguments : ConsumerArguments {
    GroupListener listener;

    using ConsumerArguments::take;
    void take(const GroupListener &given) { listener = given; }
};

/* The callbacks of a consumer as thalweg.h takes them; none if there is no need. */
struct GivenCallbacks {
    std::shared_ptr<DataCallbacks> shared;
    thalweg_data_callbacks callbacks{};
    std::unique_ptr<DataCallbacks::Shared> context;

    explicit GivenCallbacks(ConsumerArguments &arguments)
    {
        if (!arguments.selector && !arguments.allocator)
            return;
        shared = std::make_shared<DataCallbacks>();
        shared->selector = std::move(arguments.selector);
        shared->allocator = std::move(arguments.allocator);
        if (shared->selector)
            callbacks.select = &DataCallbacks::select;
        if (shared->allocator)
            callbacks.allocate = &DataCallbacks::allocate;
        callbacks.release = &DataCallbacks::release;
        callbacks.destroy = &DataCallbacks::destroy;
        context = std::make_unique<DataCallbacks::Shared>(shared);
        callbacks.context = context.get();
    }

    /* Hands them over: whatever becomes of it, `destroy` is called. */
    const thalweg_data_callbacks *give()
    {
        return context.release() != nullptr ? &callbacks : nullptr;
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
    void take(ExistOk exist_ok) { object.add("exist_ok", exist_ok.value ? "true" : "false"); }
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
        constexpr bool known = detail::takes<detail::ProducerArguments, Arguments...>;
        static_assert(known, "a producer takes a name, BatchSize, MaxNumBatches, Ordering, "
                      "ThreadPool, Durability, Options");
        detail::ProducerArguments arguments;
        if constexpr (known)
            (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        thalweg_producer *producer = nullptr;
        detail::call(thalweg_producer_open, handle_.get(), json.c_str(), &producer);
        return Producer(producer);
    }

    /*
     * Opens a consumer, whose cursors are kept under `name`. Options in any
     * order: a DataSelector, a DataAllocator (or what can be called like one),
     * Targets, Start, Latest, BatchSize, MaxNumBatches, ThreadPool, Options.
     */
    template <class... Arguments>
    Consumer consumer(const std::string &name, const Arguments &...options) const
    {
        constexpr bool known = detail::takes<detail::IndependentArguments, Arguments...>;
        static_assert(known, "a consumer takes a DataSelector, DataAllocator, Targets, Start, "
                      "Latest, BatchSize, MaxNumBatches, ThreadPool, Options");
        detail::IndependentArguments arguments;
        if constexpr (known)
            (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::GivenCallbacks given(arguments);
        thalweg_consumer *consumer = nullptr;
        detail::call(thalweg_consumer_open, handle_.get(), name.c_str(), json.c_str(),
                     given.give(), &consumer);
        return Consumer(consumer, std::move(given.shared));
    }

    /*
     * Reads what the topic has now, or a part of that, and ends: without a name and
     * a cursor. Options in any order: Start, End, Targets, a DataSelector, a
     * DataAllocator, Options with the keys of thalweg_reader_open.
     */
    template <class... Arguments> Reader read(const Arguments &...options) const
    {
        constexpr bool known = detail::takes<detail::ReadArguments, Arguments...>;
        static_assert(known, "read takes Start, End, Targets, a DataSelector, DataAllocator, "
                      "Options");
        detail::ReadArguments arguments;
        if constexpr (known)
            (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::GivenCallbacks given(arguments);
        thalweg_reader *reader = nullptr;
        detail::call(thalweg_reader_open, handle_.get(), json.c_str(), given.give(), &reader);
        return Reader(reader, std::move(given.shared));
    }

    /*
     * Joins a group, whose members share the partitions; gives a consumer of
     * those that this one is assigned. Options in any order: a GroupListener, a
     * DataSelector, a DataAllocator, Start (of a new group), Options with the
     * keys of thalweg_group_join.
     */
    template <class... Arguments>
    Consumer group(const std::string &name, const Arguments &...options) const
    {
        constexpr bool known = detail::takes<detail::GroupArguments, Arguments...>;
        static_assert(known, "a group takes a GroupListener, DataSelector, DataAllocator, Start, "
                      "Options");
        detail::GroupArguments arguments;
        if constexpr (known)
            (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::GivenCallbacks given(arguments);
        const auto listener = std::make_shared<detail::Listener>(std::move(arguments.listener));
        const thalweg_group_callbacks told = detail::Listener::give(listener);
        thalweg_consumer *consumer = nullptr;
        detail::call(thalweg_group_join, handle_.get(), name.c_str(), json.c_str(), given.give(),
                     &told, &consumer);
        return Consumer(consumer, std::move(given.shared), listener);
    }

    /*
     * Joins a queue, whose members share single events, each under a lease.
     * Options in any order: a DataSelector, a DataAllocator, Start (of a new
     * queue), Options with the keys of thalweg_queue_open.
     */
    template <class... Arguments>
    Queue queue(const std::string &name, const Arguments &...options) const
    {
        constexpr bool known = detail::takes<detail::ConsumerArguments, Arguments...>;
        static_assert(known, "a queue takes a DataSelector, DataAllocator, Start, Options");
        detail::ConsumerArguments arguments;
        if constexpr (known)
            (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::GivenCallbacks given(arguments);
        thalweg_queue *queue = nullptr;
        detail::call(thalweg_queue_open, handle_.get(), name.c_str(), json.c_str(), given.give(),
                     &queue);
        return Queue(queue, std::move(given.shared));
    }

    /* Opens a requester: see thalweg_requester_open for the keys of Options. */
    Requester requester(const Options &options = {}) const
    {
        thalweg_requester *requester = nullptr;
        detail::call(thalweg_requester_open, handle_.get(), options.string().c_str(), &requester);
        return Requester(requester);
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
     * PartitionSelector, Serializer, Durability, ExistOk, Options.
     */
    template <class... Arguments>
    TopicHandle createTopic(const std::string &name, const Arguments &...options)
    {
        constexpr bool known = detail::takes<detail::TopicArguments, Arguments...>;
        static_assert(known, "createTopic takes Partitions, Storage, Validator, PartitionSelector, "
                      "Serializer, Durability, ExistOk, Options");
        detail::TopicArguments arguments;
        if constexpr (known)
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
        constexpr bool known = detail::takes<detail::TopicArguments, Arguments...>;
        static_assert(known, "addPartitions takes Partitions, Storage, Options");
        detail::TopicArguments arguments;
        if constexpr (known)
            (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::call(thalweg_topic_add_partitions, handle_.get(), name.c_str(), json.c_str());
    }

    /* Changes the definition of a live topic: the keys of thalweg_topic_alter, as JSON. */
    void alterTopic(const std::string &name, const std::string &changes)
    {
        detail::call(thalweg_topic_alter, handle_.get(), name.c_str(), changes.c_str());
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
     * sent with fewest copies. Pushed, it is not copied: it is to be written again
     * when the future of the push has resolved. See thalweg_memory_new.
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
    void progress(Duration timeout = 0)
    {
        detail::call(thalweg_driver_progress, handle_.get(), timeout.milliseconds());
    }
    int fd() const
    {
        int fd = -1;
        detail::call(thalweg_driver_fd, handle_.get(), &fd);
        return fd;
    }

    /* Has `callback(context, text)` called while pulls wait: see thalweg_driver_on_waiting. */
    void onWaiting(void (*callback)(void *context, const char *text), void *context = nullptr)
    {
        detail::call(thalweg_driver_on_waiting, handle_.get(), callback, context);
    }

    /* Has `callback(context, text)` called when the credential ends: see thalweg_driver_on_credential. */
    void onCredential(void (*callback)(void *context, const char *text), void *context = nullptr)
    {
        detail::call(thalweg_driver_on_credential, handle_.get(), callback, context);
    }

    ThreadPool makeThreadPool(ThreadCount count) const { return ThreadPool(count); }
    ThreadPool defaultThreadPool() const { return ThreadPool(); }

    /*
     * Sends all acknowledgements, waits until everything that was pushed is
     * acknowledged, and ends the connection. All handles are closed then.
     */
    void close(Duration timeout = -1)
    {
        detail::call(thalweg_driver_close, handle_.get(), timeout.milliseconds());
    }

    thalweg_driver *handle() const noexcept { return handle_.get(); }

private:
    explicit Driver(thalweg_driver *handle) : handle_(handle) {}
    detail::Owned<thalweg_driver, thalweg_driver_free> handle_;
};

} // namespace thalweg

#endif
