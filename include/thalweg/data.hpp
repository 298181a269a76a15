/*
 * Thalweg's C++17 interface: what an event is made of. Include thalweg.hpp.
 */
#ifndef THALWEG_DATA_HPP
#define THALWEG_DATA_HPP

#include <thalweg/error.hpp>

#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

/* ---------------------------------------------------------- metadata --- */

/*
 * An event's metadata: text, which is JSON unless the topic's serializer says
 * otherwise. Made from text, or from an object of any JSON library that has
 * dump(), such as nlohmann::json; turned into one by json<T>().
 */
class Metadata {
public:
    /* An empty JSON object. */
    Metadata() : text_("{}") {}
    Metadata(std::string text) : text_(std::move(text)) {}
    Metadata(std::string_view text) : text_(text) {}
    Metadata(const char *text) : text_(text) {}
    template <class Json, class = decltype(std::string(std::declval<const Json &>().dump()))>
    Metadata(const Json &json) : text_(json.dump())
    {
    }

    const std::string &string() const noexcept { return text_; }
    const std::string &dump() const noexcept { return text_; }

    /* The same, parsed: Json::parse(text). */
    template <class Json> Json json() const { return Json::parse(text_); }

    /* The same text, byte by byte: {"a":1} and {"a": 1} differ. */
    friend bool operator==(const Metadata &a, const Metadata &b) { return a.text_ == b.text_; }
    friend bool operator!=(const Metadata &a, const Metadata &b) { return !(a == b); }

    /* The text. */
    friend std::ostream &operator<<(std::ostream &stream, const Metadata &metadata)
    {
        return stream << metadata.text_;
    }

private:
    std::string text_;
};

/* ------------------------------------------------------------- data --- */

/*
 * Memory that an event's data lies in, or is to go to: pieces, one behind the
 * other. It is a view, and whoever makes it sees to it that the memory lives
 * for long enough, unless it is given an owner, which is kept as long as it is
 * needed.
 *
 * A push copies the data and returns; the memory is the caller's again then.
 * Data above inline_bytes_max is not copied, but sent from where it lies, if it
 * has an owner, or is borrow()ed: then it must not be changed until the future
 * has resolved. So an owner is handed over with what it owns.
 */
class DataView {
public:
    struct Segment {
        void *ptr;
        size_t size;
    };

    /* No data. */
    DataView() = default;
    DataView(void *ptr, size_t size, std::shared_ptr<const void> owner = {})
        : owner_(std::move(owner))
    {
        if (size > 0)
            segments_.push_back({ptr, size});
    }
    /* Memory that is only read: to be pushed. */
    DataView(const void *ptr, size_t size, std::shared_ptr<const void> owner = {})
        : DataView(const_cast<void *>(ptr), size, std::move(owner))
    {
    }
    explicit DataView(std::vector<Segment> segments, std::shared_ptr<const void> owner = {})
        : segments_(std::move(segments)), owner_(std::move(owner))
    {
    }
    /* The elements of a vector, an array or a string, which lives on elsewhere. */
    template <class Container, class = decltype(std::declval<Container &>().data()),
              class = std::enable_if_t<std::is_lvalue_reference<Container &&>::value>>
    explicit DataView(Container &&elements)
        : DataView(static_cast<const void *>(elements.data()),
                   elements.size() * sizeof(*elements.data()))
    {
        static_assert(std::is_trivially_copyable<
                          std::remove_reference_t<decltype(*elements.data())>>::value,
                      "data is plain bytes");
    }

    /* The elements of a vector that is handed over, and lives as long as the view. */
    template <class Element> static DataView Owning(std::vector<Element> elements)
    {
        static_assert(std::is_trivially_copyable<Element>::value, "data is plain bytes");
        auto owner = std::make_shared<std::vector<Element>>(std::move(elements));
        void *ptr = owner->data();
        const size_t size = owner->size() * sizeof(Element);
        return DataView(ptr, size, std::move(owner));
    }

    /*
     * The same memory, for a push that does not copy it: the caller promises that
     * it stays as it is until the future of that push has resolved, or a flush
     * that began later has.
     */
    DataView borrow() const
    {
        DataView view(*this);
        view.borrowed_ = true;
        return view;
    }
    /* Whether a push may leave it where it lies: see borrow(). */
    bool is_borrowed() const noexcept { return borrowed_ || owner_ != nullptr; }

    const std::vector<Segment> &segments() const noexcept { return segments_; }
    const std::shared_ptr<const void> &owner() const noexcept { return owner_; }
    bool empty() const noexcept { return size() == 0; }

    size_t size() const noexcept
    {
        size_t size = 0;
        for (const Segment &segment : segments_)
            size += segment.size;
        return size;
    }

    /* Copies up to `size` bytes, from `offset` on, to `to`; returns how many. */
    size_t read(size_t offset, void *to, size_t size) const
    {
        size_t done = 0;
        for (const Segment &segment : segments_) {
            if (offset >= segment.size) {
                offset -= segment.size;
                continue;
            }
            const size_t left = segment.size - offset;
            const size_t part = left < size - done ? left : size - done;
            if (part > 0)
                std::memcpy(static_cast<char *>(to) + done,
                            static_cast<const char *>(segment.ptr) + offset, part);
            done += part;
            offset = 0;
        }
        return done;
    }

    /* A copy of all bytes. */
    std::string bytes() const
    {
        std::string bytes(size(), '\0');
        read(0, bytes.data(), bytes.size());
        return bytes;
    }

    /* The elements of an array that lies in one piece. */
    template <class Element> const Element *as() const
    {
        if (segments_.size() > 1)
            detail::refuse(THALWEG_INVALID_ARGUMENT, "the data lies in several pieces");
        return segments_.empty() ? nullptr : static_cast<const Element *>(segments_[0].ptr);
    }

private:
    std::vector<Segment> segments_;
    std::shared_ptr<const void> owner_;
    bool borrowed_ = false;
};

/*
 * Which bytes of an event's data are wanted, in which order. Each step counts
 * within the descriptor that it is asked of, so that any nesting can be said; a
 * step that leaves its bounds throws InvalidArgument.
 */
class DataDescriptor {
public:
    using Segment = thalweg_segment;

    /* Nothing. */
    DataDescriptor() : DataDescriptor(0) {}
    /* All of `size` bytes. */
    explicit DataDescriptor(uint64_t size) : view_(thalweg_view_new(size)) {}
    DataDescriptor(const DataDescriptor &other) : view_(thalweg_view_copy(other.view_.get())) {}
    DataDescriptor(DataDescriptor &&) noexcept = default;
    DataDescriptor &operator=(DataDescriptor other) noexcept
    {
        view_ = std::move(other.view_);
        return *this;
    }

    static DataDescriptor Null() { return DataDescriptor(); }
    static DataDescriptor Full(uint64_t size) { return DataDescriptor(size); }

    /* The `size` bytes from `offset` on. */
    DataDescriptor makeSubView(uint64_t offset, uint64_t size) const
    {
        DataDescriptor made(*this);
        detail::call(thalweg_view_range, made.view_.get(), offset, size);
        return made;
    }

    /* `count` blocks of `blockSize`, the first at `offset`, `gapSize` between them. */
    DataDescriptor makeStridedView(uint64_t offset, uint64_t count, uint64_t blockSize,
                                   uint64_t gapSize) const
    {
        DataDescriptor made(*this);
        detail::call(thalweg_view_stride, made.view_.get(), offset, count, blockSize, gapSize);
        return made;
    }

    /* The parts that are listed, in that order. */
    DataDescriptor makeUnstructuredView(const std::vector<Segment> &segments) const
    {
        DataDescriptor made(*this);
        detail::call(thalweg_view_list, made.view_.get(), segments.data(), segments.size());
        return made;
    }

    /* How many bytes are selected. */
    uint64_t size() const noexcept { return thalweg_view_bytes(view_.get()); }

    /* The selection, as pieces of the event's whole data. */
    std::vector<Segment> flatten() const
    {
        std::vector<Segment> segments(thalweg_view_segments(view_.get(), nullptr, 0));
        thalweg_view_segments(view_.get(), segments.data(), segments.size());
        return segments;
    }

    const thalweg_view *handle() const noexcept { return view_.get(); }

private:
    detail::Owned<thalweg_view, thalweg_view_free> view_;
};

/* Looks at an event's metadata and at all of its data; says what is wanted. */
using DataSelector = std::function<DataDescriptor(const Metadata &, const DataDescriptor &)>;
/* Says where the selected data goes: one piece of memory, of exactly its size. */
using DataAllocator = std::function<DataView(const Metadata &, const DataDescriptor &)>;

} // namespace thalweg

#endif
