/*
 * JSON Schemas of draft 7, which Mofka reads, as those of draft 2020-12, which
 * Thalweg reads.
 */
#ifndef THALWEG_COMPAT_SCHEMA_HPP
#define THALWEG_COMPAT_SCHEMA_HPP

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace thalweg::compat {

/*
 * The keywords that changed their name or meaning between the two drafts are
 * renamed, the rest is the same. A schema that says that it is of the newer
 * draft is left alone.
 */
class Modernized {
public:
    static nlohmann::json schema(const nlohmann::json &given)
    {
        if (given.is_object() && given.contains("$schema") && given["$schema"].is_string() &&
            given["$schema"].get_ref<const std::string &>().find("2020-12") != std::string::npos)
            return given;
        return converted(given);
    }

private:
    using Json = nlohmann::json;

    static Json converted(const Json &schema)
    {
        if (!schema.is_object())
            return schema;
        Json made = Json::object();
        // Draft 7 passes over everything beside a reference.
        const bool reference = schema.contains("$ref");
        for (const auto &[key, value] : schema.items()) {
            if (reference && key != "$ref" && key != "definitions" && key != "$defs")
                continue;
            if (key == "$schema" || key == "additionalItems")
                continue;
            if (is_one_of(key, {"not", "if", "then", "else", "contains", "propertyNames",
                                "additionalProperties"}))
                made[key] = converted(value);
            else if (is_one_of(key, {"allOf", "anyOf", "oneOf"}) && value.is_array())
                made[key] = each(value);
            else if (is_one_of(key, {"properties", "patternProperties", "definitions", "$defs"}) &&
                     value.is_object())
                made[key] = each(value);
            else if (key == "items")
                items(made, schema);
            else if (key == "dependencies" && value.is_object())
                dependencies(made, value);
            else if (key == "$id" && value.is_string() &&
                     value.get_ref<const std::string &>().rfind('#', 0) == 0)
                made["$anchor"] = value.get_ref<const std::string &>().substr(1);
            else
                made[key] = value;
        }
        return made;
    }

    static bool is_one_of(std::string_view key, std::initializer_list<std::string_view> keys)
    {
        for (const std::string_view candidate : keys)
            if (key == candidate)
                return true;
        return false;
    }

    /* A list or an object of schemas. */
    static Json each(const Json &schemas)
    {
        Json made = schemas;
        for (Json &schema : made)
            schema = converted(schema);
        return made;
    }

    static void items(Json &made, const Json &schema)
    {
        const Json &items = schema["items"];
        if (!items.is_array()) {
            made["items"] = converted(items);
            return;
        }
        made["prefixItems"] = each(items);
        if (schema.contains("additionalItems"))
            made["items"] = converted(schema["additionalItems"]);
    }

    static void dependencies(Json &made, const Json &dependencies)
    {
        for (const auto &[name, needed] : dependencies.items()) {
            if (needed.is_array())
                made["dependentRequired"][name] = needed;
            else
                made["dependentSchemas"][name] = converted(needed);
        }
    }
};

} // namespace thalweg::compat

#endif
