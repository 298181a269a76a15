#ifndef MOFKA_DRIVER_HPP
#define MOFKA_DRIVER_HPP

#include <mofka/Engine.hpp>
#include <mofka/Exception.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/PartitionSelector.hpp>
#include <mofka/Serializer.hpp>
#include <mofka/ThreadPool.hpp>
#include <mofka/Topic.hpp>
#include <mofka/TopicHandle.hpp>
#include <mofka/Validator.hpp>

#include <thalweg/compat/definition.hpp>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mofka {

/* A connection to a server, from which topics come. A shared handle. */
class MofkaDriver {
public:
    /* What a partition would be put together from; passed over. */
    using Dependencies = std::unordered_map<std::string, std::vector<std::string>>;
    using PartitionDependencies = Dependencies;

    /* One that stands for nothing. */
    MofkaDriver() = default;

    /*
     * Connects by the group file that `thalweg serve --group-file` writes. There
     * is nothing that a progress thread would have to do.
     */
    MofkaDriver(const std::string &groupfile, bool use_progress_thread = false)
    {
        static_cast<void>(use_progress_thread);
        std::string address = address_in(groupfile);
        self_ = detail::translated(
            [&] { return std::make_shared<detail::Connection>(groupfile, std::move(address)); });
    }

    /* The same; an engine of the program's is passed over. */
    template <class Engine, class = std::enable_if_t<std::is_class<Engine>::value>>
    MofkaDriver(const std::string &groupfile, const Engine &) : MofkaDriver(groupfile)
    {
    }

    operator bool() const noexcept { return static_cast<bool>(self_); }

    void startProgressThread() const {}

    /* There is one server, of rank 0. */
    size_t numServers() const { return 1; }

    /* Makes a topic, without partitions. Throws if there is one of that name. */
    void createTopic(std::string_view name, Validator validator = Validator{},
                     PartitionSelector selector = PartitionSelector{},
                     Serializer serializer = Serializer{})
    {
        using thalweg::compat::native_of;
        using thalweg::compat::Part;
        detail::translated([&] {
            const nlohmann::json definition{
                {"partitions", 0},
                {"validator", native_of(Part::Validator, validator.metadata().json())},
                {"partition_selector",
                 native_of(Part::PartitionSelector, selector.metadata().json())},
                {"serializer", native_of(Part::Serializer, serializer.metadata().json())},
                {"metadata_bytes_max", thalweg::compat::metadata_bytes_max},
            };
            self_->driver.createTopic(std::string(name), thalweg::Options(definition.dump()));
        });
    }

    /* Opens a topic. Throws if there is none of that name. */
    TopicHandle openTopic(std::string_view name)
    {
        return detail::translated([&] {
            return TopicHandle(std::make_shared<detail::Topic>(self_, std::string(name)));
        });
    }

    bool topicExists(std::string_view name)
    {
        return detail::translated([&] { return self_->driver.topicExists(std::string(name)); });
    }

    /* A pool without threads of its own. */
    ThreadPool defaultThreadPool() const { return ThreadPool{ThreadCount{0}}; }

    /* A word for a place for metadata, for calls that want one. The server has its own. */
    std::string addDefaultMetadataProvider(size_t server_rank, const Metadata & = Metadata{},
                                           const Dependencies & = Dependencies{})
    {
        return provider("metadata", server_rank);
    }

    /* A word for a place for data, for calls that want one. The server has its own. */
    std::string addDefaultDataProvider(size_t server_rank, const Metadata & = Metadata{},
                                       const Dependencies & = Dependencies{})
    {
        return provider("data", server_rank);
    }

    /*
     * Adds a partition of a type: "memory", "default", or the name of a storage
     * that the server's operator brought. The rest is passed over.
     */
    void addCustomPartition(std::string_view topic_name, size_t server_rank,
                            std::string_view partition_type = "memory",
                            const Metadata & = Metadata{}, const Dependencies & = Dependencies{},
                            std::string_view = "")
    {
        check_rank(server_rank);
        detail::translated([&] {
            const std::string storage =
                thalweg::compat::storage_of(std::string(partition_type));
            self_->driver.addPartitions(std::string(topic_name), thalweg::Partitions(1),
                                        thalweg::Storage(storage));
        });
    }

    /* Adds a partition in the server's memory. */
    void addMemoryPartition(std::string_view topic_name, size_t server_rank,
                            std::string_view = "")
    {
        addCustomPartition(topic_name, server_rank, "memory");
    }

    /* Adds a partition on the server's disk. Providers and pools are passed over. */
    void addDefaultPartition(std::string_view topic_name, size_t server_rank,
                             std::string_view = {}, std::string_view = {},
                             const Metadata & = Metadata{}, std::string_view = "")
    {
        addCustomPartition(topic_name, server_rank, "default");
    }

private:
    void check_rank(size_t server_rank) const
    {
        if (server_rank >= numServers())
            throw Exception("there is no server of rank " + std::to_string(server_rank) +
                            ": there is 1");
    }

    std::string provider(const char *what, size_t server_rank) const
    {
        static std::atomic<unsigned> count{0};
        check_rank(server_rank);
        return std::string("thalweg_") + what + "_" + std::to_string(++count) + "@local";
    }

    /* The first address of a group file. */
    static std::string address_in(const std::string &groupfile)
    {
        std::ifstream file(groupfile);
        if (!file.is_open())
            throw Exception("Could not open group file " + groupfile);
        const auto content = nlohmann::json::parse(file, nullptr, false);
        const auto at = nlohmann::json::json_pointer("/members/0/address");
        if (!content.is_object() || !content.contains(at) || !content[at].is_string())
            throw Exception("Group file " + groupfile +
                            " doesn't appear to be a correctly formatted group file");
        return content[at].get<std::string>();
    }

    std::shared_ptr<detail::Connection> self_;
};

} // namespace mofka

#endif
