#ifndef MOFKA_CLIENT_HPP
#define MOFKA_CLIENT_HPP

#include <mofka/Json.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/MofkaDriver.hpp>

#include <string>
#include <type_traits>

namespace mofka {

/* What older programs make before they connect. */
class Client {
public:
    Client() = default;
    /* An engine of the program's is passed over. */
    template <class Engine, class = std::enable_if_t<!std::is_same<Engine, Client>::value>>
    explicit Client(const Engine &)
    {
    }

    [[deprecated("make a MofkaDriver")]] MofkaDriver connect(const std::string &groupfile) const
    {
        return MofkaDriver(groupfile);
    }

    operator bool() const noexcept { return true; }

    const Metadata &getConfig() const { return config_; }

private:
    Metadata config_;
};

} // namespace mofka

#endif
