#ifndef MOFKA_DATA_BROKER_HPP
#define MOFKA_DATA_BROKER_HPP

#include <mofka/Data.hpp>
#include <mofka/DataDescriptor.hpp>
#include <mofka/Metadata.hpp>

#include <functional>

namespace mofka {

/* Gives memory for what was selected, of exactly its size. */
using DataBroker = std::function<Data(const Metadata &, const DataDescriptor &)>;

} // namespace mofka

#endif
