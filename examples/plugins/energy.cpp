// The plugins of energy.c in C++: a validator, a partition selector and a
// serializer for events whose metadata is {"energy": NUMBER}.
//
//   c++ -std=c++17 -fPIC -shared $(pkg-config --cflags thalweg) energy.cpp -o libenergy.so
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <thalweg/plugin.hpp>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the stored double is little endian"
#endif

namespace {

using thalweg::plugin::Event;
using thalweg::plugin::Output;
using thalweg::plugin::Refused;

constexpr std::string_view space = " \t\r\n";

void skip_space(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(space), text.size()));
}

bool take(std::string_view& text, std::string_view expected) {
    skip_space(text);
    if (text.substr(0, expected.size()) != expected) {
        return false;
    }
    text.remove_prefix(expected.size());
    return true;
}

// Reads an object with one member, a finite number.
std::optional<double> read_number(std::string_view text, const std::string& member) {
    if (!take(text, "{") || !take(text, '"' + member + '"') || !take(text, ":")) {
        return std::nullopt;
    }
    skip_space(text);
    const auto end = std::min(text.find_first_not_of("-+.0123456789eE"), text.size());
    const std::string digits(text.substr(0, end));
    text.remove_prefix(end);
    if (digits.empty() || digits[0] == '+' || !take(text, "}")) {
        return std::nullopt;
    }
    skip_space(text);
    char* rest = nullptr;
    const double number = std::strtod(digits.c_str(), &rest);
    if (!text.empty() || *rest != 0 || !std::isfinite(number)) {
        return std::nullopt;
    }
    return number;
}

double read_energy(std::string_view metadata) {
    if (const auto energy = read_number(metadata, "energy")) {
        return *energy;
    }
    throw Refused("expected {\"energy\": a number}");
}

// What the validator and the selector are told by the topic.
class WithEnergyMax {
public:
    explicit WithEnergyMax(std::string_view options) {
        const auto number = read_number(options, "energy_max");
        if (!number || *number <= 0) {
            throw std::invalid_argument("expected {\"energy_max\": a number above 0}");
        }
        energy_max_ = *number;
    }

protected:
    double energy_max_;
};

class Validator : public WithEnergyMax {
public:
    using WithEnergyMax::WithEnergyMax;

    void validate(std::string_view metadata) const {
        const double energy = read_energy(metadata);
        if (energy < 0 || energy > energy_max_) {
            std::array<char, 128> text{};
            std::snprintf(text.data(), text.size(), "energy %g is not from 0 to %g", energy,
                          energy_max_);
            throw Refused(text.data());
        }
    }
};

class Selector : public WithEnergyMax {
public:
    using WithEnergyMax::WithEnergyMax;

    std::uint32_t select(const Event& event) {
        const double last = event.partition_count - 1;
        const double part =
            std::floor(read_energy(event.metadata) / energy_max_ * event.partition_count);
        return static_cast<std::uint32_t>(std::clamp(part, 0.0, last));
    }
};

class Serializer {
public:
    explicit Serializer(std::string_view options) {
        if (options != "{}") {
            throw std::invalid_argument("the serializer has no options");
        }
    }

    void serialize(std::string_view metadata, Output& bytes) const {
        const double energy = read_energy(metadata);
        bytes.append(&energy, sizeof energy);
    }

    void deserialize(std::string_view bytes, Output& metadata) const {
        double energy = 0;
        if (bytes.size() != sizeof energy) {
            throw std::invalid_argument("an energy has 8 bytes");
        }
        std::memcpy(&energy, bytes.data(), sizeof energy);
        if (!std::isfinite(energy)) {
            throw std::invalid_argument("the stored energy is not finite");
        }
        std::array<char, 64> text{};
        const int length =
            std::snprintf(text.data(), text.size(), "{\"energy\":%.17g}", energy);
        metadata.append(text.data(), static_cast<std::size_t>(length));
    }
};

}  // namespace

THALWEG_EXPORT_PLUGIN_CLASS(energy_validator, Validator)
THALWEG_EXPORT_PLUGIN_CLASS(energy_selector, Selector)
THALWEG_EXPORT_PLUGIN_CLASS(energy_serializer, Serializer)
