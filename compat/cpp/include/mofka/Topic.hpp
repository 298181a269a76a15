#ifndef MOFKA_TOPIC_HPP
#define MOFKA_TOPIC_HPP

#include <mofka/Exception.hpp>
#include <mofka/PartitionSelector.hpp>

#include <thalweg/compat/definition.hpp>
#include <thalweg/compat/names.hpp>
#include <thalweg/thalweg.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mofka::detail {

/* A connection, which all that comes from it keeps. */
struct Connection {
    Connection(const std::string &endpoint, std::string address_)
        : driver(endpoint), address(std::move(address_))
    {
    }

    thalweg::Driver driver;
    const std::string address;
    thalweg::compat::Names consumers;
};

/* A topic that is open, as it was when it was opened. */
struct Topic {
    Topic(std::shared_ptr<Connection> connection_, const std::string &name_)
        : connection(std::move(connection_)), handle(connection->driver.openTopic(name_)),
          described(handle.describe().json<nlohmann::json>())
    {
        for (size_t index = 0; index < thalweg::compat::partition_count(described); index++)
            partitions.push_back(partition(index));
    }

    PartitionInfo partition(size_t index) const
    {
        return PartitionInfo(
            thalweg::compat::partition_of(described, index, connection->address));
    }

    nlohmann::json part(thalweg::compat::Part part, const char *key) const
    {
        return thalweg::compat::described_of(part, described.at("definition").at(key));
    }

    const std::shared_ptr<Connection> connection;
    const thalweg::TopicHandle handle;
    const nlohmann::json described;
    std::vector<PartitionInfo> partitions;
};

} // namespace mofka::detail

#endif
