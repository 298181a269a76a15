#include "producer.hpp"

#include "translate.hpp"

#include <thalweg/compat/options.hpp>

#include <diaspora/InvalidMetadata.hpp>

#include <chrono>
#include <mutex>
#include <thread>

namespace thalweg_diaspora {

namespace {

/* How long a push waits for a topic to get its first partition, and between looks. */
constexpr std::chrono::seconds partition_wait{120};
constexpr std::chrono::milliseconds look_every{50};

/* A native future that several copies of one of Diaspora's stand for. */
template <class Result> struct Shared {
    explicit Shared(thalweg::Future<Result> future_) : future(std::move(future_)) {}

    /* Waits up to `timeout_ms`, whoever else does. Negative: as long as it takes. */
    std::optional<Result> wait(int timeout_ms)
    {
        using namespace std::chrono;
        const auto begin = steady_clock::now();
        std::unique_lock<std::timed_mutex> lock(mutex, std::defer_lock);
        if (timeout_ms < 0)
            lock.lock();
        else if (!lock.try_lock_for(milliseconds(timeout_ms)))
            return std::nullopt;
        int64_t left_ms = timeout_ms;
        if (timeout_ms > 0) {
            const auto passed = duration_cast<milliseconds>(steady_clock::now() - begin).count();
            left_ms = passed < timeout_ms ? timeout_ms - passed : 0;
        }
        return future.wait(left_ms);
    }

    std::timed_mutex mutex;
    thalweg::Future<Result> future;
};

template <class Result, class Made, class Make>
diaspora::Future<std::optional<Made>> shared(thalweg::Future<Result> future, Make make)
{
    auto state = std::make_shared<Shared<Result>>(std::move(future));
    return diaspora::Future<std::optional<Made>>(
        [state, make](int timeout_ms) -> std::optional<Made> {
            const std::optional<Result> result =
                translated([&] { return state->wait(timeout_ms); });
            if (!result)
                return std::nullopt;
            return make(*result);
        },
        [state] { return translated([&] { return state->future.completed(); }); });
}

} // namespace

Producer::Producer(std::shared_ptr<Topic> topic, std::string name, diaspora::BatchSize batch_size,
                   diaspora::MaxNumBatches max_batches, diaspora::Ordering ordering,
                   std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
                   const nlohmann::json &options)
    : topic_(std::move(topic)), name_(std::move(name)), batch_size_(batch_size),
      max_batches_(max_batches), ordering_(ordering), thread_pool_(std::move(thread_pool)),
      native_(topic_->native().producer(thalweg::Options(thalweg::compat::producer_options(
          options, batch_size.value, max_batches.value, ordering == diaspora::Ordering::Loose))))
{
}

diaspora::Future<std::optional<diaspora::EventID>>
Producer::push(diaspora::Metadata metadata, diaspora::DataView data,
               std::optional<size_t> partition)
{
    if (topic_->own().validator)
        topic_->own().validator->validate(metadata, data);
    return shared<thalweg::EventID, diaspora::EventID>(
        pushed(metadata, data, partition),
        [](const thalweg::EventID &id) { return static_cast<diaspora::EventID>(id.offset); });
}

thalweg::Future<thalweg::EventID> Producer::pushed(const diaspora::Metadata &metadata,
                                                   const diaspora::DataView &data,
                                                   std::optional<size_t> partition)
{
    const auto deadline = std::chrono::steady_clock::now() + partition_wait;
    const thalweg::Metadata text = translated([&] { return thalweg::Metadata(metadata.dump()); });
    const bool some = data.size() > 0;
    while (true) {
        try {
            // The view is what keeps the memory: it has the program's callback.
            auto owner = some ? std::make_shared<diaspora::DataView>(data) : nullptr;
            return native_.push(text, thalweg::DataView(pieces_of(data), std::move(owner)),
                                chosen(metadata, partition));
        } catch (const thalweg::UnknownPartition &error) {
            if (topic_->native().partitions() > 0 || std::chrono::steady_clock::now() >= deadline)
                throw diaspora::Exception(error.what());
        } catch (const thalweg::InvalidArgument &error) {
            throw diaspora::InvalidMetadata(error.what());
        } catch (const thalweg::Error &error) {
            throw diaspora::Exception(error.what());
        }
        while (topic_->native().partitions() == 0 && std::chrono::steady_clock::now() < deadline) {
            std::this_thread::sleep_for(look_every);
            translated([&] { return topic_->native().describe(); });
        }
    }
}

std::optional<uint32_t> Producer::chosen(const diaspora::Metadata &metadata,
                                         std::optional<size_t> partition) const
{
    if (topic_->own().selector) {
        const std::lock_guard<std::mutex> lock(topic_->selecting());
        return static_cast<uint32_t>(
            topic_->own().selector->selectPartitionFor(metadata, partition));
    }
    const size_t count = topic_->native().partitions();
    if (!partition || count == 0)
        return std::nullopt;
    return static_cast<uint32_t>(*partition % count);
}

diaspora::Future<std::optional<diaspora::Flushed>> Producer::flush()
{
    return shared<thalweg::Flushed, diaspora::Flushed>(
        translated([&] { return native_.flush(); }),
        [](const thalweg::Flushed &) { return diaspora::Flushed{}; });
}

} // namespace thalweg_diaspora
