#include "driver.hpp"

#include "topic.hpp"
#include "translate.hpp"

#include <thalweg/compat/options.hpp>

#include <diaspora/PosixThreadPool.hpp>

#include <fstream>
#include <utility>

namespace thalweg_diaspora {

using nlohmann::json;

DIASPORA_REGISTER_DRIVER(thalweg, thalweg, ThalwegDriver);

std::shared_ptr<diaspora::DriverInterface>
ThalwegDriver::create(const diaspora::Metadata &options)
{
    return translated([&] { return std::make_shared<ThalwegDriver>(options.json()); });
}

ThalwegDriver::ThalwegDriver(const json &options)
    : native_(connected(options)), address_(address_in(options)),
      start_from_(options.value("start_from", "")),
      default_pool_(std::make_shared<diaspora::PosixThreadPool>(diaspora::ThreadCount{0}))
{
}

thalweg::Driver ThalwegDriver::connected(const json &options)
{
    if (!options.is_object())
        throw diaspora::Exception("options of the driver are a JSON object");
    json given = json::object();
    thalweg::compat::take(given, options, {"client_name", "namespace", "memory_bytes_max"});
    thalweg::compat::take_seconds(given, options, "connect_timeout");
    thalweg::compat::take_seconds(given, options, "request_timeout");
    for (const char *where : {"directory", "group_file", "address"}) {
        if (!options.contains(where))
            continue;
        if (!options[where].is_string())
            throw diaspora::Exception(std::string("the option ") + where + " is a text, not " +
                                      options[where].dump());
        const auto endpoint = options[where].get<std::string>();
        if (std::string_view(where) == "directory")
            return thalweg::Driver::embedded(endpoint, given.dump());
        return thalweg::Driver(endpoint, given.dump());
    }
    throw diaspora::Exception(
        "the option group_file, the path of the server's group file, is missing");
}

std::string ThalwegDriver::address_in(const json &options)
{
    if (options.contains("directory"))
        return "inproc://";
    if (!options.contains("group_file"))
        return options.value("address", "");
    std::ifstream file(options["group_file"].get<std::string>());
    const json content = json::parse(file, nullptr, false);
    const auto at = json::json_pointer("/members/0/address");
    return content.is_object() && content.contains(at) && content[at].is_string()
               ? content[at].get<std::string>()
               : "";
}

void ThalwegDriver::createTopic(std::string_view name, const diaspora::Metadata &options,
                                std::shared_ptr<diaspora::ValidatorInterface> validator,
                                std::shared_ptr<diaspora::PartitionSelectorInterface> selector,
                                std::shared_ptr<diaspora::SerializerInterface> serializer)
{
    translated([&] {
        const Components components(std::move(validator), std::move(selector),
                                    std::move(serializer));
        const json &given = options.json();
        const json config = given.value("config", json::object());
        const json count = given.value("num_partitions", json(1));
        if (!count.is_number_integer() || count.get<int64_t>() < 0)
            throw diaspora::Exception("num_partitions is the number of partitions, not " +
                                      count.dump());
        json definition = components.definition();
        definition["partitions"] = count;
        definition["metadata_bytes_max"] = thalweg::compat::metadata_bytes_max;
        const std::string storage =
            thalweg::compat::storage_of(config.value("type", std::string("default")));
        if (count > 0)
            definition["storage"] = storage;
        const json partition = config.value("partition", json::object());
        if (storage == "disk" && partition.value("sync", true) == false)
            definition["durability"] = "written";
        native_.createTopic(std::string(name), thalweg::Options(definition.dump()));
        const std::lock_guard<std::mutex> lock(mutex_);
        made_here_[std::string(name)] = components.own();
    });
}

std::shared_ptr<diaspora::TopicHandleInterface>
ThalwegDriver::openTopic(std::string_view name) const
{
    return translated([&] {
        thalweg::TopicHandle topic = native_.openTopic(std::string(name));
        Own own;
        bool known = false;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            const auto found = made_here_.find(std::string(name));
            known = found != made_here_.end();
            if (known)
                own = found->second;
        }
        // Nothing that the interface changes is in it: what it calls constant is a handle.
        auto self = std::const_pointer_cast<ThalwegDriver>(shared_from_this());
        auto made = std::make_shared<Topic>(std::move(self), std::move(topic));
        made->use(known ? std::move(own) : restored(made->definition()));
        return made;
    });
}

bool ThalwegDriver::topicExists(std::string_view name) const
{
    return translated([&] { return native_.topicExists(std::string(name)); });
}

std::unordered_map<std::string, diaspora::Metadata> ThalwegDriver::listTopics() const
{
    return translated([&] {
        std::unordered_map<std::string, diaspora::Metadata> listed;
        for (const json &topic : native_.listTopics().json<json>()) {
            json described = described_components(topic.at("definition"));
            const std::string name = topic.at("name").get<std::string>();
            described["name"] = name;
            described["uuid"] = topic.at("id");
            described["num_partitions"] = thalweg::compat::partition_count(topic);
            listed.emplace(name, diaspora::Metadata(std::move(described)));
        }
        return listed;
    });
}

std::shared_ptr<diaspora::ThreadPoolInterface> ThalwegDriver::defaultThreadPool() const
{
    return default_pool_;
}

std::shared_ptr<diaspora::ThreadPoolInterface>
ThalwegDriver::makeThreadPool(diaspora::ThreadCount count) const
{
    return std::make_shared<diaspora::PosixThreadPool>(count);
}

} // namespace thalweg_diaspora
