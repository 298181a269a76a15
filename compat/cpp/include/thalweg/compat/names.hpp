/*
 * The consumers of a connection, by name: the next one of a name begins behind
 * what those before it acknowledged.
 */
#ifndef THALWEG_COMPAT_NAMES_HPP
#define THALWEG_COMPAT_NAMES_HPP

#include <thalweg/compat/pulls.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::compat {

class Names {
public:
    /* Makes durable what consumers of that name acknowledged. */
    void settle(const std::string &name)
    {
        std::vector<std::shared_ptr<Pulls>> living;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            std::vector<std::weak_ptr<Pulls>> left;
            for (const auto &consumer : consumers_[name])
                if (auto pulls = consumer.lock()) {
                    living.push_back(std::move(pulls));
                    left.push_back(consumer);
                }
            consumers_[name] = std::move(left);
        }
        for (const auto &pulls : living)
            pulls->settle();
    }

    void remember(const std::string &name, const std::shared_ptr<Pulls> &pulls)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        consumers_[name].push_back(pulls);
    }

private:
    std::mutex mutex_;
    // Guarded by the mutex.
    std::map<std::string, std::vector<std::weak_ptr<Pulls>>> consumers_;
};

} // namespace thalweg::compat

#endif
