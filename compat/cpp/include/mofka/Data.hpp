#ifndef MOFKA_DATA_HPP
#define MOFKA_DATA_HPP

#include <mofka/Exception.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace mofka {

/*
 * Memory of an event's data: pieces, one behind the other. The memory is the
 * program's; a callback, if there is one, is called with the context when the
 * last copy has gone. What is pushed with a callback is kept until it is stored.
 */
class Data {
public:
    struct Segment {
        void *ptr;
        size_t size;
    };
    using Context = void *;
    using FreeCallback = std::function<void(Context)>;

    Data(Context ctx = nullptr, FreeCallback free_cb = FreeCallback{})
        : Data(std::vector<Segment>{}, ctx, std::move(free_cb))
    {
    }
    Data(void *ptr, size_t size, Context ctx = nullptr, FreeCallback free_cb = FreeCallback{})
        : Data(std::vector<Segment>{Segment{ptr, size}}, ctx, std::move(free_cb))
    {
    }
    Data(std::vector<Segment> segments, Context ctx = nullptr,
         FreeCallback free_cb = FreeCallback{})
        : self_(std::make_shared<Held>(std::move(segments), ctx, std::move(free_cb)))
    {
    }

    const std::vector<Segment> &segments() const { return self_->segments; }
    size_t size() const { return self_->size; }
    Context context() const { return self_->context; }
    operator bool() const noexcept { return static_cast<bool>(self_); }

    /* Copies up to `size` bytes to this memory, from `offset` on. */
    void write(const char *data, size_t size, size_t offset = 0) const
    {
        for (const Segment &segment : segments()) {
            if (offset >= segment.size) {
                offset -= segment.size;
                continue;
            }
            const size_t part = std::min(size, segment.size - offset);
            if (part == 0)
                return;
            std::memcpy(static_cast<char *>(segment.ptr) + offset, data, part);
            data += part;
            size -= part;
            offset = 0;
        }
    }

private:
    friend class Producer;

    struct Held {
        Held(std::vector<Segment> given, Context ctx, FreeCallback free_cb)
            : segments(std::move(given)), context(ctx), free(std::move(free_cb))
        {
            for (const Segment &segment : segments)
                size += segment.size;
        }
        ~Held()
        {
            if (free)
                free(context);
        }
        Held(const Held &) = delete;
        Held &operator=(const Held &) = delete;

        std::vector<Segment> segments;
        size_t size = 0;
        Context context;
        FreeCallback free;
    };

    /* Whether it keeps its memory by itself. */
    bool owns() const { return static_cast<bool>(self_->free); }

    std::shared_ptr<Held> self_;
};

} // namespace mofka

#endif
