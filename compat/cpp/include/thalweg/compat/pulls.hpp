/*
 * Pulls that may be waited for in any order, with and without a timeout, from
 * any thread, and given up: whoever pulled first gets the first event, and none
 * is lost.
 */
#ifndef THALWEG_COMPAT_PULLS_HPP
#define THALWEG_COMPAT_PULLS_HPP

#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace thalweg::compat {

/* The header of the tombstone that ends a partition, in programs of every language. */
constexpr const char *complete = "thalweg-mofka-complete";

class Pulls;

/* One pull. To be let go of whenever one likes. */
class Pull {
public:
    explicit Pull(std::shared_ptr<Pulls> pulls) : pulls_(std::move(pulls)) {}
    ~Pull();
    Pull(const Pull &) = delete;
    Pull &operator=(const Pull &) = delete;

    /*
     * Waits up to `timeout_ms` (negative: for ever; 0 only looks). False when
     * that has passed; it may be asked again. Throws what pulling failed with.
     */
    bool wait(int64_t timeout_ms);

    /* Whether there is an event, or none will come. Does not block. */
    bool completed() { return wait(0); }

    /* What it got, once it is through: nothing at the end of the topic. */
    const std::optional<Event> &event() const
    {
        taken_ = true;
        return event_;
    }

private:
    friend class Pulls;

    const std::shared_ptr<Pulls> pulls_;
    // Guarded by the mutex of Pulls until `done_`, and not changed any more then.
    bool done_ = false;
    uint64_t number_ = 0;
    std::optional<Event> event_;
    mutable bool taken_ = false;
};

/*
 * The pulls of one consumer. Those that were begun wait in a line; of the
 * threads that wait for one of them, one pulls for all.
 */
class Pulls : public std::enable_shared_from_this<Pulls> {
public:
    explicit Pulls(Consumer consumer) : consumer_(std::move(consumer)) {}

    ~Pulls() { finish(); }

    Pulls(const Pulls &) = delete;
    Pulls &operator=(const Pulls &) = delete;

    std::shared_ptr<Pull> begin()
    {
        auto pull = std::make_shared<Pull>(shared_from_this());
        const std::lock_guard<std::mutex> lock(mutex_);
        line_.push_back(pull.get());
        return pull;
    }

    /* Pulls that wait, and those to come, are at the end of the topic. */
    void close()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closed_ = true;
        if (under_way_)
            under_way_->cancel();
        changed_.notify_all();
    }

    /* The same, and waits for the last acknowledgements, for a moment. */
    void finish() noexcept
    {
        try {
            close();
            settle(last_acknowledgements_ms);
        } catch (const Error &) {
            // Nobody is left to be told; the events come again.
        }
    }

    void acknowledge(const Event &event)
    {
        event.acknowledge();
        const std::lock_guard<std::mutex> lock(mutex_);
        unsettled_ = true;
    }

    /* Waits until what was acknowledged is durable. */
    void settle(int64_t timeout_ms = 120'000)
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (!std::exchange(unsettled_, false))
                return;
        }
        consumer_.flush(timeout_ms);
    }

private:
    friend class Pull;
    using Clock = std::chrono::steady_clock;
    using Deadline = std::optional<Clock::time_point>;

    static constexpr int64_t last_acknowledgements_ms = 10'000;

    static Deadline deadline_in(int64_t timeout_ms)
    {
        // Longer ones are no different from for ever, and would overflow.
        constexpr int64_t longest_ms = int64_t(1000) * 3600 * 24 * 365;
        if (timeout_ms < 0 || timeout_ms > longest_ms)
            return std::nullopt;
        return Clock::now() + std::chrono::milliseconds(timeout_ms);
    }

    bool wait(Pull &pull, int64_t timeout_ms)
    {
        const Deadline deadline = deadline_in(timeout_ms);
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            hand_out();
            if (pull.done_)
                return true;
            if (pulling_) {
                // Somebody pulls already, for all who wait.
                if (!deadline)
                    changed_.wait(lock);
                else if (changed_.wait_until(lock, *deadline) == std::cv_status::timeout) {
                    hand_out();
                    return pull.done_;
                }
                continue;
            }
            const bool over = pull_one(lock, deadline);
            changed_.notify_all();
            if (over) {
                hand_out();
                return pull.done_;
            }
        }
    }

    /* Gives what is there to those who wait, in the order of their pulls. */
    void hand_out()
    {
        while (!line_.empty() && (!events_.empty() || ended_ || closed_)) {
            Pull &first = *line_.front();
            line_.pop_front();
            if (!events_.empty() && !closed_) {
                const auto next = events_.begin();
                first.number_ = next->first;
                first.event_ = std::move(next->second);
                events_.erase(next);
            }
            first.done_ = true;
        }
    }

    /* Pulls an event. Whether the time has passed. Throws what pulling failed with. */
    bool pull_one(std::unique_lock<std::mutex> &lock, const Deadline &deadline)
    {
        pulling_ = true;
        lock.unlock();
        std::optional<Event> event;
        try {
            event = look();
            if (!event && !(deadline && Clock::now() >= *deadline))
                event = pull_until(deadline);
        } catch (const Cancelled &) {
            // Closed meanwhile.
        } catch (...) {
            lock.lock();
            pulling_ = false;
            under_way_.reset();
            changed_.notify_all();
            throw;
        }
        lock.lock();
        pulling_ = false;
        under_way_.reset();
        if (event)
            take(std::move(*event));
        else if (!closed_)
            return deadline && Clock::now() >= *deadline;
        return false;
    }

    /* An event, if it is here. A server that is away says nothing of what there is. */
    std::optional<Event> look()
    {
        try {
            return consumer_.pull(0);
        } catch (const Unreachable &) {
        } catch (const Recovering &) {
        }
        return std::nullopt;
    }

    /* Waits for an event without holding the lock, so that close() can end it. */
    std::optional<Event> pull_until(const Deadline &deadline)
    {
        auto future = std::make_shared<Future<Event>>(consumer_.pull());
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (closed_)
                return std::nullopt;
            under_way_ = future;
        }
        int64_t left_ms = -1;
        if (deadline) {
            const auto left = *deadline - Clock::now();
            // Rounded up: not to look once more before the time has passed.
            left_ms = std::max<int64_t>(
                0, std::chrono::ceil<std::chrono::milliseconds>(left).count());
        }
        return future->wait(left_ms);
    }

    void take(Event event)
    {
        if (event.tombstone()) {
            bool ends = false;
            for (const auto &[name, value] : event.headers())
                ends = ends || name == complete;
            if (ends) {
                completed_.insert(event.partition());
                const std::vector<uint32_t> read = consumer_.partitions();
                ended_ = std::all_of(read.begin(), read.end(), [this](uint32_t partition) {
                    return completed_.count(partition) > 0;
                });
                return;
            }
        }
        events_.emplace(count_++, std::move(event));
    }

    /* A pull that is let go of: its event is the next one's. */
    void let_go(Pull &pull)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!pull.done_)
            line_.remove(&pull);
        else if (pull.event_ && !pull.taken_) {
            events_.emplace(pull.number_, std::move(*pull.event_));
            changed_.notify_all();
        }
    }

    Consumer consumer_;
    std::mutex mutex_;
    // All below is guarded by the mutex. Told whenever there may be news for who waits.
    std::condition_variable changed_;
    std::list<Pull *> line_;
    // What nobody has yet, by number, which is the order in which it came.
    std::map<uint64_t, Event> events_;
    uint64_t count_ = 0;
    std::set<uint32_t> completed_;
    bool ended_ = false;
    bool closed_ = false;
    bool pulling_ = false;
    bool unsettled_ = false;
    std::shared_ptr<Future<Event>> under_way_;
};

inline Pull::~Pull()
{
    pulls_->let_go(*this);
}

inline bool Pull::wait(int64_t timeout_ms)
{
    return pulls_->wait(*this, timeout_ms);
}

} // namespace thalweg::compat

#endif
