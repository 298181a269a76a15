#ifndef MOFKA_ORDERING_HPP
#define MOFKA_ORDERING_HPP

namespace mofka {

/* Whether events are stored in the order of their pushes. */
enum class Ordering : bool { Strict = true, Loose = false };

} // namespace mofka

#endif
