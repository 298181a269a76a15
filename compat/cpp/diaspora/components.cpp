#include "components.hpp"

#include <thalweg/compat/definition.hpp>

#include <string>
#include <typeinfo>
#include <utility>

namespace thalweg_diaspora {

using nlohmann::json;
using thalweg::compat::Part;

namespace {

/* The annotation in a topic's JSON Schema that names what is a program's own. */
constexpr const char *annotation = "diaspora";

constexpr const char *key(Part part)
{
    switch (part) {
    case Part::Validator: return "validator";
    case Part::PartitionSelector: return "partition_selector";
    case Part::Serializer: return "serializer";
    }
    return "";
}

json annotated(const json &definition)
{
    const json &validator = definition.value("validator", json::object());
    if (validator.value("type", "") != "schema")
        return json::object();
    const json &schema = validator.value("schema", json::object());
    return schema.is_object() ? schema.value(annotation, json::object()) : json::object();
}

/*
 * What describes a component; `own` is it if it is none of Diaspora's. One that
 * does not say its type is known by what it is in C++.
 */
template <class Factory, class Interface>
json take(Part part, const std::shared_ptr<Interface> &component,
          std::shared_ptr<Interface> &own)
{
    if (!component)
        return json{{"type", "default"}};
    const diaspora::Metadata metadata = component->metadata();
    json described = metadata.json().is_object() ? metadata.json() : json::object();
    const std::string type = thalweg::compat::type_of(described);
    bool is_own = !thalweg::compat::is_known(part, type);
    if (type == "default") {
        const diaspora::Metadata nothing{"{}"};
        const auto usual = Factory::create("default", nothing);
        const Interface &given = *component;
        const Interface &known = *usual;
        is_own = typeid(given) != typeid(known);
    }
    if (is_own)
        own = component;
    return described;
}

/* A schema that passes everything, or the one that is there. */
json schema_of(const json &native)
{
    return native.value("type", "") == "schema" ? native.at("schema") : json::object();
}

} // namespace

Components::Components(std::shared_ptr<diaspora::ValidatorInterface> validator,
                       std::shared_ptr<diaspora::PartitionSelectorInterface> selector,
                       std::shared_ptr<diaspora::SerializerInterface> serializer)
{
    validator_ = take<diaspora::ValidatorFactory>(Part::Validator, validator, own_.validator);
    selector_ =
        take<diaspora::PartitionSelectorFactory>(Part::PartitionSelector, selector, own_.selector);
    serializer_ =
        take<diaspora::SerializerFactory>(Part::Serializer, serializer, own_.serializer);
    const bool some = own_.validator || own_.selector || own_.serializer;
    if (some && !own_.validator && thalweg::compat::type_of(validator_) == "eventbridge")
        // There is no schema that an annotation could be in: its validator runs here, too.
        own_.validator = std::move(validator);
}

json Components::definition() const
{
    using thalweg::compat::native_of;
    json made = json::object();
    json notes = json::object();
    const json anything{{"type", "json"}};
    const auto add = [&](Part part, const json &described, bool own, const json &otherwise) {
        made[key(part)] = own ? otherwise : native_of(part, described);
        if (own)
            notes[key(part)] = described;
    };
    add(Part::Validator, validator_, static_cast<bool>(own_.validator), anything);
    add(Part::PartitionSelector, selector_, static_cast<bool>(own_.selector),
        json{{"type", "round_robin"}});
    add(Part::Serializer, serializer_, static_cast<bool>(own_.serializer), anything);
    if (!notes.empty()) {
        json schema = schema_of(made["validator"]);
        schema[annotation] = std::move(notes);
        made["validator"] = json{{"type", "schema"}, {"schema", std::move(schema)}};
    }
    return made;
}

json described_components(const json &definition)
{
    const json notes = annotated(definition);
    json made = json::object();
    for (const Part part : {Part::Validator, Part::PartitionSelector, Part::Serializer}) {
        const json native = definition.value(key(part), json::object());
        if (notes.contains(key(part)))
            made[key(part)] = notes[key(part)];
        else
            made[key(part)] = thalweg::compat::described_of(part, native);
    }
    json &validator = made["validator"];
    if (!notes.empty() && !notes.contains("validator")) {
        validator["schema"].erase(annotation);
        if (validator["schema"].empty())
            validator = json{{"type", "default"}};
    }
    return made;
}

Own restored(const json &definition)
{
    const json notes = annotated(definition);
    Own own;
    const auto restore = [&](Part part, auto make) {
        if (notes.contains(key(part)))
            make(thalweg::compat::type_of(notes[key(part)]), diaspora::Metadata(notes[key(part)]));
    };
    restore(Part::Validator, [&](const std::string &type, const diaspora::Metadata &metadata) {
        own.validator = diaspora::ValidatorFactory::create(type, metadata);
    });
    restore(Part::PartitionSelector,
            [&](const std::string &type, const diaspora::Metadata &metadata) {
                own.selector = diaspora::PartitionSelectorFactory::create(type, metadata);
            });
    restore(Part::Serializer, [&](const std::string &type, const diaspora::Metadata &metadata) {
        own.serializer = diaspora::SerializerFactory::create(type, metadata);
    });
    return own;
}

} // namespace thalweg_diaspora
