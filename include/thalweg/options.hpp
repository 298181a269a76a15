/*
 * Thalweg's C++17 interface: what can be chosen. Include thalweg.hpp.
 */
#ifndef THALWEG_OPTIONS_HPP
#define THALWEG_OPTIONS_HPP

#include <thalweg/data.hpp>

#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

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
 * Whether events are stored in the order of their pushes. Loose lets the
 * threads of a ThreadPool hand them on as they are ready; without threads it
 * changes nothing.
 */
enum class Ordering { Strict, Loose };

struct ThreadCount {
    size_t value;
    explicit constexpr ThreadCount(size_t count) : value(count) {}
};

/*
 * How many threads of its own a producer validates and serializes on; with
 * none, the default, that is done on the thread that pushes. A consumer calls
 * selectors and allocators on the thread that pulls, whatever it is given.
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
    /* With so many last events of each partition, or with as many as it has. */
    static Start Last(uint32_t count) { return Start("\"-" + std::to_string(count) + "\""); }
    /* So long ago: with the first batch that the server took then or later. */
    static Start Ago(std::chrono::nanoseconds ago)
    {
        using clock = std::chrono::system_clock;
        return At(clock::now() - std::chrono::duration_cast<clock::duration>(ago));
    }
    /* With the first batch that the server took at this time or later. */
    static Start At(std::chrono::system_clock::time_point time)
    {
        using std::chrono::nanoseconds;
        auto since = std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
        return Start("{\"time_ns\":" + std::to_string(since < 0 ? 0 : since) + "}");
    }
    const std::string &json() const noexcept { return json_; }

private:
    explicit Start(std::string json) : json_(std::move(json)) {}
    std::string json_;
};

/*
 * Whether only the newest event of each partition comes, for viewers: one that was not pulled
 * when a newer one arrives is passed over, and counted by Consumer::skipped(). Begins with the
 * newest event there is, unless Start says otherwise.
 */
struct Latest {
    bool value;
    explicit constexpr Latest(bool latest = true) : value(latest) {}
};

/* Where a bounded read ends: behind what is visible when it begins, or sooner. */
class End {
public:
    static End Now() { return End("\"now\""); }
    /* In each partition before the event at this offset. */
    static End Before(uint64_t offset) { return End(std::to_string(offset)); }
    /* Before the first event that the server appended so long ago or later. */
    static End Ago(std::chrono::nanoseconds ago)
    {
        using clock = std::chrono::system_clock;
        return Before(clock::now() - std::chrono::duration_cast<clock::duration>(ago));
    }
    /* Before the first event that the server appended at this time or later. */
    static End Before(std::chrono::system_clock::time_point time)
    {
        using std::chrono::nanoseconds;
        auto since = std::chrono::duration_cast<nanoseconds>(time.time_since_epoch()).count();
        return End("{\"time_ns\":" + std::to_string(since < 0 ? 0 : since) + "}");
    }
    const std::string &json() const noexcept { return json_; }

private:
    explicit End(std::string json) : json_(std::move(json)) {}
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

/* Whether `Arguments` takes an option of this type. */
template <class Arguments, class Option, class = void> struct TakesOne : std::false_type {};
template <class Arguments, class Option>
struct TakesOne<Arguments, Option,
                std::void_t<decltype(std::declval<Arguments &>().take(
                    std::declval<const Option &>()))>> : std::true_type {};
template <class Arguments, class... Options>
constexpr bool takes = (TakesOne<Arguments, Options>::value && ...);

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

/*
 * Whether createTopic opens a topic of that name that is there already, as it is; the
 * other options change nothing of it then. Without it createTopic throws TopicExists.
 */
struct ExistOk {
    bool value;
    explicit constexpr ExistOk(bool exist_ok = true) : value(exist_ok) {}
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

} // namespace thalweg

#endif
