/*
 * Thalweg's C++17 interface: what becomes of a call. Include thalweg.hpp.
 */
#ifndef THALWEG_FUTURE_HPP
#define THALWEG_FUTURE_HPP

#include <thalweg/error.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace thalweg {

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

} // namespace thalweg

#endif
