#ifndef MOFKA_SERVICE_HANDLE_HPP
#define MOFKA_SERVICE_HANDLE_HPP

#include <mofka/MofkaDriver.hpp>

namespace mofka {

/* The name of MofkaDriver in older programs. */
using ServiceHandle = MofkaDriver;

} // namespace mofka

#endif
