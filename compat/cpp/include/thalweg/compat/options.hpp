/*
 * What programs ask of producers and consumers, as the JSON of thalweg.h.
 */
#ifndef THALWEG_COMPAT_OPTIONS_HPP
#define THALWEG_COMPAT_OPTIONS_HPP

#include <thalweg/compat/definition.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::compat {

/* The size of a batch that says that Thalweg is to find it. */
constexpr size_t adaptive = std::numeric_limits<size_t>::max();

/* Copies a time in seconds to the same in milliseconds. */
inline void take_seconds(nlohmann::json &made, const nlohmann::json &given, const char *key)
{
    if (!given.contains(key))
        return;
    if (!given[key].is_number())
        throw InvalidDefinition(std::string(key) + " is in seconds, not " + given[key].dump());
    made[std::string(key) + "_ms"] =
        static_cast<uint64_t>(std::max(0.0, given[key].get<double>()) * 1000);
}

inline void take(nlohmann::json &made, const nlohmann::json &given,
                 std::initializer_list<const char *> keys)
{
    for (const char *key : keys)
        if (given.contains(key))
            made[key] = given[key];
}

/*
 * A producer's. Its name is a label, for several may have the same; only who
 * asks for an `identity` gets one, which fences whoever had it before. What is
 * none of Thalweg's is passed over.
 */
inline std::string producer_options(const nlohmann::json &given, size_t batch, size_t batches,
                                    bool loose)
{
    nlohmann::json made{
        {"ordering", loose ? "loose" : "strict"},
        {"batches_in_flight", std::clamp<size_t>(batches, 4, 64)},
    };
    made["batch"] = batch == 0 || batch == adaptive ? nlohmann::json("adaptive")
                                                    : nlohmann::json(batch);
    if (given.is_object()) {
        if (given.contains("identity"))
            made["name"] = given["identity"];
        take(made, given, {"budget_bytes", "durability", "journal", "linger_ms"});
        take_seconds(made, given, "ack_timeout");
        take_seconds(made, given, "block_timeout");
    }
    return made.dump();
}

/*
 * A consumer's. One of a new name begins with the first event, unless `wanted`,
 * the consumer's option start_from or the environment say "latest".
 */
inline std::string consumer_options(const nlohmann::json &given, std::string wanted,
                                    const std::vector<size_t> &targets, bool data)
{
    // Selectors of such programs mostly want all of short data, or none at all:
    // to ask the server for each costs more than to pick here.
    nlohmann::json made{{"data", data ? "all" : "none"}, {"inline_along", data}};
    const char *environment = std::getenv("THALWEG_MOFKA_START_FROM");
    if (wanted.empty() && environment != nullptr)
        wanted = environment;
    if (given.is_object()) {
        if (given.contains("start_from"))
            wanted = given["start_from"].is_string() ? given["start_from"].get<std::string>()
                                                     : given["start_from"].dump();
        take(made, given, {"credit_bytes", "inline_along"});
    }
    if (wanted == "latest")
        made["start"] = "cursor_or_latest";
    else if (!wanted.empty() && wanted != "beginning" && wanted != "earliest")
        throw InvalidDefinition("start_from is beginning or latest, not " + wanted);
    if (!targets.empty())
        made["partitions"] = targets;
    return made.dump();
}

} // namespace thalweg::compat

#endif
