/*
 * Thalweg's C++17 interface: events on their way out. Include thalweg.hpp.
 */
#ifndef THALWEG_MESSAGE_HPP
#define THALWEG_MESSAGE_HPP

#include <thalweg/data.hpp>
#include <thalweg/error.hpp>
#include <thalweg/future.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace thalweg {

/* An event to be pushed, where metadata and data are not all. */
struct Message {
    Metadata metadata;
    DataView data;
    std::optional<uint32_t> partition;
    std::optional<std::string> key;
    std::vector<std::pair<std::string, std::string>> headers;
    uint64_t producer_time_ns = 0;
    bool tombstone = false;
};

namespace detail {

/* An event as thalweg.h takes it; what it is made of lives on until it is sent. */
class Outgoing {
public:
    Outgoing(const Metadata &metadata, const DataView &data)
    {
        message_.metadata = {metadata.string().data(), metadata.string().size()};
        pieces_.reserve(data.segments().size());
        for (const DataView::Segment &segment : data.segments())
            pieces_.push_back({segment.ptr, segment.size});
        message_.data = pieces_.data();
        message_.data_count = pieces_.size();
        message_.borrow = data.is_borrowed() ? 1 : 0;
        if (data.owner()) {
            owner_ = std::make_unique<std::shared_ptr<const void>>(data.owner());
            message_.release = &Outgoing::release;
            message_.release_context = owner_.get();
        }
    }

    explicit Outgoing(const Message &event) : Outgoing(event.metadata, event.data)
    {
        partition(event.partition);
        if (event.key)
            message_.key = {event.key->data(), event.key->size()};
        for (const auto &[name, value] : event.headers)
            headers_.push_back({{name.data(), name.size()}, {value.data(), value.size()}});
        message_.headers = headers_.data();
        message_.header_count = headers_.size();
        message_.producer_time_ns = event.producer_time_ns;
        message_.tombstone = event.tombstone ? 1 : 0;
    }

    Outgoing(const Outgoing &) = delete;
    Outgoing &operator=(const Outgoing &) = delete;

    void partition(std::optional<uint32_t> partition)
    {
        message_.has_partition = partition ? 1 : 0;
        message_.partition = partition.value_or(0);
    }

    /* Sends it by a function of thalweg.h, whose last arguments are `rest` and the future. */
    template <class Function, class Handle, class... Rest>
    thalweg_future *send(Function function, Handle *handle, Rest... rest)
    {
        thalweg_future *future = nullptr;
        call(function, handle, static_cast<const thalweg_message *>(&message_), rest..., &future);
        taken();
        return future;
    }

    const thalweg_message *get() const noexcept { return &message_; }

    /* It was sent: the owner is the library's from now on, or was released already. */
    void taken() { static_cast<void>(owner_.release()); }

private:
    static void release(void *context)
    {
        delete static_cast<std::shared_ptr<const void> *>(context);
    }

    thalweg_message message_{};
    std::vector<thalweg_bytes> pieces_;
    std::vector<thalweg_header> headers_;
    std::unique_ptr<std::shared_ptr<const void>> owner_;
};

/* The future of where an event is stored. */
inline Future<EventID> stored(thalweg_future *future)
{
    return Future<EventID>(future, [](thalweg_future *resolved) {
        thalweg_event_id id;
        call(thalweg_future_id, resolved, &id);
        return EventID(id);
    });
}

} // namespace detail

} // namespace thalweg

#endif
