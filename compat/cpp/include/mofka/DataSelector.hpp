#ifndef MOFKA_DATA_SELECTOR_HPP
#define MOFKA_DATA_SELECTOR_HPP

#include <mofka/DataDescriptor.hpp>
#include <mofka/Metadata.hpp>

#include <functional>

namespace mofka {

/* Looks at an event's metadata and all of its data; says what is wanted. */
using DataSelector = std::function<DataDescriptor(const Metadata &, const DataDescriptor &)>;

} // namespace mofka

#endif
