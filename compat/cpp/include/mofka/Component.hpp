#ifndef MOFKA_COMPONENT_HPP
#define MOFKA_COMPONENT_HPP

#include <mofka/Exception.hpp>
#include <mofka/Metadata.hpp>

#include <thalweg/compat/definition.hpp>

#include <string>
#include <utility>

namespace mofka::detail {

/* What a topic is made with: a type, and what that needs to know. */
template <class Kind, thalweg::compat::Part part> class Component {
public:
    /* Of the type "default". */
    Component() : described_{{"type", "default"}} {}

    operator bool() const noexcept { return true; }
    Metadata metadata() const { return Metadata(described_); }

    /* Of a type, of which `metadata` has the rest. */
    static Kind FromMetadata(const char *type, const Metadata &metadata)
    {
        nlohmann::json described = metadata.json();
        if (described.is_null())
            described = nlohmann::json::object();
        if (!described.is_object())
            throw Exception("what describes a component is a JSON object");
        described["type"] = type;
        return made(std::move(described));
    }

    /* Of the type that `metadata` names. */
    static Kind FromMetadata(const Metadata &metadata) { return made(metadata.json()); }

private:
    static Kind made(nlohmann::json described)
    {
        // Throws if it means nothing.
        translated([&] { return thalweg::compat::native_of(part, described); });
        Kind kind;
        kind.described_ = std::move(described);
        return kind;
    }

    nlohmann::json described_;
};

} // namespace mofka::detail

#endif
