#include "consumer.hpp"

#include "translate.hpp"

#include <thalweg/compat/landing.hpp>
#include <thalweg/compat/options.hpp>
#include <thalweg/compat/processing.hpp>

#include <algorithm>

namespace thalweg_diaspora {

using Landing = thalweg::compat::Landing<diaspora::DataView>;

const diaspora::Metadata &Event::metadata() const
{
    std::call_once(parsed_, [this] {
        if (native_)
            metadata_ = metadata_of(native_->metadataView());
    });
    return metadata_;
}

diaspora::PartitionInfo Event::partition() const
{
    return native_ ? topic_->partition(native_->partition()) : diaspora::PartitionInfo("{}");
}

void Event::acknowledge() const
{
    if (!native_)
        throw diaspora::Exception("the end of a topic is not an event that can be acknowledged");
    translated([this] { pulls_->acknowledge(*native_); });
}

Consumer::Consumer(std::shared_ptr<Topic> topic, std::string name,
                   diaspora::BatchSize batch_size, diaspora::MaxNumBatches max_batches,
                   std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool,
                   diaspora::DataAllocator allocator, diaspora::DataSelector selector,
                   const std::vector<size_t> &targets, const nlohmann::json &options)
    : topic_(std::move(topic)), name_(std::move(name)), batch_size_(batch_size),
      max_batches_(max_batches), thread_pool_(std::move(thread_pool)),
      allocator_(std::move(allocator)), selector_(std::move(selector)),
      pulls_(std::make_shared<thalweg::compat::Pulls>(opened(targets, options)))
{
}

Consumer::~Consumer()
{
    // Events may keep the pulls; no more come.
    pulls_->finish();
}

thalweg::Consumer Consumer::opened(const std::vector<size_t> &targets,
                                   const nlohmann::json &options)
{
    thalweg::DataSelector selector;
    if (selector_)
        selector = [wanted = selector_, name = topic_->name()](
                       const thalweg::Metadata &metadata, const thalweg::DataDescriptor &all) {
            const diaspora::DataDescriptor whole(name, static_cast<size_t>(all.size()));
            return narrowed(all, wanted(metadata_of(metadata.string()), whole));
        };
    thalweg::DataAllocator allocator;
    if (selector_ && allocator_)
        allocator = [allocate = allocator_, name = topic_->name()](
                        const thalweg::Metadata &metadata, const thalweg::DataDescriptor &chosen) {
            return Landing::target(std::make_shared<Landing>(
                allocate(metadata_of(metadata.string()), described(name, chosen))));
        };
    const auto &driver = dynamic_cast<const ThalwegDriver &>(*topic_->driver());
    const std::string native = thalweg::compat::consumer_options(
        options, driver.start_from(), targets, static_cast<bool>(selector_));
    return topic_->native().consumer(name_, thalweg::Options(native), selector, allocator);
}

diaspora::Future<std::optional<diaspora::Event>> Consumer::pull()
{
    struct Pulled {
        std::shared_ptr<thalweg::compat::Pull> pull;
        std::once_flag once;
        diaspora::Event event;
    };
    auto pulled = std::make_shared<Pulled>();
    pulled->pull = pulls_->begin();
    const auto make = [topic = topic_, pulls = pulls_, has_allocator = bool(allocator_)](
                          const std::optional<thalweg::Event> &native) {
        diaspora::DataView data;
        if (native) {
            const thalweg::DataView came = native->data();
            if (!came.empty() && has_allocator) {
                data = Landing::of(came);
            } else if (!came.empty()) {
                // It lies in memory of Thalweg's, which the view keeps.
                std::vector<diaspora::DataView::Segment> segments;
                for (const thalweg::DataView::Segment &segment : came.segments())
                    segments.push_back({segment.ptr, segment.size});
                data = diaspora::DataView(std::move(segments), nullptr, [came](void *) {});
            }
        }
        return diaspora::Event(std::make_shared<Event>(native, std::move(data), pulls, topic));
    };
    return diaspora::Future<std::optional<diaspora::Event>>(
        [pulled, make](int timeout_ms) -> std::optional<diaspora::Event> {
            if (!translated([&] { return pulled->pull->wait(timeout_ms); }))
                return std::nullopt;
            std::call_once(pulled->once, [&] { pulled->event = make(pulled->pull->event()); });
            return pulled->event;
        },
        [pulled] { return translated([&] { return pulled->pull->completed(); }); });
}

void Consumer::unsubscribe()
{
    pulls_->finish();
}

void Consumer::process(diaspora::EventProcessor processor, int timeout_ms,
                       diaspora::NumEvents max_events,
                       std::shared_ptr<diaspora::ThreadPoolInterface> thread_pool)
{
    if (!thread_pool)
        thread_pool = thread_pool_;
    thalweg::compat::Processing<diaspora::StopEventProcessor> processing;
    const size_t ahead = 2 * std::max<size_t>(thread_pool->threadCount().count, 1);
    for (size_t count = 0; count < max_events.value && processing.space(ahead); count++) {
        const std::optional<diaspora::Event> event = pull().wait(timeout_ms);
        if (event && event->id() == diaspora::NoMoreEvents)
            break;
        processing.begin();
        thread_pool->pushWork([&processing, &processor, event] {
            processing.run([&] { processor(event); });
        });
    }
    processing.finish();
}

} // namespace thalweg_diaspora
