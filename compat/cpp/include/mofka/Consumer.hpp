#ifndef MOFKA_CONSUMER_HPP
#define MOFKA_CONSUMER_HPP

#include <mofka/BatchSize.hpp>
#include <mofka/Data.hpp>
#include <mofka/DataBroker.hpp>
#include <mofka/DataSelector.hpp>
#include <mofka/Event.hpp>
#include <mofka/EventID.hpp>
#include <mofka/EventProcessor.hpp>
#include <mofka/Exception.hpp>
#include <mofka/Future.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/NumEvents.hpp>
#include <mofka/ThreadPool.hpp>
#include <mofka/Topic.hpp>

#include <thalweg/compat/landing.hpp>
#include <thalweg/compat/processing.hpp>
#include <thalweg/compat/pulls.hpp>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace mofka {

/* Reads a topic's events, each partition's in order. A shared handle. */
class Consumer {
public:
    /* One that stands for nothing. */
    Consumer() = default;
    Consumer(std::nullptr_t) {}

    operator bool() const noexcept { return static_cast<bool>(self_); }

    const std::string &name() const { return self_->name; }
    BatchSize batchSize() const { return self_->batch_size; }
    MaxBatch maxBatch() const { return self_->max_batch; }
    ThreadPool threadPool() const { return self_->thread_pool; }
    TopicHandle topic() const;
    DataBroker dataBroker() const { return self_->broker; }
    DataSelector dataSelector() const { return self_->selector; }

    /*
     * The future of the next event, which returns at once. Waiting throws what a
     * selector or a broker threw. Events go to pulls in the order of the pulls;
     * the event of one that nobody took is the next one's.
     */
    Future<Event> pull() const
    {
        const std::shared_ptr<Held> held = self_;
        const auto pulled = std::make_shared<Pulled>(held->pulls->begin());
        return Future<Event>(
            [held, pulled] {
                detail::translated([&] { return pulled->pull->wait(-1); });
                std::call_once(pulled->once,
                               [&] { pulled->event = held->event_of(pulled->pull->event()); });
                return pulled->event;
            },
            [pulled] { return detail::translated([&] { return pulled->pull->completed(); }); });
    }

    /*
     * Calls the processor with event after event, in the pool, until the topic
     * ends, `maxEvents` were processed, or it throws StopEventProcessor. Waits for
     * the last of them; what one of them throws besides is thrown here.
     */
    void process(EventProcessor processor, ThreadPool threadPool = ThreadPool{},
                 NumEvents maxEvents = NumEvents::Infinity()) const
    {
        thalweg::compat::Processing<StopEventProcessor> processing;
        const size_t ahead = 2 * std::max<size_t>(threadPool.threadCount().count, 1);
        for (size_t count = 0; count < maxEvents.value && processing.space(ahead); count++) {
            const Event event = pull().wait();
            if (event.id() == NoMoreEvents)
                break;
            processing.begin();
            threadPool.pushWork([&processing, &processor, event] {
                processing.run([&] { processor(event); });
            });
        }
        processing.finish();
    }

    void operator|(EventProcessor processor) const &&
    {
        process(std::move(processor), threadPool());
    }

private:
    friend class TopicHandle;

    struct Pulled {
        explicit Pulled(std::shared_ptr<thalweg::compat::Pull> pull_) : pull(std::move(pull_)) {}
        const std::shared_ptr<thalweg::compat::Pull> pull;
        std::once_flag once;
        Event event;
    };

    struct Held {
        ~Held()
        {
            // Events may keep the pulls; no more come.
            if (pulls)
                pulls->finish();
        }

        Event event_of(const std::optional<thalweg::Event> &pulled) const
        {
            auto made = std::make_shared<Event::Held>();
            if (pulled) {
                made->event = pulled;
                const std::string_view metadata = pulled->metadataView();
                if (!metadata.empty())
                    made->metadata = Metadata(metadata);
                made->data = data_of(*pulled);
                made->pulls = pulls;
                made->describe = [topic = topic](uint32_t index) {
                    return topic->partition(index);
                };
            }
            return Event(std::move(made));
        }

        Data data_of(const thalweg::Event &pulled) const
        {
            const thalweg::DataView data = pulled.data();
            if (data.empty())
                return Data{};
            if (broker)
                return thalweg::compat::Landing<Data>::of(data);
            // It lies in memory of Thalweg's, which the view keeps.
            std::vector<Data::Segment> segments;
            for (const thalweg::DataView::Segment &segment : data.segments())
                segments.push_back({segment.ptr, segment.size});
            return Data(std::move(segments), nullptr, [data](Data::Context) {});
        }

        std::shared_ptr<detail::Topic> topic;
        std::string name;
        BatchSize batch_size = BatchSize::Adaptive();
        MaxBatch max_batch{2};
        ThreadPool thread_pool;
        DataBroker broker;
        DataSelector selector;
        std::shared_ptr<thalweg::compat::Pulls> pulls;
    };

    explicit Consumer(std::shared_ptr<Held> held) : self_(std::move(held)) {}

    std::shared_ptr<Held> self_;
};

} // namespace mofka

#endif
