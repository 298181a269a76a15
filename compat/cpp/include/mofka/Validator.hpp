#ifndef MOFKA_VALIDATOR_HPP
#define MOFKA_VALIDATOR_HPP

#include <mofka/Component.hpp>
#include <mofka/InvalidMetadata.hpp>

namespace mofka {

/*
 * What is checked of an event's metadata when it is pushed: "default" that it is
 * JSON, "schema" that it matches the JSON Schema `schema`, "eventbridge" that it
 * matches the pattern `schema`; or a plugin of Thalweg's, "name:library.so".
 */
class Validator : public detail::Component<Validator, thalweg::compat::Part::Validator> {
};

} // namespace mofka

#endif
