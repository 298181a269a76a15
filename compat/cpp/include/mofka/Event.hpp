#ifndef MOFKA_EVENT_HPP
#define MOFKA_EVENT_HPP

#include <mofka/Data.hpp>
#include <mofka/EventID.hpp>
#include <mofka/Exception.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/PartitionSelector.hpp>

#include <thalweg/compat/landing.hpp>
#include <thalweg/compat/pulls.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace mofka {

/*
 * An event that was pulled: its metadata, and of its data what was selected. A
 * shared handle.
 */
class Event {
public:
    /* One that stands for nothing. */
    Event() = default;
    Event(std::nullptr_t) {}

    operator bool() const noexcept { return static_cast<bool>(self_); }

    Metadata metadata() const { return held().metadata; }
    Data data() const { return held().data; }

    PartitionInfo partition() const
    {
        return held().event ? held().describe(held().event->partition()) : PartitionInfo();
    }

    /* Its place in its partition; NoMoreEvents behind the last event. */
    EventID id() const { return held().event ? held().event->id().offset : NoMoreEvents; }

    /*
     * This event and all before it in its partition are done with: a consumer of
     * the same name begins behind it, also after the server was started again.
     * Never moves back. Does not block; durable a moment later, and at the latest
     * when the consumer has gone, or another one of that name is opened here.
     */
    void acknowledge() const
    {
        if (!held().event)
            throw Exception("Cannot acknowledge \"NoMoreEvents\"");
        detail::translated([this] { held().pulls->acknowledge(*held().event); });
    }

private:
    friend class Consumer;

    struct Held {
        std::optional<thalweg::Event> event;
        Metadata metadata;
        Data data;
        // Keeps what acknowledgements go by.
        std::shared_ptr<thalweg::compat::Pulls> pulls;
        std::function<PartitionInfo(uint32_t)> describe;
    };

    explicit Event(std::shared_ptr<Held> held) : self_(std::move(held)) {}

    const Held &held() const
    {
        if (!self_)
            throw Exception("the event stands for nothing");
        return *self_;
    }

    std::shared_ptr<Held> self_;
};

} // namespace mofka

#endif
