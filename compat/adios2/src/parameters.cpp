#include "parameters.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <stdexcept>

namespace thalweg_adios2 {
namespace {

std::string lower(std::string value)
{
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value;
}

[[noreturn]] void refuse(const std::string &name, const std::string &value, const std::string &expected)
{
    throw std::invalid_argument("parameter " + name + " is " + expected + ", not \"" + value + "\"");
}

/* The parameters that were given, one after the other. */
class Given {
public:
    explicit Given(const std::map<std::string, std::string> &values) : values_(values) {}

    bool has(const std::string &name) const { return values_.count(name) != 0; }

    void text(const std::string &name, std::string &into) const
    {
        if (has(name)) {
            into = values_.at(name);
        }
    }

    void flag(const std::string &name, bool &into) const
    {
        if (!has(name)) {
            return;
        }
        const std::string value = lower(values_.at(name));
        if (value == "yes" || value == "true" || value == "on") {
            into = true;
        } else if (value == "no" || value == "false" || value == "off") {
            into = false;
        } else {
            refuse(name, value, "yes, true, on, no, false or off");
        }
    }

    template <class Number>
    void number(const std::string &name, Number &into, Number least) const
    {
        if (!has(name)) {
            return;
        }
        const std::string &value = values_.at(name);
        std::size_t end = 0;
        long double read = 0;
        try {
            read = std::stold(value, &end);
        } catch (const std::logic_error &) {
            refuse(name, value, "a number");
        }
        if (end != value.size() || !(read >= static_cast<long double>(least)) || read > 9.2e18L) {
            refuse(name, value, "a number from " + std::to_string(least));
        }
        into = static_cast<Number>(read);
    }

    /* Which of `choices` it is; `otherwise` if it was not given. */
    std::size_t choice(const std::string &name, const std::vector<std::string> &choices,
                       std::size_t otherwise = 0) const
    {
        if (!has(name)) {
            return otherwise;
        }
        const std::string value = lower(values_.at(name));
        const auto found = std::find(choices.begin(), choices.end(), value);
        if (found == choices.end()) {
            std::string all;
            for (const std::string &one : choices) {
                all += (all.empty() ? "" : " or ") + one;
            }
            refuse(name, value, all);
        }
        return static_cast<std::size_t>(found - choices.begin());
    }

private:
    const std::map<std::string, std::string> &values_;
};

} // namespace

const char *name_of(Distribution distribution)
{
    switch (distribution) {
    case Distribution::round_robin: return "round_robin";
    case Distribution::on_demand: return "on_demand";
    default: return "all";
    }
}

Parameters parse(const std::map<std::string, std::string> &values)
{
    const Given given(values);
    Parameters parameters;

    given.number("RendezvousReaderCount", parameters.rendezvous_readers, -1);
    parameters.rendezvous_readers = std::max(parameters.rendezvous_readers, 0);
    given.number("QueueLimit", parameters.queue_limit, 0);
    parameters.discard = given.choice("QueueFullPolicy", {"block", "discard"}) == 1;
    parameters.distribution = static_cast<Distribution>(
        given.choice("StepDistributionMode", {"alltoall", "roundrobin", "ondemand"}));
    given.number("StatsLevel", parameters.stats_level, 0);
    given.number("OpenTimeoutSecs", parameters.open_timeout_s, 0);
    given.flag("AlwaysProvideLatestTimestep", parameters.latest);

    /* A server has one way in, and one format: these are looked at as SST does, and then let be. */
    if (given.choice("RegistrationMethod", {"file", "screen", "cloud"}) == 2) {
        refuse("RegistrationMethod", "cloud", "file or screen");
    }
    given.choice("MarshalMethod", {"bp5", "bp", "ffs"});
    given.choice("CPCommPattern", {"min", "peer"});
    given.choice("CompressionMethod", {"none", "zfp"});
    parameters.preload_all = given.choice("SpeculativePreloadMode", {"auto", "on", "off"}) == 1;
    bool ignored_flag = false;
    int ignored_number = 0;
    /* A late reader begins at the run's first step: retention keeps it, and no queue drops it. */
    given.number("ReserveQueueLimit", ignored_number, 0);
    given.flag("FirstTimestepPrecious", parameters.first_is_precious);
    given.flag("UseOneTimeAttributes", ignored_flag);
    given.flag("ReaderShortCircuitReads", ignored_flag);
    given.number("SpecAutoNodeThreshold", ignored_number, 0);
    int verbose = 0;
    given.number("verbose", verbose, 0);
    if (verbose > 5) {
        refuse("verbose", std::to_string(verbose), "0 to 5");
    }
    for (const char *name :
         {"RegistrationMethod", "DataTransport", "WANDataTransport", "ControlTransport",
          "NetworkInterface", "ControlInterface", "DataInterface", "MarshalMethod", "CPCommPattern",
          "CompressionMethod", "SpecAutoNodeThreshold", "UseOneTimeAttributes", "ControlModule", "ReaderShortCircuitReads", "RemoteGroup",
          "MercuryProtocol"}) {
        if (given.has(name)) {
            parameters.without_meaning.push_back(name);
        }
    }

    parameters.group_file = group_file(values);
    given.text("Run", parameters.run);
    if (!parameters.run.empty() && parameters.run != "last" &&
        !std::all_of(parameters.run.begin(), parameters.run.end(), [](unsigned char c) { return std::isdigit(c); })) {
        refuse("Run", parameters.run, "last or the number of a run");
    }
    given.text("ReaderName", parameters.reader_name);
    given.text("WriterName", parameters.writer_name);
    given.number("SessionTimeoutSecs", parameters.session_timeout_s, 0.1);
    given.number("RendezvousTimeoutSecs", parameters.rendezvous_timeout_s, 0.0);
    given.number("QueueTimeoutSecs", parameters.queue_timeout_s, 0.0);
    given.number("CloseTimeoutSecs", parameters.close_timeout_s, 0.0);
    given.number("RetentionBytes", parameters.retention_bytes, std::uint64_t(0));
    parameters.storage = given.choice("Storage", {"disk", "memory"}) == 1 ? "memory" : "disk";
    const std::vector<std::string> levels = {"", "memory", "written", "synced"};
    parameters.durability = levels[given.choice("Durability", levels)];
    given.number("Partitions", parameters.partitions, 1);
    return parameters;
}

std::string group_file(const std::map<std::string, std::string> &given)
{
    const auto parameter = given.find("GroupFile");
    if (parameter != given.end()) {
        return parameter->second;
    }
    const char *named = std::getenv("THALWEG_GROUP_FILE");
    return named == nullptr ? std::string() : std::string(named);
}

} // namespace thalweg_adios2
