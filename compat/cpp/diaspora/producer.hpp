/*
 * Producers of the driver.
 */
#ifndef THALWEG_DIASPORA_PRODUCER_HPP
#define THALWEG_DIASPORA_PRODUCER_HPP

#include "topic.hpp"

#include <thalweg/thalweg.hpp>

#include <diaspora/Producer.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace thalweg_diaspora {

/* Letting go of it waits until everything that was pushed is stored. */
class Producer : public diaspora::ProducerInterface {
public:
    Producer(std::shared_ptr<Topic> topic, std::string name, diaspora::BatchSize batch_size,
             diaspora::MaxNumBatches max_batches, diaspora::Ordering ordering,
             std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
             const nlohmann::json &options);

    const std::string &name() const override { return name_; }
    diaspora::BatchSize batchSize() const override { return batch_size_; }
    diaspora::MaxNumBatches maxNumBatches() const override { return max_batches_; }
    diaspora::Ordering ordering() const override { return ordering_; }
    std::shared_ptr<diaspora::ThreadPoolInterface> threadPool() const override
    {
        return thread_pool_;
    }
    std::shared_ptr<diaspora::TopicHandleInterface> topic() const override { return topic_; }

    /*
     * The view is kept until its data is stored; memory that it does not free by
     * itself has to stay until the future is resolved, or a flush that began later.
     * Throws InvalidMetadata if the event is refused.
     */
    diaspora::Future<std::optional<diaspora::EventID>>
    push(diaspora::Metadata metadata, diaspora::DataView data,
         std::optional<size_t> partition) override;

    diaspora::Future<std::optional<diaspora::Flushed>> flush() override;

private:
    thalweg::Future<thalweg::EventID> pushed(const diaspora::Metadata &metadata,
                                             const diaspora::DataView &data,
                                             std::optional<size_t> partition);
    std::optional<uint32_t> chosen(const diaspora::Metadata &metadata,
                                   std::optional<size_t> partition) const;

    const std::shared_ptr<Topic> topic_;
    const std::string name_;
    const diaspora::BatchSize batch_size_;
    const diaspora::MaxNumBatches max_batches_;
    const diaspora::Ordering ordering_;
    const std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool_;
    thalweg::Producer native_;
};

} // namespace thalweg_diaspora

#endif
