#ifndef MOFKA_EXCEPTION_HPP
#define MOFKA_EXCEPTION_HPP

#include <mofka/ForwardDcl.hpp>

#include <thalweg/compat/definition.hpp>
#include <thalweg/thalweg.hpp>

#include <stdexcept>
#include <string>

namespace mofka {

/* Why something fails: a sentence that names the thing and the numbers. */
class Exception : public std::logic_error {
public:
    Exception(const char *what) : std::logic_error(what) {}
    Exception(const std::string &what) : std::logic_error(what) {}
};

namespace detail {

/* Calls Thalweg; what that throws is an Exception. */
template <class Call> decltype(auto) translated(Call call)
{
    try {
        return call();
    } catch (const thalweg::Error &error) {
        throw Exception(error.what());
    } catch (const thalweg::compat::InvalidDefinition &error) {
        throw Exception(error.what());
    }
}

} // namespace detail

} // namespace mofka

#endif
