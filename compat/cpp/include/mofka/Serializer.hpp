#ifndef MOFKA_SERIALIZER_HPP
#define MOFKA_SERIALIZER_HPP

#include <mofka/Component.hpp>

namespace mofka {

/* How metadata is stored: "default", "schema", or a plugin of Thalweg's. */
class Serializer : public detail::Component<Serializer, thalweg::compat::Part::Serializer> {
};

} // namespace mofka

#endif
