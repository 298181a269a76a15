#ifndef MOFKA_FUTURE_HPP
#define MOFKA_FUTURE_HPP

#include <mofka/Exception.hpp>

#include <functional>
#include <utility>

namespace mofka {

/* What becomes of a call. Copies stand for the same, and each may be waited for. */
template <typename ResultType, typename WaitFn = std::function<ResultType()>,
          typename TestFn = std::function<bool()>>
class Future {
public:
    /* One that stands for nothing. */
    Future() = default;
    Future(WaitFn wait_fn, TestFn completed_fn)
        : wait_(std::move(wait_fn)), completed_(std::move(completed_fn))
    {
    }

    operator bool() const { return static_cast<bool>(wait_) || static_cast<bool>(completed_); }

    /* Waits for the result, as often as one likes. */
    ResultType wait() const
    {
        if (!wait_)
            throw Exception("Calling Future::wait on an invalid future");
        return wait_();
    }

    /* Whether there is a result. Does not block. */
    bool completed() const
    {
        if (!completed_)
            throw Exception("Calling Future::completed on an invalid future");
        return completed_();
    }

private:
    WaitFn wait_;
    TestFn completed_;
};

} // namespace mofka

#endif
