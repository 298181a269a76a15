#ifndef MOFKA_EVENT_ID_HPP
#define MOFKA_EVENT_ID_HPP

#include <cstdint>
#include <limits>

namespace mofka {

/* An event's place in its partition, from 0. */
using EventID = std::uint64_t;

/* The id of what is behind the last event of a topic that is complete. */
constexpr const EventID NoMoreEvents = std::numeric_limits<EventID>::max();

} // namespace mofka

#endif
