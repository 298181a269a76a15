// Plugins for Thalweg in C++17: validators, partition selectors and
// serializers of your own, over <thalweg/plugin.h>. Header only.
//
//     class Energy {
//     public:
//         explicit Energy(std::string_view options);       // a JSON object
//         void validate(std::string_view metadata) const;  // throws to refuse
//         std::uint32_t select(const thalweg::plugin::Event& event);
//         void serialize(std::string_view metadata, thalweg::plugin::Output& bytes) const;
//         void deserialize(std::string_view bytes, thalweg::plugin::Output& metadata) const;
//     };
//     THALWEG_EXPORT_PLUGIN_CLASS(energy, Energy)
//
// A class has the functions of what it offers: validate, select, or both of
// serialize and deserialize, or several of them. How many threads call them at
// once is said in plugin.h: all but select are const here. What they throw is
// caught and told to whoever pushes or pulls: a thalweg::plugin::Refused as a
// refusal of the metadata, anything else as a failure of the plugin.
#ifndef THALWEG_PLUGIN_HPP
#define THALWEG_PLUGIN_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <type_traits>
#include <utility>

#include "plugin.h"

namespace thalweg::plugin {

// The metadata is refused, for this reason.
class Refused : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// Where a serializer writes to; valid until it returns.
class Output {
public:
    explicit Output(thalweg_plugin_output* output) noexcept : output_(output) {}

    // Appends bytes. Throws std::length_error at the limit.
    void append(const void* data, std::size_t bytes) {
        if (output_->append(output_, data, bytes) != 0) {
            throw std::length_error("the output's limit is exceeded");
        }
    }
    void append(std::string_view text) { append(text.data(), text.size()); }

private:
    thalweg_plugin_output* output_;
};

// What a partition selector may look at.
struct Event {
    std::string_view metadata;
    std::optional<std::string_view> key;
    std::uint32_t partition_count;
};

namespace detail {

inline std::string_view view(const void* data, std::size_t bytes) noexcept {
    return {static_cast<const char*>(data), bytes};
}

inline void say(thalweg_plugin_output* reason, std::string_view text) noexcept {
    reason->append(reason, text.data(), text.size());
}

// Runs `body`; nothing that it throws gets out.
template <class Body>
std::int32_t guard(thalweg_plugin_output* reason, Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return THALWEG_PLUGIN_OK;
    } catch (const Refused& refused) {
        say(reason, refused.what());
        return THALWEG_PLUGIN_REFUSED;
    } catch (const std::exception& error) {
        say(reason, error.what());
    } catch (...) {
        say(reason, "an exception that is no std::exception");
    }
    return THALWEG_PLUGIN_FAILED;
}

template <class Plugin, class = void>
struct has_validate : std::false_type {};
template <class Plugin>
struct has_validate<Plugin, std::void_t<decltype(std::declval<const Plugin&>().validate(
                                std::declval<std::string_view>()))>> : std::true_type {};

template <class Plugin, class = void>
struct has_select : std::false_type {};
template <class Plugin>
struct has_select<Plugin, std::void_t<decltype(std::uint32_t(std::declval<Plugin&>().select(
                              std::declval<const Event&>())))>> : std::true_type {};

template <class Plugin, class = void>
struct has_serialize : std::false_type {};
template <class Plugin>
struct has_serialize<Plugin,
                     std::void_t<decltype(std::declval<const Plugin&>().serialize(
                                     std::declval<std::string_view>(), std::declval<Output&>())),
                                 decltype(std::declval<const Plugin&>().deserialize(
                                     std::declval<std::string_view>(), std::declval<Output&>()))>>
    : std::true_type {};

template <class Plugin>
struct Table {
    static std::int32_t create(const char* options, std::size_t options_bytes, void** instance,
                               thalweg_plugin_output* reason) noexcept {
        return guard(reason, [&] { *instance = new Plugin(view(options, options_bytes)); });
    }
    static void destroy(void* instance) noexcept { delete static_cast<Plugin*>(instance); }

    static std::int32_t validate(void* instance, const std::uint8_t* metadata,
                                 std::size_t metadata_bytes,
                                 thalweg_plugin_output* reason) noexcept {
        return guard(reason, [&] {
            static_cast<const Plugin*>(instance)->validate(view(metadata, metadata_bytes));
        });
    }
    static std::int32_t select(void* instance, const thalweg_plugin_event* event,
                               std::uint32_t* partition, thalweg_plugin_output* reason) noexcept {
        return guard(reason, [&] {
            Event seen{view(event->metadata, event->metadata_bytes), std::nullopt,
                       event->partition_count};
            if (event->key != nullptr) {
                seen.key = view(event->key, event->key_bytes);
            }
            *partition = static_cast<Plugin*>(instance)->select(seen);
        });
    }
    static std::int32_t serialize(void* instance, const std::uint8_t* metadata,
                                  std::size_t metadata_bytes, thalweg_plugin_output* bytes,
                                  thalweg_plugin_output* reason) noexcept {
        return guard(reason, [&] {
            Output output(bytes);
            static_cast<const Plugin*>(instance)->serialize(view(metadata, metadata_bytes), output);
        });
    }
    static std::int32_t deserialize(void* instance, const std::uint8_t* bytes,
                                    std::size_t bytes_count, thalweg_plugin_output* metadata,
                                    thalweg_plugin_output* reason) noexcept {
        return guard(reason, [&] {
            Output output(metadata);
            static_cast<const Plugin*>(instance)->deserialize(view(bytes, bytes_count), output);
        });
    }

    static const thalweg_plugin* get() noexcept {
        static_assert(has_validate<Plugin>::value || has_select<Plugin>::value ||
                          has_serialize<Plugin>::value,
                      "a plugin offers validate, select, or serialize and deserialize");
        static const thalweg_plugin table = [] {
            thalweg_plugin made{};
            made.abi_version = THALWEG_PLUGIN_ABI_VERSION;
            made.table_bytes = sizeof(thalweg_plugin);
            made.create = create;
            made.destroy = destroy;
            if constexpr (has_validate<Plugin>::value) {
                made.validate = validate;
            }
            if constexpr (has_select<Plugin>::value) {
                made.select = select;
            }
            if constexpr (has_serialize<Plugin>::value) {
                made.serialize = serialize;
                made.deserialize = deserialize;
            }
            return made;
        }();
        return &table;
    }
};

}  // namespace detail
}  // namespace thalweg::plugin

// Exports a class as the plugin `name`.
#define THALWEG_EXPORT_PLUGIN_CLASS(name, class_name) \
    THALWEG_EXPORT_PLUGIN(name, ::thalweg::plugin::detail::Table<class_name>::get())

#endif
