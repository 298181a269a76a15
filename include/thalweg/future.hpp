/*
 * Thalweg's C++17 interface: what becomes of a call. Include thalweg.hpp.
 */
#ifndef THALWEG_FUTURE_HPP
#define THALWEG_FUTURE_HPP

#include <thalweg/error.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <ratio>
#include <type_traits>
#include <utility>

namespace thalweg {

/* ---------------------------------------------------------- duration --- */

/*
 * How long something takes or may take: any std::chrono::duration, or a whole number
 * of milliseconds. Converted to milliseconds, rounded up, so that a wait is never
 * shorter than asked for; above 100 years it is 100 years.
 *
 * A negative number of milliseconds is the limit that the operation has by itself,
 * which for pulls and futures is none. A negative std::chrono::duration, such as the
 * time left until a deadline that has passed, is 0: it only looks.
 */
class Duration {
public:
    template <class Number, std::enable_if_t<std::is_integral<Number>::value &&
                                                 !std::is_same<Number, bool>::value,
                                             int> = 0>
    constexpr Duration(Number milliseconds) noexcept : milliseconds_(capped(milliseconds))
    {
    }

    template <class Rep, class Period>
    constexpr Duration(std::chrono::duration<Rep, Period> duration) noexcept
        : milliseconds_(rounded_up<Period>(duration.count()))
    {
    }

    /* Milliseconds; negative: the operation's own limit. */
    constexpr int64_t milliseconds() const noexcept { return milliseconds_; }

private:
    static constexpr int64_t MAX = int64_t{100} * 365 * 24 * 3600 * 1000;

    template <class Number> static constexpr int64_t capped(Number milliseconds) noexcept
    {
        if constexpr (std::is_signed<Number>::value)
            if (milliseconds < 0)
                return -1;
        return static_cast<uint64_t>(milliseconds) < static_cast<uint64_t>(MAX)
                   ? static_cast<int64_t>(milliseconds)
                   : MAX;
    }

    template <class Period, class Rep> static constexpr int64_t rounded_up(Rep count) noexcept
    {
        // Also of a number that is none.
        if (!(count > Rep(0)))
            return 0;
        using PerMillisecond = std::ratio_divide<Period, std::milli>;
        // Compared first, so that neither the product nor the conversion overflows.
        const long double exact = static_cast<long double>(count) *
                                  static_cast<long double>(PerMillisecond::num) /
                                  static_cast<long double>(PerMillisecond::den);
        if (exact >= static_cast<long double>(MAX))
            return MAX;
        const auto whole = static_cast<int64_t>(exact);
        // 0.001 s as a double is a little more than 1 ms: below half a nanosecond it is no more.
        const bool is_more = exact - static_cast<long double>(whole) > 5e-7L;
        return whole == 0 || is_more ? whole + 1 : whole;
    }

    int64_t milliseconds_;
};

namespace detail {

/* A time that has no limit of its own. */
inline uint64_t not_negative(Duration duration)
{
    if (duration.milliseconds() < 0)
        refuse(THALWEG_INVALID_ARGUMENT, "the time is negative: it is 0 or more milliseconds");
    return static_cast<uint64_t>(duration.milliseconds());
}

} // namespace detail

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

    /* As partition/incarnation/offset. */
    friend std::ostream &operator<<(std::ostream &stream, const EventID &id)
    {
        return stream << id.partition << '/' << id.incarnation << '/' << id.offset;
    }
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
     * Waits for the result, up to `timeout` (negative: for ever); nothing when that
     * has passed, and it may be waited for again. Throws what it failed with. Asked
     * again, it gives the same again.
     */
    std::optional<T> wait(Duration timeout = -1)
    {
        if (value_)
            return value_;
        thalweg_error error;
        if (thalweg_future_wait(valid(), timeout.milliseconds(), &error) != THALWEG_OK) {
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

} // namespace thalweg

#endif
