/*
 * A topic of the driver: where producers and consumers come from.
 */
#ifndef THALWEG_DIASPORA_TOPIC_HPP
#define THALWEG_DIASPORA_TOPIC_HPP

#include "components.hpp"
#include "driver.hpp"

#include <thalweg/thalweg.hpp>

#include <diaspora/TopicHandle.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace thalweg_diaspora {

class Topic : public diaspora::TopicHandleInterface, public std::enable_shared_from_this<Topic> {
public:
    Topic(std::shared_ptr<ThalwegDriver> driver, thalweg::TopicHandle native);

    const std::string &name() const override { return native_.name(); }
    std::shared_ptr<diaspora::DriverInterface> driver() const override { return driver_; }

    /* Those that there were when it was opened. */
    const std::vector<diaspora::PartitionInfo> &partitions() const override
    {
        return partitions_;
    }

    diaspora::Validator validator() const override;
    diaspora::PartitionSelector selector() const override;
    diaspora::Serializer serializer() const override;

    /*
     * Options beyond those of the interface: `identity`, a name under which the
     * producer keeps its identity across restarts, and which fences whoever had it
     * before; `budget_bytes`, `durability`, `journal`, `linger_ms`, and in seconds
     * `ack_timeout`, `block_timeout`.
     */
    std::shared_ptr<diaspora::ProducerInterface>
    makeProducer(std::string_view name, diaspora::BatchSize batch_size,
                 diaspora::MaxNumBatches max_batch, diaspora::Ordering ordering,
                 std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
                 diaspora::Metadata options) override;

    /* Options beyond those of the interface: `start_from`, `credit_bytes`. */
    std::shared_ptr<diaspora::ConsumerInterface>
    makeConsumer(std::string_view name, diaspora::BatchSize batch_size,
                 diaspora::MaxNumBatches max_batch,
                 std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
                 diaspora::DataAllocator data_allocator, diaspora::DataSelector data_selector,
                 const std::vector<size_t> &targets, diaspora::Metadata options) override;

    nlohmann::json definition() const { return described_.at("definition"); }
    diaspora::PartitionInfo partition(size_t index) const;

    /* Takes the program's own components. */
    void use(Own own);
    const Own &own() const { return own_; }
    /* Held while the program's own partition selector is asked. */
    std::mutex &selecting() { return selecting_; }

    const thalweg::TopicHandle &native() const { return native_; }

private:
    const std::shared_ptr<ThalwegDriver> driver_;
    const thalweg::TopicHandle native_;
    const nlohmann::json described_;
    std::vector<diaspora::PartitionInfo> partitions_;
    Own own_;
    std::mutex selecting_;
};

} // namespace thalweg_diaspora

#endif
