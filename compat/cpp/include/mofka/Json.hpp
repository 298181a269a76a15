#ifndef MOFKA_JSON_HPP
#define MOFKA_JSON_HPP

#include <nlohmann/json.hpp>

#endif
