/*
 * Consumers of the driver, and the events that they give.
 */
#ifndef THALWEG_DIASPORA_CONSUMER_HPP
#define THALWEG_DIASPORA_CONSUMER_HPP

#include "topic.hpp"

#include <thalweg/compat/pulls.hpp>
#include <thalweg/thalweg.hpp>

#include <diaspora/Consumer.hpp>
#include <diaspora/Event.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thalweg_diaspora {

/* An event; without one of Thalweg's it stands for the end of the topic. */
class Event : public diaspora::EventInterface {
public:
    Event(std::optional<thalweg::Event> native, diaspora::DataView data,
          std::shared_ptr<thalweg::compat::Pulls> pulls, std::shared_ptr<Topic> topic)
        : native_(std::move(native)), data_(std::move(data)), pulls_(std::move(pulls)),
          topic_(std::move(topic))
    {
    }

    /* Parsed when it is first asked for. */
    const diaspora::Metadata &metadata() const override;
    const diaspora::DataView &data() const override { return data_; }
    diaspora::PartitionInfo partition() const override;
    diaspora::EventID id() const override
    {
        return native_ ? native_->id().offset : diaspora::NoMoreEvents;
    }

    /*
     * This event and all before it in its partition are done with. Never moves
     * back. Does not block; durable a moment later, and at the latest when the
     * consumer has gone, or another one of that name is opened here.
     */
    void acknowledge() const override;

private:
    const std::optional<thalweg::Event> native_;
    const diaspora::DataView data_;
    const std::shared_ptr<thalweg::compat::Pulls> pulls_;
    const std::shared_ptr<Topic> topic_;
    mutable std::once_flag parsed_;
    mutable diaspora::Metadata metadata_;
};

class Consumer : public diaspora::ConsumerInterface {
public:
    Consumer(std::shared_ptr<Topic> topic, std::string name, diaspora::BatchSize batch_size,
             diaspora::MaxNumBatches max_batches,
             std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
             diaspora::DataAllocator allocator, diaspora::DataSelector selector,
             const std::vector<size_t> &targets, const nlohmann::json &options);
    ~Consumer() override;

    const std::string &name() const override { return name_; }
    diaspora::BatchSize batchSize() const override { return batch_size_; }
    diaspora::MaxNumBatches maxNumBatches() const override { return max_batches_; }
    std::shared_ptr<diaspora::ThreadPoolInterface> threadPool() const override
    {
        return thread_pool_;
    }
    std::shared_ptr<diaspora::TopicHandleInterface> topic() const override { return topic_; }
    const diaspora::DataAllocator &dataAllocator() const override { return allocator_; }
    const diaspora::DataSelector &dataSelector() const override { return selector_; }

    /*
     * Hands event after event to the processor, on the pool's threads, and nothing
     * each time that none came for `timeout_ms`, until the topic ends, there were
     * `max_events`, or it throws StopEventProcessor. Waits for the last of them;
     * what one of them throws besides is thrown here.
     */
    void process(diaspora::EventProcessor processor, int timeout_ms,
                 diaspora::NumEvents max_events,
                 std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool) override;

    /* No more events: pulls that wait are at the end. */
    void unsubscribe() override;

    /* A negative timeout of the future is for ever, and 0 only looks. */
    diaspora::Future<std::optional<diaspora::Event>> pull() override;

    const std::shared_ptr<thalweg::compat::Pulls> &pulls() const { return pulls_; }

private:
    /* What of the data is wanted, and how much space the program makes for it. */
    thalweg::Consumer opened(const std::vector<size_t> &targets, const nlohmann::json &options);

    const std::shared_ptr<Topic> topic_;
    const std::string name_;
    const diaspora::BatchSize batch_size_;
    const diaspora::MaxNumBatches max_batches_;
    const std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool_;
    const diaspora::DataAllocator allocator_;
    const diaspora::DataSelector selector_;
    const std::shared_ptr<thalweg::compat::Pulls> pulls_;
};

} // namespace thalweg_diaspora

#endif
