#ifndef MOFKA_ARGS_UTIL_HPP
#define MOFKA_ARGS_UTIL_HPP

#include <type_traits>
#include <utility>

namespace mofka::detail {

/* The options of producers and consumers, which are told apart by their types. */
template <class Option> struct Takes {
    template <class Given>
    static constexpr bool from = std::is_same_v<std::decay_t<Given>, Option>;
};

/* The option of that type among those that were given, or `otherwise`. */
template <class Option> Option option(Option otherwise)
{
    return otherwise;
}

template <class Option, class First, class... Rest>
Option option(Option otherwise, const First &first, const Rest &...rest)
{
    if constexpr (Takes<Option>::template from<First>)
        return Option(first);
    else
        return option<Option>(std::move(otherwise), rest...);
}

} // namespace mofka::detail

#endif
