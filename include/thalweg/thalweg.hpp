/*
 * Thalweg's C++17 interface: persistent event streaming.
 *
 * Header only, over thalweg.h, whose conventions hold here, too. Link with
 * libthalweg.
 *
 * Handles (Driver, TopicHandle, Producer, Consumer, Future) own what they
 * stand for and are moved, not copied; Event is a shared handle and can be
 * copied. They may be destroyed in any order. Whatever fails throws an
 * exception derived from thalweg::Error. Times are in milliseconds; a
 * negative one means the operation's own limit, 0 only looks.
 */
#ifndef THALWEG_THALWEG_HPP
#define THALWEG_THALWEG_HPP

#if __cplusplus < 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG < 201703L)
#error "thalweg.hpp needs C++17"
#endif

#include <thalweg/thalweg.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

/* ------------------------------------------------------------ errors --- */

/* Why something fails. what() is a sentence that names the thing and the numbers. */
class Error : public std::runtime_error {
public:
    explicit Error(const thalweg_error &error)
        : std::runtime_error(error.message), code_(error.code), retryable_(error.retryable != 0),
          retry_after_ms_(error.retry_after_ms)
    {
    }

    /* One of the THALWEG_ codes of thalweg.h. */
    int32_t code() const noexcept { return code_; }
    /* Whether the same call may succeed later. */
    bool retryable() const noexcept { return retryable_; }
    /* When, in milliseconds, if the server said so; 0 otherwise. */
    uint32_t retryAfter() const noexcept { return retry_after_ms_; }

private:
    int32_t code_;
    bool retryable_;
    uint32_t retry_after_ms_;
};

/* The kinds of errors that a program does different things about. */
struct Timeout : Error { using Error::Error; };
struct Closed : Error { using Error::Error; };
struct InvalidArgument : Error { using Error::Error; };
struct BudgetExceeded : Error { using Error::Error; };
struct Unreachable : Error { using Error::Error; };
struct WrongServer : Error { using Error::Error; };
struct Damaged : Error { using Error::Error; };
struct Forked : Error { using Error::Error; };
struct Cancelled : Error { using Error::Error; };
struct NotAllowed : Error { using Error::Error; };
struct UnknownTopic : Error { using Error::Error; };
struct TopicExists : Error { using Error::Error; };
struct UnknownPartition : Error { using Error::Error; };
struct OutOfRange : Error { using Error::Error; };
struct ProducerFenced : Error { using Error::Error; };
struct StorageError : Error { using Error::Error; };

namespace detail {

[[noreturn]] inline void raise(const thalweg_error &error)
{
    switch (error.code) {
    case THALWEG_TIMEOUT:
    case THALWEG_SERVER_DEADLINE_PASSED: throw Timeout(error);
    case THALWEG_CLOSED: throw Closed(error);
    case THALWEG_INVALID_ARGUMENT:
    case THALWEG_SERVER_INVALID_TOPIC:
    case THALWEG_SERVER_INVALID_STORAGE:
    case THALWEG_SERVER_INVALID_EVENT:
    case THALWEG_SERVER_LIMIT_EXCEEDED:
    case THALWEG_SERVER_INVALID_DURABILITY:
    case THALWEG_SERVER_INVALID_SELECTION: throw InvalidArgument(error);
    case THALWEG_BUDGET: throw BudgetExceeded(error);
    case THALWEG_UNREACHABLE: throw Unreachable(error);
    case THALWEG_WRONG_SERVER:
    case THALWEG_SERVER_WRONG_SERVER: throw WrongServer(error);
    case THALWEG_DAMAGED:
    case THALWEG_SERVER_DAMAGED:
    case THALWEG_SERVER_CHECKSUM_MISMATCH: throw Damaged(error);
    case THALWEG_FORKED: throw Forked(error);
    case THALWEG_CANCELLED:
    case THALWEG_SERVER_CANCELLED: throw Cancelled(error);
    case THALWEG_SERVER_NOT_AUTHENTICATED:
    case THALWEG_SERVER_NOT_AUTHORIZED: throw NotAllowed(error);
    case THALWEG_SERVER_UNKNOWN_TOPIC: throw UnknownTopic(error);
    case THALWEG_SERVER_TOPIC_EXISTS: throw TopicExists(error);
    case THALWEG_SERVER_UNKNOWN_PARTITION:
    case THALWEG_SERVER_NO_PARTITIONS: throw UnknownPartition(error);
    case THALWEG_SERVER_OFFSET_OUT_OF_RANGE:
    case THALWEG_SERVER_WRONG_INCARNATION: throw OutOfRange(error);
    case THALWEG_SERVER_PRODUCER_FENCED: throw ProducerFenced(error);
    case THALWEG_IO:
    case THALWEG_SERVER_STORAGE_FULL:
    case THALWEG_SERVER_STORAGE_FAILED: throw StorageError(error);
    default: throw Error(error);
    }
}

/* Calls a function of thalweg.h with its error as the last argument. */
template <class Function, class... Arguments>
void call(Function function, Arguments... arguments)
{
    thalweg_error error;
    if (function(arguments..., &error) != THALWEG_OK)
        raise(error);
}

[[noreturn]] inline void refuse(int32_t code, const char *message)
{
    thalweg_error error{};
    error.code = code;
    std::snprintf(error.message, sizeof error.message, "%s", message);
    raise(error);
}

/* Owns a handle of thalweg.h. */
template <class Handle, void (*Free)(Handle *)>
struct Deleter {
    void operator()(Handle *handle) const noexcept { Free(handle); }
};
template <class Handle, void (*Free)(Handle *)>
using Owned = std::unique_ptr<Handle, Deleter<Handle, Free>>;

/* A string of the library's. */
template <class Function, class... Arguments>
std::string text(Function function, Arguments... arguments)
{
    char *given = nullptr;
    call(function, arguments..., &given);
    std::unique_ptr<char, void (*)(char *)> owned(given, thalweg_string_free);
    return std::string(given);
}

inline std::string quoted(std::string_view text)
{
    std::string out = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            out += '\\';
            out += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(letter));
            out += escaped;
        } else {
            out += letter;
        }
    }
    return out + '"';
}

/* A JSON object that is put together from members, and from other objects'. */
class Object {
public:
    /* `value` is JSON. */
    Object &add(std::string_view key, std::string_view value)
    {
        comma();
        members_ += quoted(key) + ": ";
        members_ += value;
        return *this;
    }

    /* All members of another object. */
    Object &merge(std::string_view object)
    {
        const char *space = " \t\r\n";
        const auto begin = object.find_first_not_of(space);
        if (begin == std::string_view::npos)
            return *this;
        const auto end = object.find_last_not_of(space);
        if (object[begin] != '{' || object[end] != '}' || begin == end)
            refuse(THALWEG_INVALID_ARGUMENT, "options are a JSON object");
        const auto inside = object.substr(begin + 1, end - begin - 1);
        if (inside.find_first_not_of(space) != std::string_view::npos) {
            comma();
            members_ += inside;
        }
        return *this;
    }

    std::string string() const { return "{" + members_ + "}"; }

private:
    void comma()
    {
        if (!members_.empty())
            members_ += ", ";
    }
    std::string members_;
};

} // namespace detail

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

private:
    std::string text_;
};

/* ------------------------------------------------------------- data --- */

/*
 * Memory that an event's data lies in, or is to go to: pieces, one behind the
 * other. It is a view, and whoever makes it sees to it that the memory lives
 * for long enough, unless it is given an owner, which is kept as long as it is
 * needed.
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

/* ----------------------------------------------------------- options --- */

/* Further options, as a JSON object: the keys are told in thalweg.h. */
class Options {
public:
    Options() = default;
    Options(std::string json) : json_(std::move(json)) {}
    Options(const char *json) : json_(json) {}
    const std::string &string() const noexcept { return json_; }

private:
    std::string json_;
};

/* How many events make a batch. */
struct BatchSize {
    size_t value;
    explicit constexpr BatchSize(size_t count) : value(count) {}
    /* Whatever has gathered when the batch before is on its way. */
    static constexpr BatchSize Adaptive() { return BatchSize(std::numeric_limits<size_t>::max()); }
    constexpr bool isAdaptive() const { return value == std::numeric_limits<size_t>::max(); }
};

/* How many batches of a partition may be sent and not acknowledged. */
struct MaxNumBatches {
    size_t value;
    explicit constexpr MaxNumBatches(size_t count) : value(count) {}
    /* Bounded by the producer's bytes alone. */
    static constexpr MaxNumBatches Infinity()
    {
        return MaxNumBatches(std::numeric_limits<uint32_t>::max());
    }
};

/*
 * Whether events are stored in the order of their pushes. Thalweg always does;
 * Loose is there for programs that would not need it.
 */
enum class Ordering { Strict, Loose };

struct ThreadCount {
    size_t value;
    explicit constexpr ThreadCount(size_t count) : value(count) {}
};

/*
 * Threads that a program offers for its callbacks. Thalweg needs none: it
 * validates on the thread that pushes and calls selectors and allocators on
 * the thread that pulls. There for programs that are written with one in mind.
 */
class ThreadPool {
public:
    ThreadPool() = default;
    explicit ThreadPool(ThreadCount count) : count_(count) {}
    ThreadCount threadCount() const noexcept { return count_; }

private:
    ThreadCount count_{0};
};

/* What an acknowledgement survives: nothing, the server's death, power loss. */
enum class Durability { Memory, Written, Synced };

/* The partitions that a consumer reads. */
struct Targets {
    std::vector<size_t> indices;
};

/* Where a consumer begins. */
class Start {
public:
    static Start Cursor() { return Start("\"cursor\""); }
    static Start CursorOrLatest() { return Start("\"cursor_or_latest\""); }
    static Start Beginning() { return Start("\"beginning\""); }
    static Start Latest() { return Start("\"latest\""); }
    static Start At(uint64_t offset) { return Start(std::to_string(offset)); }
    const std::string &json() const noexcept { return json_; }

private:
    explicit Start(std::string json) : json_(std::move(json)) {}
    std::string json_;
};

namespace detail {

/* What a topic's definition names: a type with further keys. */
class Named {
public:
    explicit Named(std::string_view type, const Options &options = {})
        : json_(Object().add("type", quoted(type)).merge(options.string()).string())
    {
    }
    const std::string &json() const noexcept { return json_; }

private:
    std::string json_;
};

inline const char *name(Durability durability)
{
    switch (durability) {
    case Durability::Memory: return "\"memory\"";
    case Durability::Written: return "\"written\"";
    case Durability::Synced: return "\"synced\"";
    }
    return "null";
}

template <class T> struct always_false : std::false_type {};

} // namespace detail

/* What is checked of metadata, by producers. */
struct Validator : detail::Named {
    using Named::Named;
    static Validator None() { return Validator("none"); }
    static Validator Json() { return Validator("json"); }
    /* `schema` is a JSON Schema, draft 2020-12. */
    static Validator Schema(const Metadata &schema)
    {
        return Validator("schema", detail::Object().add("schema", schema.string()).string());
    }
};

/* Who chooses the partition of an event that does not name one. */
struct PartitionSelector : detail::Named {
    using Named::Named;
    static PartitionSelector RoundRobin() { return PartitionSelector("round_robin"); }
    static PartitionSelector KeyHash() { return PartitionSelector("key_hash"); }
    static PartitionSelector Explicit() { return PartitionSelector("explicit"); }
};

/* How metadata travels. */
struct Serializer : detail::Named {
    using Named::Named;
    static Serializer Json() { return Serializer("json"); }
    static Serializer Raw() { return Serializer("raw"); }
};

/* How many partitions a topic has. */
struct Partitions {
    size_t count;
    explicit constexpr Partitions(size_t partitions) : count(partitions) {}
};

/* How partitions are stored: "disk", "memory", or another kind with its configuration. */
class Storage {
public:
    static Storage Disk() { return Storage("disk"); }
    static Storage Memory() { return Storage("memory"); }
    explicit Storage(std::string_view kind) : json_(detail::quoted(kind)) {}
    Storage(std::string_view kind, const Options &config)
        : json_(detail::Object()
                    .add("kind", detail::quoted(kind))
                    .add("config", detail::Object().merge(config.string()).string())
                    .string())
    {
    }
    const std::string &json() const noexcept { return json_; }

private:
    std::string json_;
};

/* ------------------------------------------------------------ future --- */

/* Where an event is. */
struct EventID {
    uint32_t partition = 0;
    uint64_t incarnation = 0;
    uint64_t offset = 0;

    EventID() = default;
    EventID(uint32_t partition_, uint64_t incarnation_, uint64_t offset_)
        : partition(partition_), incarnation(incarnation_), offset(offset_)
    {
    }
    explicit EventID(const thalweg_event_id &id)
        : EventID(id.partition, id.incarnation, id.offset)
    {
    }
    explicit operator thalweg_event_id() const
    {
        thalweg_event_id id{};
        id.partition = partition;
        id.incarnation = incarnation;
        id.offset = offset;
        return id;
    }
    friend bool operator==(const EventID &a, const EventID &b)
    {
        return a.partition == b.partition && a.incarnation == b.incarnation &&
               a.offset == b.offset;
    }
    friend bool operator!=(const EventID &a, const EventID &b) { return !(a == b); }
};

/* What a flush resolves to. */
struct Flushed {};

/*
 * What becomes of a push, a flush or a pull. Resolves once, when all memory
 * that was lent for it is the caller's again. Destroying that of a push or a
 * flush gives up the knowledge alone; that of a pull cancels it.
 */
template <class T> class Future {
public:
    /* One that stands for nothing. */
    Future() = default;

    /* Whether it stands for anything. */
    explicit operator bool() const noexcept { return handle_ != nullptr; }

    bool completed() const { return thalweg_future_done(valid()) != 0; }

    /*
     * Waits for the result, up to `timeout_ms`; nothing when that has passed,
     * and it may be waited for again. Throws what it failed with. Asked again,
     * it gives the same again.
     */
    std::optional<T> wait(int64_t timeout_ms = -1)
    {
        if (value_)
            return value_;
        thalweg_error error;
        if (thalweg_future_wait(valid(), timeout_ms, &error) != THALWEG_OK) {
            if (error.code == THALWEG_TIMEOUT && !completed())
                return std::nullopt;
            if (explain_)
                explain_();
            detail::raise(error);
        }
        value_ = take_(valid());
        return value_;
    }

    /* Waits as long as it takes. */
    T get()
    {
        std::optional<T> value = wait();
        if (!value)
            detail::refuse(THALWEG_TIMEOUT, "timed out waiting for a future");
        return *std::move(value);
    }

    /*
     * Gives up what it stands for, if it is not too late, and never blocks: it
     * resolves to Cancelled, or to what becomes of it all the same. See
     * thalweg_future_cancel.
     */
    void cancel() { detail::call(thalweg_future_cancel, valid()); }

    /* Calls `callback` once, when it is resolved: see thalweg_future_on_done. */
    void onDone(std::function<void()> callback)
    {
        auto context = std::make_unique<std::function<void()>>(std::move(callback));
        detail::call(thalweg_future_on_done, valid(), &Future::done,
                     static_cast<void *>(context.get()));
        context.release();
    }

    using Take = std::function<T(thalweg_future *)>;
    Future(thalweg_future *handle, Take take, std::function<void()> explain = {})
        : handle_(handle), take_(std::move(take)), explain_(std::move(explain))
    {
    }

private:
    static void done(void *context)
    {
        std::unique_ptr<std::function<void()>> callback(
            static_cast<std::function<void()> *>(context));
        try {
            (*callback)();
        } catch (...) {
            // There is nobody to tell: the callback runs on its own.
        }
    }

    thalweg_future *valid() const
    {
        if (!handle_)
            detail::refuse(THALWEG_INVALID_ARGUMENT, "the future stands for nothing");
        return handle_.get();
    }

    detail::Owned<thalweg_future, thalweg_future_free> handle_;
    Take take_;
    std::function<void()> explain_;
    std::optional<T> value_;
};

/* ------------------------------------------------------------- event --- */

namespace detail {

using ConsumerHandle = Owned<thalweg_consumer, thalweg_consumer_free>;

/* The callbacks of a consumer, and what they threw last. */
struct DataCallbacks {
    DataSelector selector;
    DataAllocator allocator;
    std::mutex mutex;
    std::exception_ptr thrown;

    /* Throws what a callback threw, if one did. */
    void rethrow()
    {
        std::exception_ptr taken;
        {
            const std::lock_guard<std::mutex> lock(mutex);
            std::swap(taken, thrown);
        }
        if (taken)
            std::rethrow_exception(taken);
    }

    void keep(std::exception_ptr caught)
    {
        const std::lock_guard<std::mutex> lock(mutex);
        thrown = std::move(caught);
    }

    /* Runs a callback; what it throws is kept for whoever pulls. */
    template <class Call> int32_t guard(thalweg_error *error, Call call) noexcept
    {
        try {
            call();
            return THALWEG_OK;
        } catch (const std::exception &caught) {
            std::snprintf(error->message, sizeof error->message, "%s", caught.what());
            keep(std::current_exception());
        } catch (...) {
            std::snprintf(error->message, sizeof error->message, "it threw something");
            keep(std::current_exception());
        }
        return THALWEG_INVALID_ARGUMENT;
    }

    static std::string_view view(const thalweg_bytes &bytes)
    {
        return std::string_view(static_cast<const char *>(bytes.base), bytes.size);
    }

    using Shared = std::shared_ptr<DataCallbacks>;

    static int32_t select(void *context, const thalweg_event_info *event, thalweg_view *into,
                          thalweg_error *error)
    {
        const Shared &self = *static_cast<Shared *>(context);
        return self->guard(error, [&] {
            const DataDescriptor all(event->data_bytes_total);
            const DataDescriptor chosen = self->selector(Metadata(view(event->metadata)), all);
            thalweg_view_assign(into, chosen.handle());
        });
    }

    static int32_t allocate(void *context, const thalweg_event_info *event,
                            const thalweg_view *wanted, thalweg_buffer *buffer,
                            thalweg_error *error)
    {
        const Shared &self = *static_cast<Shared *>(context);
        return self->guard(error, [&] {
            DataDescriptor descriptor(thalweg_view_bytes(wanted));
            {
                // The same selection, as a descriptor of its own.
                std::vector<thalweg_segment> segments(thalweg_view_segments(wanted, nullptr, 0));
                thalweg_view_segments(wanted, segments.data(), segments.size());
                uint64_t reach = 0;
                for (const thalweg_segment &segment : segments)
                    reach = segment.offset + segment.bytes > reach
                                ? segment.offset + segment.bytes
                                : reach;
                descriptor = DataDescriptor(reach).makeUnstructuredView(segments);
            }
            auto given = std::make_unique<DataView>(
                self->allocator(Metadata(view(event->metadata)), descriptor));
            if (given->segments().size() > 1)
                refuse(THALWEG_INVALID_ARGUMENT, "an allocator gives one piece of memory");
            if (!given->segments().empty()) {
                buffer->base = given->segments()[0].ptr;
                buffer->size = given->segments()[0].size;
            }
            buffer->owner = given.release();
        });
    }

    static void release(void *, void *owner) { delete static_cast<DataView *>(owner); }
    static void destroy(void *context) { delete static_cast<Shared *>(context); }
};

} // namespace detail

/* An event that was pulled. A shared handle: copies stand for the same event. */
class Event {
public:
    Event(thalweg_event *event, std::weak_ptr<detail::ConsumerHandle> consumer)
        : event_(event, thalweg_event_free), consumer_(std::move(consumer))
    {
        detail::call(thalweg_event_info_of, static_cast<const thalweg_event *>(event), &info_);
    }

    EventID id() const { return EventID(info_.id); }
    uint32_t partition() const noexcept { return info_.id.partition; }

    /* A copy of the metadata; metadataView() needs none, and lives as long as the event. */
    Metadata metadata() const { return Metadata(metadataView()); }
    std::string_view metadataView() const
    {
        return std::string_view(static_cast<const char *>(info_.metadata.base),
                                info_.metadata.size);
    }

    /*
     * The data that came along, where it lies. It keeps the event's memory for
     * as long as it lives; memory of the allocator's belongs to its owner.
     */
    DataView data() const
    {
        if (info_.data_owner != nullptr) {
            const auto *given = static_cast<const DataView *>(info_.data_owner);
            if (given->owner())
                return *given;
        }
        return DataView(info_.data.base, info_.data.size, event_);
    }
    /* Length of the whole data, wanted or not. */
    uint64_t dataSize() const noexcept { return info_.data_bytes_total; }

    std::optional<std::string_view> key() const
    {
        if (info_.key.base == nullptr)
            return std::nullopt;
        return std::string_view(static_cast<const char *>(info_.key.base), info_.key.size);
    }

    std::vector<std::pair<std::string, std::string>> headers() const
    {
        std::vector<std::pair<std::string, std::string>> headers;
        const size_t count = thalweg_event_header_count(event_.get());
        for (size_t index = 0; index < count; index++) {
            thalweg_header header;
            detail::call(thalweg_event_header, static_cast<const thalweg_event *>(event_.get()),
                         index, &header);
            headers.emplace_back(
                std::string(static_cast<const char *>(header.name.base), header.name.size),
                std::string(static_cast<const char *>(header.value.base), header.value.size));
        }
        return headers;
    }

    bool tombstone() const noexcept { return info_.tombstone != 0; }
    /* Nanoseconds since 1970: when the server took it; the producer's own, 0 for none. */
    uint64_t appendTime() const noexcept { return info_.append_time_ns; }
    uint64_t producerTime() const noexcept { return info_.producer_time_ns; }

    /* Events up to this one are done with, in its partition. Does not block. */
    void acknowledge() const
    {
        const auto consumer = consumer_.lock();
        if (!consumer)
            detail::refuse(THALWEG_CLOSED, "the event's consumer is gone");
        detail::call(thalweg_consumer_acknowledge, consumer->get(), &info_.id);
    }

private:
    std::shared_ptr<thalweg_event> event_;
    std::weak_ptr<detail::ConsumerHandle> consumer_;
    thalweg_event_info info_{};
};

/* ---------------------------------------------------------- producer --- */

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

/* Appends events to a topic, each stored once, in the order of each thread's pushes. */
class Producer {
public:
    explicit Producer(thalweg_producer *handle) : handle_(handle) {}

    /*
     * Pushes an event. The metadata is copied. The data is borrowed: it must
     * stay as it is until the future has resolved or a flush that began later
     * has; data with an owner keeps that, and nobody needs to wait. Blocks at
     * the producer's budget only.
     */
    Future<EventID> push(const Metadata &metadata, const DataView &data = {},
                         std::optional<uint32_t> partition = {})
    {
        thalweg_message message{};
        if (partition) {
            message.has_partition = 1;
            message.partition = *partition;
        }
        return push(message, metadata, data);
    }

    Future<EventID> push(const Message &event)
    {
        thalweg_message message{};
        if (event.partition) {
            message.has_partition = 1;
            message.partition = *event.partition;
        }
        if (event.key)
            message.key = {event.key->data(), event.key->size()};
        std::vector<thalweg_header> headers;
        for (const auto &[name, value] : event.headers)
            headers.push_back({{name.data(), name.size()}, {value.data(), value.size()}});
        message.headers = headers.data();
        message.header_count = headers.size();
        message.producer_time_ns = event.producer_time_ns;
        message.tombstone = event.tombstone ? 1 : 0;
        return push(message, event.metadata, event.data);
    }

    /*
     * Resolves when everything that was pushed before is acknowledged and no
     * data is borrowed for it any more. Does not block; what gathers is sent.
     */
    [[nodiscard]] Future<Flushed> flush()
    {
        thalweg_future *future = nullptr;
        detail::call(thalweg_producer_flush_begin, handle_.get(), &future);
        return Future<Flushed>(future, [](thalweg_future *) { return Flushed{}; });
    }

    thalweg_producer *handle() const noexcept { return handle_.get(); }

private:
    Future<EventID> push(thalweg_message &message, const Metadata &metadata, const DataView &data)
    {
        message.metadata = {metadata.string().data(), metadata.string().size()};
        std::vector<thalweg_bytes> pieces;
        pieces.reserve(data.segments().size());
        for (const DataView::Segment &segment : data.segments())
            pieces.push_back({segment.ptr, segment.size});
        message.data = pieces.data();
        message.data_count = pieces.size();
        std::unique_ptr<std::shared_ptr<const void>> owner;
        if (data.owner()) {
            owner = std::make_unique<std::shared_ptr<const void>>(data.owner());
            message.release = &Producer::release;
            message.release_context = owner.get();
        }
        thalweg_future *future = nullptr;
        detail::call(thalweg_producer_push, handle_.get(),
                     static_cast<const thalweg_message *>(&message), &future);
        // It is the library's from now on, or was released already.
        static_cast<void>(owner.release());
        return Future<EventID>(future, [](thalweg_future *resolved) {
            thalweg_event_id id;
            detail::call(thalweg_future_id, resolved, &id);
            return EventID(id);
        });
    }

    static void release(void *context)
    {
        delete static_cast<std::shared_ptr<const void> *>(context);
    }

    detail::Owned<thalweg_producer, thalweg_producer_free> handle_;
};

/* ---------------------------------------------------------- consumer --- */

/* Reads a topic's events, each partition's in order. */
class Consumer {
public:
    Consumer(thalweg_consumer *handle, std::shared_ptr<detail::DataCallbacks> callbacks)
        : handle_(std::make_shared<detail::ConsumerHandle>(handle)),
          callbacks_(std::move(callbacks))
    {
    }

    /* Begins to wait for an event: events go to pulls in the order of the pulls. */
    Future<Event> pull()
    {
        thalweg_future *future = nullptr;
        detail::call(thalweg_consumer_pull_begin, get(), &future);
        std::weak_ptr<detail::ConsumerHandle> consumer = handle_;
        auto take = [consumer](thalweg_future *resolved) {
            thalweg_event *event = nullptr;
            detail::call(thalweg_future_event, resolved, &event);
            return Event(event, consumer);
        };
        auto callbacks = callbacks_;
        return Future<Event>(future, take, [callbacks] {
            if (callbacks)
                callbacks->rethrow();
        });
    }

    /*
     * The next event: waits up to `timeout_ms` (negative: for ever), and gives
     * nothing when that has passed. Throws what a selector or an allocator threw.
     */
    std::optional<Event> pull(int64_t timeout_ms)
    {
        thalweg_event *event = nullptr;
        thalweg_error error;
        if (thalweg_consumer_pull(get(), timeout_ms, &event, &error) != THALWEG_OK)
            fail(error);
        if (event == nullptr)
            return std::nullopt;
        return Event(event, handle_);
    }

    /* Events that are there, at least one and at most `max`, as pull(timeout_ms). */
    std::vector<Event> pullBatch(size_t max, int64_t timeout_ms = -1)
    {
        std::vector<thalweg_event *> pulled(max);
        size_t count = 0;
        thalweg_error error;
        if (thalweg_consumer_pull_batch(get(), timeout_ms, pulled.data(), max, &count, &error) !=
            THALWEG_OK)
            fail(error);
        std::vector<Event> events;
        events.reserve(count);
        for (size_t index = 0; index < count; index++)
            events.emplace_back(pulled[index], handle_);
        return events;
    }

    /* Waits until everything that was acknowledged is durable. */
    void flush(int64_t timeout_ms = -1)
    {
        detail::call(thalweg_consumer_flush, get(), timeout_ms);
    }

    /* Goes on at `to`, be it backwards; the cursor moves there. */
    void seek(const EventID &to)
    {
        const auto id = static_cast<thalweg_event_id>(to);
        detail::call(thalweg_consumer_seek, get(), &id);
    }

    /* The gaps that were met since the last call, as JSON. */
    Metadata gaps() { return Metadata(detail::text(thalweg_consumer_gaps, get())); }

    thalweg_consumer *handle() const noexcept { return get(); }

private:
    thalweg_consumer *get() const noexcept { return handle_->get(); }

    [[noreturn]] void fail(const thalweg_error &error)
    {
        if (callbacks_)
            callbacks_->rethrow();
        detail::raise(error);
    }

    std::shared_ptr<detail::ConsumerHandle> handle_;
    std::shared_ptr<detail::DataCallbacks> callbacks_;
};

/* ------------------------------------------------------------- topic --- */

namespace detail {

/* Options in any order, told apart by their types. */
struct ProducerArguments {
    Object object;

    void take(std::string_view name) { object.add("name", quoted(name)); }
    void take(BatchSize size)
    {
        object.add("batch", size.isAdaptive() ? "\"adaptive\"" : std::to_string(size.value));
    }
    void take(MaxNumBatches max) { object.add("batches_in_flight", std::to_string(max.value)); }
    void take(Durability durability) { object.add("durability", detail::name(durability)); }
    void take(Ordering) {}
    void take(const ThreadPool &) {}
    void take(const Options &options) { object.merge(options.string()); }
};

struct ConsumerArguments {
    Object object;
    DataSelector selector;
    DataAllocator allocator;

    // Flow control is by bytes: the option credit_bytes.
    void take(BatchSize) {}
    void take(MaxNumBatches) {}
    void take(const ThreadPool &) {}
    void take(const Start &start) { object.add("start", start.json()); }
    void take(const Targets &targets)
    {
        std::string list;
        for (const size_t index : targets.indices)
            list += (list.empty() ? "" : ", ") + std::to_string(index);
        object.add("partitions", "[" + list + "]");
    }
    void take(const std::vector<size_t> &targets) { take(Targets{targets}); }
    void take(const Options &options) { object.merge(options.string()); }

    template <class Callable,
              class Result =
                  std::invoke_result_t<Callable &, const Metadata &, const DataDescriptor &>>
    void take(Callable callable)
    {
        if constexpr (std::is_same<Result, DataDescriptor>::value)
            selector = std::move(callable);
        else if constexpr (std::is_same<Result, DataView>::value)
            allocator = std::move(callable);
        else
            static_assert(always_false<Callable>::value,
                          "a selector returns a DataDescriptor, an allocator a DataView");
    }
};

struct TopicArguments {
    Object object;

    void take(const Validator &named) { object.add("validator", named.json()); }
    void take(const PartitionSelector &named) { object.add("partition_selector", named.json()); }
    void take(const Serializer &named) { object.add("serializer", named.json()); }
    void take(Partitions partitions)
    {
        object.add("partitions", std::to_string(partitions.count));
    }
    void take(const Storage &storage) { object.add("storage", storage.json()); }
    void take(Durability durability) { object.add("durability", detail::name(durability)); }
    void take(const Options &options) { object.merge(options.string()); }
};

} // namespace detail

/* A topic that exists: where producers and consumers come from. */
class TopicHandle {
public:
    TopicHandle(std::string name, thalweg_topic *handle) : name_(std::move(name)), handle_(handle)
    {
    }

    const std::string &name() const noexcept { return name_; }

    /* How many partitions it has, as last known. */
    size_t partitions() const noexcept { return thalweg_topic_partition_count(handle_.get()); }

    /* The topic as it is now, as JSON: see thalweg_topic_describe. */
    Metadata describe() const { return Metadata(detail::text(thalweg_topic_describe, handle_.get())); }

    /*
     * Opens a producer. Options in any order: a name, BatchSize, MaxNumBatches,
     * Ordering, ThreadPool, Durability, Options.
     */
    template <class... Arguments> Producer producer(const Arguments &...options) const
    {
        detail::ProducerArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        thalweg_producer *producer = nullptr;
        detail::call(thalweg_producer_open, handle_.get(), json.c_str(), &producer);
        return Producer(producer);
    }

    /*
     * Opens a consumer, whose cursors are kept under `name`. Options in any
     * order: a DataSelector, a DataAllocator (or what can be called like one),
     * Targets, Start, BatchSize, MaxNumBatches, ThreadPool, Options.
     */
    template <class... Arguments>
    Consumer consumer(const std::string &name, const Arguments &...options) const
    {
        detail::ConsumerArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        std::shared_ptr<detail::DataCallbacks> shared;
        thalweg_data_callbacks callbacks{};
        std::unique_ptr<detail::DataCallbacks::Shared> context;
        if (arguments.selector || arguments.allocator) {
            shared = std::make_shared<detail::DataCallbacks>();
            shared->selector = std::move(arguments.selector);
            shared->allocator = std::move(arguments.allocator);
            if (shared->selector)
                callbacks.select = &detail::DataCallbacks::select;
            if (shared->allocator)
                callbacks.allocate = &detail::DataCallbacks::allocate;
            callbacks.release = &detail::DataCallbacks::release;
            callbacks.destroy = &detail::DataCallbacks::destroy;
            context = std::make_unique<detail::DataCallbacks::Shared>(shared);
            callbacks.context = context.get();
        }
        const thalweg_data_callbacks *given = context ? &callbacks : nullptr;
        // Whatever becomes of it, `destroy` is called.
        static_cast<void>(context.release());
        thalweg_consumer *consumer = nullptr;
        detail::call(thalweg_consumer_open, handle_.get(), name.c_str(), json.c_str(), given,
                     &consumer);
        return Consumer(consumer, std::move(shared));
    }

    thalweg_topic *handle() const noexcept { return handle_.get(); }

private:
    std::string name_;
    detail::Owned<thalweg_topic, thalweg_topic_free> handle_;
};

/* ------------------------------------------------------------ driver --- */

/* A connection to a server, from which topics come. */
class Driver {
public:
    /* Connects by the group file that `thalweg serve` writes, or to an address. */
    explicit Driver(const std::string &endpoint, const Options &options = {})
    {
        thalweg_driver *driver = nullptr;
        detail::call(thalweg_driver_connect, endpoint.c_str(), options.string().c_str(), &driver);
        handle_.reset(driver);
    }

    /* Runs a server in this process, on a data directory, and connects to it. */
    static Driver embedded(const std::string &directory, const Options &options = {})
    {
        thalweg_driver *driver = nullptr;
        detail::call(thalweg_driver_embedded, directory.c_str(), options.string().c_str(),
                     &driver);
        return Driver(driver);
    }

    /*
     * Makes a topic. Options in any order: Partitions, Storage, Validator,
     * PartitionSelector, Serializer, Durability, Options.
     */
    template <class... Arguments>
    TopicHandle createTopic(const std::string &name, const Arguments &...options)
    {
        detail::TopicArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        thalweg_topic *topic = nullptr;
        detail::call(thalweg_topic_create, handle_.get(), name.c_str(), json.c_str(), &topic);
        return TopicHandle(name, topic);
    }

    TopicHandle openTopic(const std::string &name)
    {
        thalweg_topic *topic = nullptr;
        detail::call(thalweg_topic_open, handle_.get(), name.c_str(), &topic);
        return TopicHandle(name, topic);
    }

    bool topicExists(const std::string &name)
    {
        try {
            openTopic(name);
            return true;
        } catch (const UnknownTopic &) {
            return false;
        }
    }

    /* Adds partitions to a live topic. Options: Partitions, Storage, Options. */
    template <class... Arguments>
    void addPartitions(const std::string &name, const Arguments &...options)
    {
        detail::TopicArguments arguments;
        (arguments.take(options), ...);
        const std::string json = arguments.object.string();
        detail::call(thalweg_topic_add_partitions, handle_.get(), name.c_str(), json.c_str());
    }

    void deleteTopic(const std::string &name)
    {
        detail::call(thalweg_topic_delete, handle_.get(), name.c_str());
    }

    /* All topics, as a JSON list: see thalweg_topic_describe. */
    Metadata listTopics() { return Metadata(detail::text(thalweg_topic_list, handle_.get())); }

    /* The server's state, as JSON. */
    Metadata status() { return Metadata(detail::text(thalweg_driver_status, handle_.get())); }

    /*
     * With Options(R"({"progress": "caller"})") the driver has no thread: this
     * drives it, whenever fd() is readable. See thalweg_driver_progress.
     */
    void progress(int64_t timeout_ms = 0)
    {
        detail::call(thalweg_driver_progress, handle_.get(), timeout_ms);
    }
    int fd() const
    {
        int fd = -1;
        detail::call(thalweg_driver_fd, handle_.get(), &fd);
        return fd;
    }

    ThreadPool makeThreadPool(ThreadCount count) const { return ThreadPool(count); }
    ThreadPool defaultThreadPool() const { return ThreadPool(); }

    /*
     * Sends all acknowledgements, waits until everything that was pushed is
     * acknowledged, and ends the connection. All handles are closed then.
     */
    void close(int64_t timeout_ms = -1)
    {
        detail::call(thalweg_driver_close, handle_.get(), timeout_ms);
    }

    thalweg_driver *handle() const noexcept { return handle_.get(); }

private:
    explicit Driver(thalweg_driver *handle) : handle_(handle) {}
    detail::Owned<thalweg_driver, thalweg_driver_free> handle_;
};

} // namespace thalweg

#endif
