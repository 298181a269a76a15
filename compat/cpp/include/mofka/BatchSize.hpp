#ifndef MOFKA_BATCH_SIZE_HPP
#define MOFKA_BATCH_SIZE_HPP

#include <cstddef>
#include <limits>

namespace mofka {

namespace detail {

/* A number that is not mixed up with others. */
template <class Kind> struct Ordered {
    friend bool operator<(const Kind &a, const Kind &b) { return a.value < b.value; }
    friend bool operator>(const Kind &a, const Kind &b) { return a.value > b.value; }
    friend bool operator<=(const Kind &a, const Kind &b) { return a.value <= b.value; }
    friend bool operator>=(const Kind &a, const Kind &b) { return a.value >= b.value; }
    friend bool operator==(const Kind &a, const Kind &b) { return a.value == b.value; }
    friend bool operator!=(const Kind &a, const Kind &b) { return a.value != b.value; }
};

} // namespace detail

/* How many events make a batch. */
struct BatchSize : detail::Ordered<BatchSize> {
    std::size_t value;

    explicit constexpr BatchSize(std::size_t val) : value(val) {}
    /* Whatever has gathered when the batch before is on its way. */
    static BatchSize Adaptive() { return BatchSize{std::numeric_limits<std::size_t>::max()}; }
};

/* How many batches may be pending: see Producer. */
struct MaxBatch : detail::Ordered<MaxBatch> {
    std::size_t value;

    explicit constexpr MaxBatch(std::size_t val) : value(val) {}
};

} // namespace mofka

#endif
