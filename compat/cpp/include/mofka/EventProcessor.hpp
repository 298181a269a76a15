#ifndef MOFKA_EVENT_PROCESSOR_HPP
#define MOFKA_EVENT_PROCESSOR_HPP

#include <mofka/Event.hpp>

#include <functional>

namespace mofka {

/* Thrown by a processor that has seen enough. */
struct StopEventProcessor {};

/* Called with event after event. What it returns is let go of. */
using EventProcessor = std::function<Data(const Event &event)>;

} // namespace mofka

#endif
