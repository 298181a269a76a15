#include "engine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <sstream>
#include <stdexcept>

#include <unistd.h>

namespace thalweg_adios2 {

void say(const std::string &line)
{
    std::cerr << ("thalweg: " + line + "\n") << std::flush;
}

std::string stream_of(const std::string &name)
{
    std::size_t from = 0;
    while (name.compare(from, 2, "./") == 0) {
        from = name.find_first_not_of('/', from + 1);
        if (from == std::string::npos) {
            return name;
        }
    }
    return name.substr(from);
}

std::string unique_name(const char *what)
{
    static std::atomic<unsigned> count{0};
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    std::ostringstream name;
    name << "adios2-" << what << '-' << std::string(host).substr(0, 64) << '-' << getpid() << '-' << ++count
         << '-' << std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    return name.str();
}

void say_without_meaning(const Parameters &parameters)
{
    static std::atomic<bool> said{false};
    if (parameters.without_meaning.empty() || said.exchange(true)) {
        return;
    }
    std::string names;
    for (const std::string &name : parameters.without_meaning) {
        names += (names.empty() ? "" : ", ") + name;
    }
    say("parameters of SST that mean nothing here, and are left alone: " + names);
}

Lengths to_lengths(const adios2::Dims &dims, bool column_major)
{
    Lengths lengths(dims.begin(), dims.end());
    if (column_major) {
        std::reverse(lengths.begin(), lengths.end());
    }
    return lengths;
}

adios2::Dims to_dims(const Lengths &lengths, bool column_major)
{
    return ordered(adios2::Dims(lengths.begin(), lengths.end()), column_major);
}

adios2::Dims ordered(adios2::Dims dims, bool column_major)
{
    if (column_major) {
        std::reverse(dims.begin(), dims.end());
    }
    return dims;
}

std::size_t elements(const adios2::Dims &count)
{
    std::size_t product = 1;
    for (const std::size_t length : count) {
        product *= length;
    }
    return product;
}

Within within(const adios2::Dims &whole, const adios2::Dims &start, const adios2::Dims &count,
              std::size_t item_bytes, const std::string &what)
{
    bool fits = whole.size() == count.size() && start.size() == count.size();
    for (std::size_t d = 0; fits && d < count.size(); ++d) {
        fits = start[d] <= whole[d] && count[d] <= whole[d] - start[d];
    }
    if (!fits) {
        throw std::invalid_argument(what + ": start " + adios2::ToString(start) + ", count " +
                                    adios2::ToString(count) + " is not within " + adios2::ToString(whole));
    }
    Within within{0, Strides(count.size())};
    std::size_t stride = item_bytes;
    for (std::size_t d = count.size(); d-- > 0;) {
        within.strides[d] = static_cast<std::int64_t>(stride);
        within.offset += start[d] * stride;
        stride *= whole[d];
    }
    return within;
}

} // namespace thalweg_adios2
