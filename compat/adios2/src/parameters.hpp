/*
 * The parameters of an IO: SST's, and a few of Thalweg's.
 */
#ifndef THALWEG_ADIOS2_PARAMETERS_HPP
#define THALWEG_ADIOS2_PARAMETERS_HPP

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace thalweg_adios2 {

enum class Distribution { all_to_all, round_robin, on_demand };

/* As Thalweg names it. */
const char *name_of(Distribution distribution);

/* What the parameters say, and what holds without. */
struct Parameters {
    /* SST's, of a writer. */
    int rendezvous_readers = 1;
    int queue_limit = 0;
    bool discard = false;
    Distribution distribution = Distribution::all_to_all;
    int stats_level = 1;
    bool first_is_precious = false;
    /* SST's, of a reader. */
    int open_timeout_s = 60;
    bool latest = false;
    /* Whether all arrays of each step are read before they are asked for. */
    bool preload_all = false;

    /* Thalweg's. */
    std::string group_file;
    /* A closed run that is read again: "last", or its number. */
    std::string run;
    /* Names that are the same when the program comes back; else each opening has its own. */
    std::string reader_name;
    std::string writer_name;
    /* For how long a rank may be away. */
    double session_timeout_s = 10;
    /* For how long a writer waits for readers to come, and for a queue that is full. */
    double rendezvous_timeout_s = 600;
    double queue_timeout_s = 3600;
    /* For how long Close waits for readers of a stream in memory. */
    double close_timeout_s = 60;
    /* How a stream is made that is not there. */
    std::uint64_t retention_bytes = std::uint64_t(16) << 30;
    std::string storage = "disk";
    std::string durability;
    int partitions = 1;

    /* Those of SST's that were given and mean nothing here. */
    std::vector<std::string> without_meaning;
};

/*
 * Reads them. Names that are neither SST's nor Thalweg's are left alone, as SST does. Throws
 * std::invalid_argument for a value that cannot be right.
 */
Parameters parse(const std::map<std::string, std::string> &given);

/*
 * The group file of the server: the parameter GroupFile, or the environment's
 * THALWEG_GROUP_FILE; empty if no server is named.
 */
std::string group_file(const std::map<std::string, std::string> &given);

} // namespace thalweg_adios2

#endif
