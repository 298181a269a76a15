/*
 * Topics as programs for Mofka and for Diaspora's API name them, in Thalweg's
 * words: what is checked, who chooses partitions, how they are stored.
 */
#ifndef THALWEG_COMPAT_DEFINITION_HPP
#define THALWEG_COMPAT_DEFINITION_HPP

#include <thalweg/compat/schema.hpp>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::compat {

/* A definition that means nothing. Each API has an exception of its own to say so with. */
struct InvalidDefinition : std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

/* The three parts of a topic that have a type. */
enum class Part { Validator, PartitionSelector, Serializer };

inline const char *name(Part part)
{
    switch (part) {
    case Part::Validator: return "validator";
    case Part::PartitionSelector: return "partition selector";
    case Part::Serializer: return "serializer";
    }
    return "";
}

/* Its type, "default" if it does not say. */
inline std::string type_of(const nlohmann::json &described)
{
    if (!described.is_object())
        throw InvalidDefinition("what describes a validator, a partition selector or a "
                                "serializer is an object, not " + described.dump());
    if (!described.contains("type"))
        return "default";
    if (!described["type"].is_string())
        throw InvalidDefinition("a type is a text, not " + described["type"].dump());
    return described["type"].get<std::string>();
}

/* Whether Thalweg has that type itself. */
inline bool is_known(Part part, const std::string &type)
{
    return type == "default" || (type == "schema" && part != Part::PartitionSelector) ||
           (type == "eventbridge" && part == Part::Validator);
}

/* What a program described, as a topic's definition has it. */
inline nlohmann::json native_of(Part part, const nlohmann::json &described)
{
    using Json = nlohmann::json;
    const std::string type = type_of(described);
    if (type.find(':') != std::string::npos) {
        Json options = described;
        options.erase("type");
        return Json{{"type", "plugin"}, {"name", type}, {"options", std::move(options)}};
    }
    if (!is_known(part, type))
        throw InvalidDefinition("there is no " + std::string(name(part)) + " \"" + type +
                                "\"; known: default, schema, eventbridge for what they are for, "
                                "or name:library.so with a plugin of Thalweg's");
    if (type == "default") {
        if (part == Part::PartitionSelector)
            return Json{{"type", "round_robin"}};
        return Json{{"type", "json"}};
    }
    if (!described.contains("schema") || !described["schema"].is_object())
        throw InvalidDefinition("the " + std::string(name(part)) + " " + type +
                                " needs a schema, which is an object");
    if (type == "eventbridge")
        return Json{{"type", "eventbridge"}, {"pattern", described["schema"]}};
    return Json{{"type", "schema"}, {"schema", Modernized::schema(described["schema"])}};
}

/* The other way: a part of a topic's definition, as programs know it. */
inline nlohmann::json described_of(Part part, const nlohmann::json &native)
{
    nlohmann::json described = native;
    const std::string type = type_of(native);
    if (type == "plugin") {
        described = native.value("options", nlohmann::json::object());
        described["type"] = native.value("name", "");
    } else if (type == "eventbridge") {
        described.erase("pattern");
        described["schema"] = native.value("pattern", nlohmann::json::object());
    } else if ((part == Part::PartitionSelector && type == "round_robin") ||
               (part != Part::PartitionSelector && type == "json")) {
        described["type"] = "default";
    }
    return described;
}

/* The storage that a type of partition stands for; other names are an operator's own. */
inline std::string storage_of(const std::string &type)
{
    return type == "default" || type == "legacy" ? "disk" : type;
}

/* Metadata is not limited by Mofka; by this much here, so that batches stay within limits. */
constexpr uint64_t metadata_bytes_max = uint64_t(32) << 20;

/* How many partitions a topic was described to have: thalweg_topic_describe. */
inline size_t partition_count(const nlohmann::json &topic)
{
    return topic.at("partitions").size();
}

/* A partition: `uuid`, `address` and `provider_id`, and Thalweg's words for it. */
inline nlohmann::json partition_of(const nlohmann::json &topic, size_t index,
                                   const std::string &address)
{
    nlohmann::json made{{"address", address}, {"provider_id", index}, {"index", index}};
    std::string id = topic.value("id", "");
    if (id.size() == 32) {
        // The topic's, with the partition's index added to its last four bytes.
        const auto last = static_cast<uint32_t>(std::stoul(id.substr(24), nullptr, 16) + index);
        char digits[9];
        std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(last));
        id.replace(24, 8, digits);
        for (const size_t at : {20, 16, 12, 8})
            id.insert(at, "-");
    }
    made["uuid"] = id;
    const nlohmann::json &partitions = topic.at("partitions");
    if (index < partitions.size())
        for (const char *key : {"storage", "durability"})
            if (partitions[index].contains(key))
                made[key] = partitions[index][key];
    return made;
}

} // namespace thalweg::compat

#endif
