#include "topic.hpp"

#include "consumer.hpp"
#include "producer.hpp"
#include "translate.hpp"

namespace thalweg_diaspora {

using nlohmann::json;

namespace {

/* One of Diaspora's, or what it takes where nothing is said if it has none of that kind. */
template <class Kind> Kind known(const json &described)
{
    try {
        return Kind::FromMetadata(diaspora::Metadata(described));
    } catch (const diaspora::Exception &) {
        return Kind{};
    }
}

} // namespace

Topic::Topic(std::shared_ptr<ThalwegDriver> driver, thalweg::TopicHandle native)
    : driver_(std::move(driver)), native_(std::move(native)),
      described_(native_.describe().json<json>())
{
    for (size_t index = 0; index < thalweg::compat::partition_count(described_); index++)
        partitions_.push_back(partition(index));
}

void Topic::use(Own own)
{
    own_ = std::move(own);
    if (own_.selector)
        own_.selector->setPartitions(partitions_);
}

diaspora::PartitionInfo Topic::partition(size_t index) const
{
    return diaspora::PartitionInfo(
        thalweg::compat::partition_of(described_, index, driver_->address()));
}

diaspora::Validator Topic::validator() const
{
    if (own_.validator)
        return own_.validator;
    return known<diaspora::Validator>(described_components(definition()).at("validator"));
}

diaspora::PartitionSelector Topic::selector() const
{
    if (own_.selector)
        return own_.selector;
    auto selector = known<diaspora::PartitionSelector>(
        described_components(definition()).at("partition_selector"));
    selector.setPartitions(partitions_);
    return selector;
}

diaspora::Serializer Topic::serializer() const
{
    if (own_.serializer)
        return own_.serializer;
    return known<diaspora::Serializer>(described_components(definition()).at("serializer"));
}

std::shared_ptr<diaspora::ProducerInterface>
Topic::makeProducer(std::string_view name, diaspora::BatchSize batch_size,
                    diaspora::MaxNumBatches max_batch, diaspora::Ordering ordering,
                    std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
                    diaspora::Metadata options)
{
    if (!thread_pool)
        thread_pool = driver_->defaultThreadPool();
    return translated([&] {
        return std::make_shared<Producer>(shared_from_this(), std::string(name), batch_size,
                                          max_batch, ordering, std::move(thread_pool),
                                          options.json());
    });
}

std::shared_ptr<diaspora::ConsumerInterface>
Topic::makeConsumer(std::string_view name, diaspora::BatchSize batch_size,
                    diaspora::MaxNumBatches max_batch,
                    std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
                    diaspora::DataAllocator data_allocator, diaspora::DataSelector data_selector,
                    const std::vector<size_t> &targets, diaspora::Metadata options)
{
    if (!thread_pool)
        thread_pool = driver_->defaultThreadPool();
    return translated([&] {
        const std::string label(name);
        // What its predecessor here acknowledged is to count.
        driver_->consumers().settle(label);
        auto consumer = std::make_shared<Consumer>(
            shared_from_this(), label, batch_size, max_batch, std::move(thread_pool),
            std::move(data_allocator), std::move(data_selector), targets, options.json());
        driver_->consumers().remember(label, consumer->pulls());
        return consumer;
    });
}

} // namespace thalweg_diaspora
