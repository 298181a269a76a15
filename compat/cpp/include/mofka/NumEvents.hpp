#ifndef MOFKA_NUM_EVENTS_HPP
#define MOFKA_NUM_EVENTS_HPP

#include <mofka/BatchSize.hpp>

namespace mofka {

/* How many events are to be processed. */
struct NumEvents : detail::Ordered<NumEvents> {
    std::size_t value;

    explicit constexpr NumEvents(std::size_t val) : value(val) {}
    static NumEvents Infinity() { return NumEvents{std::numeric_limits<std::size_t>::max()}; }
};

} // namespace mofka

#endif
