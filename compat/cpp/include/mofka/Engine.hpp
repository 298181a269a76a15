#ifndef MOFKA_ENGINE_HPP
#define MOFKA_ENGINE_HPP

#include <string>

/*
 * Mofka's headers bring Thallium, and programs make an engine for its driver.
 * Where Thallium is, that is what they include; where it is not, this stands for
 * it, and does nothing.
 */
#if !__has_include(<thallium.hpp>)

#define THALLIUM_CLIENT_MODE 0
#define THALLIUM_SERVER_MODE 1

namespace thallium {

class engine {
public:
    engine() = default;
    template <class... Options> engine(const std::string &, int, const Options &...) {}

    void finalize() {}
};

} // namespace thallium

#endif

#endif
