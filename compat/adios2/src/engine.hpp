/*
 * What both engines have in common.
 */
#ifndef THALWEG_ADIOS2_ENGINE_HPP
#define THALWEG_ADIOS2_ENGINE_HPP

#include "parameters.hpp"
#include "stream.hpp"

#include <adios2/core/Engine.h>
#include <adios2/core/IO.h>
#include <adios2/helper/adiosComm.h>

#include <memory>
#include <string>

namespace thalweg_adios2 {

/* Attributes of this prefix are the engine's own: the name of each structure, by its variable. */
constexpr const char *structure_prefix = "adios2/structure/";

/* One line on standard error. */
void say(const std::string &line);

/* The stream of a name that was given to Open: a path, so that "./x" is "x". */
std::string stream_of(const std::string &name);

/* A name that no other opening has, of this process or another. */
std::string unique_name(const char *what);

/* Says once a process which of SST's parameters have no meaning. */
void say_without_meaning(const Parameters &parameters);

/* Lengths as the wire has them, in row-major order, and back. */
Lengths to_lengths(const adios2::Dims &dims, bool column_major);
adios2::Dims to_dims(const Lengths &lengths, bool column_major);
adios2::Dims ordered(adios2::Dims dims, bool column_major);

/* How many elements lengths make; 1 of no dimension. */
std::size_t elements(const adios2::Dims &count);

/* A box in an array of a program: where its first element is, in bytes, and how its elements lie. */
struct Within {
    std::size_t offset = 0;
    Strides strides;
};

/*
 * The box of `count` elements from `start` on, in an array of `whole`, all in row-major order. Throws
 * std::invalid_argument, naming `what`, if it is not within.
 */
Within within(const adios2::Dims &whole, const adios2::Dims &start, const adios2::Dims &count,
              std::size_t item_bytes, const std::string &what);

/* The engines. `helper::Comm` is moved from. */
std::shared_ptr<adios2::core::Engine> make_writer(adios2::core::IO &io, const std::string &name,
                                                  adios2::Mode mode, adios2::helper::Comm comm);
std::shared_ptr<adios2::core::Engine> make_reader(adios2::core::IO &io, const std::string &name,
                                                  adios2::Mode mode, adios2::helper::Comm comm);

} // namespace thalweg_adios2

#endif
