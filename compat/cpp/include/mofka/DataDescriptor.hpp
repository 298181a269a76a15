#ifndef MOFKA_DATA_DESCRIPTOR_HPP
#define MOFKA_DATA_DESCRIPTOR_HPP

#include <mofka/Exception.hpp>

#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace mofka {

/*
 * Which bytes of an event's data are meant. Views nest: each counts bytes
 * within the view that it is taken of. A sub-view that leaves its bounds is cut,
 * a stride or a list of segments that does is refused.
 */
class DataDescriptor {
public:
    struct Segment {
        std::size_t offset;
        std::size_t size;

        Segment(std::size_t o = 0, std::size_t s = 0) : offset(o), size(s) {}
    };

    /* No data. */
    DataDescriptor() = default;
    static DataDescriptor Null() { return DataDescriptor(); }
    /* All of `size` bytes. */
    static DataDescriptor From(std::string_view location, size_t size)
    {
        DataDescriptor made{thalweg::DataDescriptor(size)};
        made.location_.assign(location.begin(), location.end());
        return made;
    }

    size_t size() const { return static_cast<size_t>(view_.size()); }
    const std::vector<char> &location() const { return location_; }
    std::vector<char> &location() { return location_; }
    operator bool() const noexcept { return true; }

    /* The selection, as pieces of the event's whole data. */
    std::vector<Segment> flatten() const
    {
        std::vector<Segment> segments;
        for (const thalweg_segment &segment : view_.flatten())
            segments.emplace_back(segment.offset, segment.bytes);
        return segments;
    }

    /*
     * `numblocks` blocks of `blocksize`, the first at `offset`, `gapsize` behind
     * each. The gap behind the last block has to be within bounds, too.
     */
    DataDescriptor makeStridedView(size_t offset, size_t numblocks, size_t blocksize,
                                   size_t gapsize) const
    {
        if (offset > size() || numblocks == 0 || blocksize == 0)
            return Null();
        if (gapsize > size() || blocksize > size() ||
            numblocks > (size() - offset) / (blocksize + gapsize))
            throw Exception("Invalid strided view: would go out of bounds");
        return narrowed([&] {
            return view_.makeStridedView(offset, numblocks, blocksize, gapsize);
        });
    }

    /* The `size` bytes from `offset` on, as far as they are there. */
    DataDescriptor makeSubView(size_t offset, size_t size) const
    {
        if (offset > this->size() || size == 0)
            return Null();
        return narrowed(
            [&] { return view_.makeSubView(offset, std::min(size, this->size() - offset)); });
    }

    /* The (offset, size) segments, which ascend and do not overlap. */
    DataDescriptor
    makeUnstructuredView(const std::vector<std::pair<size_t, size_t>> &segments) const
    {
        if (segments.empty())
            return Null();
        std::vector<thalweg_segment> chosen;
        size_t reached = 0;
        for (const auto &[offset, length] : segments) {
            if (offset < reached)
                throw Exception("Invalid unstructured view: segments overlapping or out of order");
            if (offset > size() || length > size() - offset)
                throw Exception("Invalid unstructured view: would go out of bounds");
            reached = offset + length;
            chosen.push_back({offset, length});
        }
        return narrowed([&] { return view_.makeUnstructuredView(chosen); });
    }

private:
    friend class TopicHandle;

    explicit DataDescriptor(thalweg::DataDescriptor view) : view_(std::move(view)) {}

    template <class Make> DataDescriptor narrowed(Make make) const
    {
        DataDescriptor made{detail::translated(make)};
        made.location_ = location_;
        return made;
    }

    thalweg::DataDescriptor view_;
    std::vector<char> location_;
};

} // namespace mofka

#endif
