/*
 * Events that are processed on the threads of a pool.
 */
#ifndef THALWEG_COMPAT_PROCESSING_HPP
#define THALWEG_COMPAT_PROCESSING_HPP

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>

namespace thalweg::compat {

/*
 * What is under way, and what became of it. `Stop` is what a processor throws
 * that has seen enough. Ends when all that is under way has.
 */
template <class Stop> class Processing {
public:
    Processing() = default;
    ~Processing() { wait(); }
    Processing(const Processing &) = delete;
    Processing &operator=(const Processing &) = delete;

    /* Waits until fewer than so many are under way; false once one of them said stop. */
    bool space(size_t ahead)
    {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return under_way_ < ahead; });
        return !stopped_;
    }

    /* One is given to a thread, which is to `run` it. */
    void begin()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        under_way_++;
    }

    template <class Call> void run(Call call)
    {
        bool stop = false;
        std::exception_ptr thrown;
        try {
            call();
        } catch (const Stop &) {
            stop = true;
        } catch (...) {
            stop = true;
            thrown = std::current_exception();
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        stopped_ = stopped_ || stop;
        if (thrown && !thrown_)
            thrown_ = thrown;
        under_way_--;
        // Under the lock: whoever is woken by it ends this object.
        changed_.notify_all();
    }

    /* Waits for the last of them; throws what one of them threw besides. */
    void finish()
    {
        wait();
        if (thrown_)
            std::rethrow_exception(thrown_);
    }

private:
    void wait()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return under_way_ == 0; });
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    size_t under_way_ = 0;
    bool stopped_ = false;
    std::exception_ptr thrown_;
};

} // namespace thalweg::compat

#endif
