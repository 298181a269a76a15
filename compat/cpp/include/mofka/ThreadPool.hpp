#ifndef MOFKA_THREAD_POOL_HPP
#define MOFKA_THREAD_POOL_HPP

#include <mofka/Exception.hpp>
#include <mofka/Future.hpp>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace mofka {

struct ThreadCount {
    std::size_t count;

    explicit constexpr ThreadCount(std::size_t val) : count(val) {}
};

/*
 * Threads for what a program gives them; with none, whoever gives something does
 * it. They begin with the first work: Thalweg needs none, and producers and
 * consumers only tell of theirs again. A shared handle; the last one waits
 * until all is done.
 */
class ThreadPool {
public:
    ThreadPool(ThreadCount count = ThreadCount{1}) : self_(std::make_shared<Held>(count.count)) {}

    ThreadCount threadCount() const { return ThreadCount{self_->count}; }

    /* Does `func`, soon: work of a lower priority number first, then in turn. */
    void pushWork(std::function<void()> func,
                  uint64_t priority = std::numeric_limits<uint64_t>::max()) const
    {
        if (self_->count == 0) {
            func();
            return;
        }
        std::call_once(self_->begun, [this] { self_->begin(); });
        self_->work->add(std::move(func), priority);
    }

    /* How much there is to do, what is being done included. */
    size_t size() const
    {
        const std::lock_guard<std::mutex> lock(self_->work->mutex);
        return self_->work->waiting.size() + self_->work->running;
    }

    explicit operator bool() const noexcept { return static_cast<bool>(self_); }

private:
    /* What threads do. They hold it themselves, for work may hold the last handle of its pool. */
    struct Work {
        void add(std::function<void()> func, uint64_t priority)
        {
            {
                const std::lock_guard<std::mutex> lock(mutex);
                waiting.emplace(std::make_pair(priority, number++), std::move(func));
            }
            changed.notify_one();
        }

        void end()
        {
            {
                const std::lock_guard<std::mutex> lock(mutex);
                ends = true;
            }
            changed.notify_all();
        }

        /* Until the end, and until all is done. */
        void run()
        {
            std::unique_lock<std::mutex> lock(mutex);
            while (true) {
                changed.wait(lock, [this] { return ends || !waiting.empty(); });
                if (waiting.empty())
                    return;
                std::function<void()> func = std::move(waiting.begin()->second);
                waiting.erase(waiting.begin());
                running++;
                lock.unlock();
                func();
                func = nullptr;
                lock.lock();
                running--;
            }
        }

        std::mutex mutex;
        std::condition_variable changed;
        // All below is guarded by the mutex.
        std::map<std::pair<uint64_t, uint64_t>, std::function<void()>> waiting;
        uint64_t number = 0;
        size_t running = 0;
        bool ends = false;
    };

    struct Held {
        explicit Held(size_t count_) : count(count_) {}
        Held(const Held &) = delete;
        Held &operator=(const Held &) = delete;

        ~Held()
        {
            work->end();
            for (std::thread &thread : threads) {
                if (thread.get_id() == std::this_thread::get_id())
                    thread.detach();
                else
                    thread.join();
            }
        }

        void begin()
        {
            for (size_t index = 0; index < count; index++)
                threads.emplace_back([work = work] { work->run(); });
        }

        const size_t count;
        const std::shared_ptr<Work> work = std::make_shared<Work>();
        std::once_flag begun;
        std::vector<std::thread> threads;
    };

    std::shared_ptr<Held> self_;
};

} // namespace mofka

#endif
