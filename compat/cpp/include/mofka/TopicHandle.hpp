#ifndef MOFKA_TOPIC_HANDLE_HPP
#define MOFKA_TOPIC_HANDLE_HPP

#include <mofka/ArgsUtil.hpp>
#include <mofka/Consumer.hpp>
#include <mofka/Exception.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/Ordering.hpp>
#include <mofka/Producer.hpp>
#include <mofka/Serializer.hpp>
#include <mofka/Validator.hpp>

#include <thalweg/compat/options.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace mofka {

namespace detail {

template <> struct Takes<std::string_view> {
    template <class Given>
    static constexpr bool from = std::is_convertible_v<const Given &, std::string_view>;
};

template <> struct Takes<ThreadPool> {
    template <class Given>
    static constexpr bool from = std::is_same_v<std::decay_t<Given>, ThreadPool> ||
                                 std::is_same_v<std::decay_t<Given>, ThreadCount>;
};

template <class Given, class Returned>
constexpr bool returns()
{
    using Metadata = const mofka::Metadata &;
    using Descriptor = const DataDescriptor &;
    if constexpr (std::is_invocable_v<const Given &, Metadata, Descriptor>)
        return std::is_same_v<std::decay_t<std::invoke_result_t<const Given &, Metadata, Descriptor>>,
                              Returned>;
    else
        return false;
}

template <> struct Takes<DataSelector> {
    template <class Given> static constexpr bool from = returns<Given, DataDescriptor>();
};

template <> struct Takes<DataBroker> {
    template <class Given> static constexpr bool from = returns<Given, Data>();
};

} // namespace detail

/* A topic that exists: where producers and consumers come from. A shared handle. */
class TopicHandle {
public:
    /* One that stands for nothing. */
    TopicHandle() = default;
    TopicHandle(std::nullptr_t) {}

    operator bool() const noexcept { return static_cast<bool>(self_); }

    const std::string &name() const { return self_->handle.name(); }

    /*
     * Opens a producer. Options in any order: a name, which is a label, BatchSize,
     * MaxBatch{2}, ThreadPool or ThreadCount, Ordering, Metadata with what
     * thalweg::compat::producer_options knows.
     */
    template <typename... Options> Producer producer(Options &&...opts) const
    {
        using detail::option;
        const std::string name(option<std::string_view>("", opts...));
        return detail::translated([&] {
            return Producer(std::make_shared<Producer::Held>(
                self_, name, option(BatchSize::Adaptive(), opts...),
                option(MaxBatch{2}, opts...), option(ThreadPool{}, opts...),
                option(Ordering::Strict, opts...), option(Metadata{}, opts...).json()));
        });
    }

    /*
     * Opens a consumer, whose positions are kept under `name`; one of a new name
     * begins with the first event. Several of one name each get everything.
     * Options in any order: a DataSelector, a DataBroker (or what can be called
     * like one), a std::vector<size_t> of the partitions to read, BatchSize,
     * MaxBatch, ThreadPool or ThreadCount, Metadata with what
     * thalweg::compat::consumer_options knows. Without a selector no data comes.
     */
    template <typename... Options>
    Consumer consumer(std::string_view name, Options &&...opts) const
    {
        using detail::option;
        auto made = std::make_shared<Consumer::Held>();
        made->topic = self_;
        made->name = std::string(name);
        made->batch_size = option(BatchSize::Adaptive(), opts...);
        made->max_batch = option(MaxBatch{2}, opts...);
        made->thread_pool = option(ThreadPool{}, opts...);
        made->broker = option(DataBroker{}, opts...);
        made->selector = option(DataSelector{}, opts...);
        detail::translated([&] {
            open(*made, option(std::vector<size_t>{}, opts...),
                 option(Metadata{}, opts...).json());
        });
        return Consumer(std::move(made));
    }

    /* The partitions that there were when it was opened. */
    const std::vector<PartitionInfo> &partitions() const { return self_->partitions; }

    Validator validator() const
    {
        return Validator::FromMetadata(
            Metadata(self_->part(thalweg::compat::Part::Validator, "validator")));
    }
    PartitionSelector selector() const
    {
        return PartitionSelector::FromMetadata(Metadata(
            self_->part(thalweg::compat::Part::PartitionSelector, "partition_selector")));
    }
    Serializer serializer() const
    {
        return Serializer::FromMetadata(
            Metadata(self_->part(thalweg::compat::Part::Serializer, "serializer")));
    }

    /* Ends the topic: behind all events, consumers get one whose id is NoMoreEvents. */
    void markAsComplete() const
    {
        detail::translated([this] {
            thalweg::Producer producer = self_->handle.producer();
            for (uint32_t index = 0; index < self_->handle.partitions(); index++) {
                thalweg::Message message;
                message.headers.emplace_back(thalweg::compat::complete, "");
                message.tombstone = true;
                message.partition = index;
                producer.push(message);
            }
            producer.flush().get();
        });
    }

private:
    friend class MofkaDriver;
    friend class Producer;
    friend class Consumer;

    explicit TopicHandle(std::shared_ptr<detail::Topic> topic) : self_(std::move(topic)) {}

    void open(Consumer::Held &made, const std::vector<size_t> &targets,
              const nlohmann::json &options) const
    {
        // What its predecessor here acknowledged is to count.
        self_->connection->consumers.settle(made.name);
        thalweg::DataSelector selector;
        if (made.selector)
            selector = [wanted = made.selector, name = name()](
                           const thalweg::Metadata &metadata,
                           const thalweg::DataDescriptor &all) {
                return wanted(Metadata(metadata.string()),
                              DataDescriptor::From(name, static_cast<size_t>(all.size())))
                    .view_;
            };
        thalweg::DataAllocator allocator;
        if (made.selector && made.broker)
            allocator = [broker = made.broker](const thalweg::Metadata &metadata,
                                               const thalweg::DataDescriptor &chosen) {
                auto landing = std::make_shared<thalweg::compat::Landing<Data>>(
                    broker(Metadata(metadata.string()), DataDescriptor(chosen)));
                return thalweg::compat::Landing<Data>::target(std::move(landing));
            };
        const std::string native = thalweg::compat::consumer_options(
            options, "", targets, static_cast<bool>(selector));
        made.pulls = std::make_shared<thalweg::compat::Pulls>(self_->handle.consumer(
            made.name, thalweg::Options(native), selector, allocator));
        self_->connection->consumers.remember(made.name, made.pulls);
    }

    std::shared_ptr<detail::Topic> self_;
};

inline TopicHandle Producer::topic() const
{
    return TopicHandle(self_->topic);
}

inline TopicHandle Consumer::topic() const
{
    return TopicHandle(self_->topic);
}

} // namespace mofka

#endif
