/*
 * Thalweg as a driver of Diaspora's streaming API: `thalweg`.
 */
#ifndef THALWEG_DIASPORA_DRIVER_HPP
#define THALWEG_DIASPORA_DRIVER_HPP

#include "components.hpp"

#include <thalweg/compat/names.hpp>
#include <thalweg/thalweg.hpp>

#include <diaspora/Driver.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace thalweg_diaspora {

/*
 * A connection to a server. Options: `group_file`, the file that `thalweg serve`
 * writes, or `address`, or `directory` for a server within this process;
 * `start_from`: "latest" lets consumers of a new name begin at the end;
 * `client_name`, `namespace`, `memory_bytes_max`, and in seconds
 * `connect_timeout`, `request_timeout`. Others, such as `margo`, are passed over.
 */
class ThalwegDriver : public diaspora::DriverInterface,
                      public std::enable_shared_from_this<ThalwegDriver> {
public:
    static std::shared_ptr<diaspora::DriverInterface> create(const diaspora::Metadata &options);

    explicit ThalwegDriver(const nlohmann::json &options);

    /*
     * Options of a topic: `num_partitions` (1), and in `config` their `type`, which
     * is `memory`, or `default` for the server's disk; if its `partition` says that
     * `sync` is false, events survive the server's death and not a power loss.
     */
    void createTopic(std::string_view name, const diaspora::Metadata &options,
                     std::shared_ptr<diaspora::ValidatorInterface> validator,
                     std::shared_ptr<diaspora::PartitionSelectorInterface> selector,
                     std::shared_ptr<diaspora::SerializerInterface> serializer) override;
    std::shared_ptr<diaspora::TopicHandleInterface>
    openTopic(std::string_view name) const override;
    bool topicExists(std::string_view name) const override;
    std::unordered_map<std::string, diaspora::Metadata> listTopics() const override;
    std::shared_ptr<diaspora::ThreadPoolInterface> defaultThreadPool() const override;
    std::shared_ptr<diaspora::ThreadPoolInterface>
    makeThreadPool(diaspora::ThreadCount count) const override;

    const std::string &address() const { return address_; }
    const std::string &start_from() const { return start_from_; }

    thalweg::compat::Names &consumers() { return consumers_; }

private:
    static thalweg::Driver connected(const nlohmann::json &options);
    static std::string address_in(const nlohmann::json &options);

    // Thalweg's own handles may be used by all threads at once.
    mutable thalweg::Driver native_;
    const std::string address_;
    std::string start_from_;
    const std::shared_ptr<diaspora::ThreadPoolInterface> default_pool_;
    thalweg::compat::Names consumers_;
    mutable std::mutex mutex_;
    // Guarded by the mutex: what topics were made with here.
    std::map<std::string, Own> made_here_;
};

} // namespace thalweg_diaspora

#endif
