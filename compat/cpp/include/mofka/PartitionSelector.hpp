#ifndef MOFKA_PARTITION_SELECTOR_HPP
#define MOFKA_PARTITION_SELECTOR_HPP

#include <mofka/Component.hpp>
#include <mofka/InvalidMetadata.hpp>

namespace mofka {

/* What there is to know of a partition: `uuid`, `address`, `provider_id`, `index`. */
class PartitionInfo : public Metadata {
public:
    using Metadata::Metadata;
};

/* Who chooses an event's partition: "default" in turn, or a plugin of Thalweg's. */
class PartitionSelector
    : public detail::Component<PartitionSelector, thalweg::compat::Part::PartitionSelector> {
};

} // namespace mofka

#endif
