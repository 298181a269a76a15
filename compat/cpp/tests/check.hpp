/*
 * What the tests say of themselves: the first thing that does not hold ends
 * them.
 */
#ifndef THALWEG_COMPAT_TESTS_CHECK_HPP
#define THALWEG_COMPAT_TESTS_CHECK_HPP

#include <cstdlib>
#include <iostream>
#include <string>

inline void check_at(bool holds, const std::string &what, const char *file, int line)
{
    if (holds)
        return;
    std::cerr << file << ":" << line << ": " << what << std::endl;
    std::exit(1);
}

#define CHECK(what) check_at(static_cast<bool>(what), "does not hold: " #what, __FILE__, __LINE__)

#define CHECK_EQUAL(found, wanted)                                                                 \
    do {                                                                                           \
        const auto check_found = (found);                                                          \
        const auto check_wanted = (wanted);                                                        \
        if (!(check_found == check_wanted))                                                        \
            std::cerr << "found " << check_found << ", wanted " << check_wanted << std::endl;      \
        check_at(check_found == check_wanted, "does not hold: " #found " == " #wanted, __FILE__,   \
                 __LINE__);                                                                        \
    } while (false)

#define CHECK_THROWS(call, Kind)                                                                   \
    do {                                                                                           \
        bool check_thrown = false;                                                                 \
        try {                                                                                      \
            static_cast<void>(call);                                                               \
        } catch (const Kind &) {                                                                   \
            check_thrown = true;                                                                   \
        }                                                                                          \
        check_at(check_thrown, "does not throw " #Kind ": " #call, __FILE__, __LINE__);            \
    } while (false)

#endif
