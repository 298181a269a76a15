#ifndef MOFKA_PRODUCER_HPP
#define MOFKA_PRODUCER_HPP

#include <mofka/BatchSize.hpp>
#include <mofka/Data.hpp>
#include <mofka/EventID.hpp>
#include <mofka/Exception.hpp>
#include <mofka/Future.hpp>
#include <mofka/InvalidMetadata.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/Ordering.hpp>
#include <mofka/ThreadPool.hpp>
#include <mofka/Topic.hpp>

#include <thalweg/compat/options.hpp>
#include <thalweg/thalweg.hpp>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace mofka {

/* Appends events to a topic. A shared handle; the last one waits until all is stored. */
class Producer {
public:
    /* One that stands for nothing. */
    Producer() = default;
    Producer(std::nullptr_t) {}

    operator bool() const noexcept { return static_cast<bool>(self_); }

    const std::string &name() const { return self_->name; }
    BatchSize batchSize() const { return self_->batch_size; }
    MaxBatch maxBatch() const { return self_->max_batch; }
    ThreadPool threadPool() const { return self_->thread_pool; }
    TopicHandle topic() const;

    /*
     * Pushes an event; the future is its id. Metadata and data are copied, and
     * the program's own again when it returns: programs let go of their buffers
     * at one time or another. Data with a callback is not copied, but kept until it
     * is stored; nor is any if the producer's option `borrow`, or the environment's
     * THALWEG_MOFKA_BORROW=1, says that the program keeps its buffers as they are
     * until the future is resolved or a flush that began later is through. A
     * partition that is asked for counts modulo their number.
     *
     * Blocks at the producer's budget only. Throws InvalidMetadata if the event is
     * refused. A topic without partitions is waited for.
     */
    Future<EventID> push(Metadata metadata, Data data = Data{},
                         std::optional<size_t> partition = std::nullopt) const
    {
        auto pushed = std::make_shared<Pushed>(self_->push(metadata, data, partition));
        return Future<EventID>([pushed] { return pushed->wait(); },
                               [pushed] { return pushed->completed(); });
    }

    /* Waits until everything that was pushed is stored, and throws if something was not. */
    void flush() const
    {
        detail::translated([this] { self_->native.flush().get(); });
    }

private:
    friend class TopicHandle;

    /* How long a push waits for a topic to get its first partition, and between looks. */
    static constexpr std::chrono::seconds partition_wait{120};
    static constexpr std::chrono::milliseconds look_every{50};

    /* A push, to be waited for by whoever has a copy of its future. */
    class Pushed {
    public:
        explicit Pushed(thalweg::Future<thalweg::EventID> future) : future_(std::move(future)) {}

        EventID wait()
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            return detail::translated([this] { return future_.wait()->offset; });
        }
        bool completed() const
        {
            return detail::translated([this] { return future_.completed(); });
        }

    private:
        std::mutex mutex_;
        thalweg::Future<thalweg::EventID> future_;
    };

    struct Held {
        Held(std::shared_ptr<detail::Topic> topic_, std::string name_, BatchSize batch_size_,
             MaxBatch max_batch_, ThreadPool thread_pool_, Ordering ordering,
             const nlohmann::json &options)
            : topic(std::move(topic_)), name(std::move(name_)), batch_size(batch_size_),
              max_batch(max_batch_), thread_pool(std::move(thread_pool_)),
              borrows(asks_to_borrow(options)),
              native(topic->handle.producer(thalweg::Options(thalweg::compat::producer_options(
                  options, batch_size.value, max_batch.value, ordering == Ordering::Loose))))
        {
        }

        thalweg::Future<thalweg::EventID> push(const Metadata &metadata, const Data &data,
                                               std::optional<size_t> partition)
        {
            const auto deadline = std::chrono::steady_clock::now() + partition_wait;
            while (true) {
                try {
                    return native.push(message(metadata, data, partition));
                } catch (const thalweg::UnknownPartition &error) {
                    if (topic->handle.partitions() > 0 ||
                        std::chrono::steady_clock::now() >= deadline)
                        throw Exception(error.what());
                } catch (const thalweg::InvalidArgument &error) {
                    throw InvalidMetadata(error.what());
                } catch (const thalweg::Error &error) {
                    throw Exception(error.what());
                }
                while (topic->handle.partitions() == 0 &&
                       std::chrono::steady_clock::now() < deadline) {
                    std::this_thread::sleep_for(look_every);
                    detail::translated([this] { return topic->handle.describe(); });
                }
            }
        }

        thalweg::Message message(const Metadata &metadata, const Data &data,
                                 std::optional<size_t> partition) const
        {
            thalweg::Message message;
            message.metadata = thalweg::Metadata(metadata.string());
            message.data = view(data);
            const size_t count = topic->handle.partitions();
            if (partition && count > 0)
                message.partition = static_cast<uint32_t>(*partition % count);
            return message;
        }

        /* The data, and who keeps it: a push copies what nobody does. */
        thalweg::DataView view(const Data &data) const
        {
            std::vector<thalweg::DataView::Segment> segments;
            for (const Data::Segment &segment : data.segments())
                segments.push_back({segment.ptr, segment.size});
            std::shared_ptr<const void> owner;
            if (data.owns())
                owner = data.self_;
            const thalweg::DataView view(std::move(segments), std::move(owner));
            return borrows ? view.borrow() : view;
        }

        static bool asks_to_borrow(const nlohmann::json &options)
        {
            const char *environment = std::getenv("THALWEG_MOFKA_BORROW");
            if (options.is_object() && options.contains("borrow"))
                return options["borrow"] == true;
            return environment != nullptr && std::string_view(environment) == "1";
        }

        const std::shared_ptr<detail::Topic> topic;
        const std::string name;
        const BatchSize batch_size;
        const MaxBatch max_batch;
        const ThreadPool thread_pool;
        const bool borrows;
        thalweg::Producer native;
    };

    explicit Producer(std::shared_ptr<Held> held) : self_(std::move(held)) {}

    std::shared_ptr<Held> self_;
};

} // namespace mofka

#endif
