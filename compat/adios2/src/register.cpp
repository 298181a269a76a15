/*
 * Loaded into a program, this library takes the place of ADIOS2's engine "sst" where a Thalweg
 * server is named, and is the engine "thalweg".
 */
#include "engine.hpp"

#include <adios2/common/ADIOSConfig.h>

#include <link.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace thalweg_adios2 {

using adios2::Mode;
using adios2::core::Engine;
using adios2::core::IO;
using adios2::helper::Comm;

/*
 * What ADIOS2 has in its own table for "sst", which cannot be asked for: IO::MakeEngine of SstReader
 * and SstWriter, by their symbols, for the headers of these classes would bring all of SST's.
 */
std::shared_ptr<Engine> sst_reader(IO &, const std::string &, Mode, Comm) __asm__(
    "_ZN6adios24core2IO10MakeEngineINS0_6engine9SstReaderEEESt10shared_ptrINS0_6EngineEERS1_"
    "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEENS_4ModeENS_6helper4CommE") __attribute__((weak));
std::shared_ptr<Engine> sst_writer(IO &, const std::string &, Mode, Comm) __asm__(
    "_ZN6adios24core2IO10MakeEngineINS0_6engine9SstWriterEEESt10shared_ptrINS0_6EngineEERS1_"
    "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEENS_4ModeENS_6helper4CommE") __attribute__((weak));

namespace {

using Make = std::shared_ptr<Engine> (*)(IO &, const std::string &, Mode, Comm);

/* SST where no server is named, else Thalweg. */
template <Make Thalweg>
std::shared_ptr<Engine> instead(Make sst, IO &io, const std::string &name, Mode mode, Comm comm)
{
    if (!group_file(io.m_Parameters).empty()) {
        return Thalweg(io, name, mode, std::move(comm));
    }
    if (sst == nullptr) {
        throw std::invalid_argument("this ADIOS2 has no engine SST, and no Thalweg server is named: "
                                    "THALWEG_GROUP_FILE, or the parameter GroupFile");
    }
    return sst(io, name, mode, std::move(comm));
}

std::shared_ptr<Engine> sst_or_reader(IO &io, const std::string &name, Mode mode, Comm comm)
{
    return instead<make_reader>(sst_reader, io, name, mode, std::move(comm));
}

std::shared_ptr<Engine> sst_or_writer(IO &io, const std::string &name, Mode mode, Comm comm)
{
    return instead<make_writer>(sst_writer, io, name, mode, std::move(comm));
}

/* The core library of ADIOS2 that this was built for, by its name with the minor version. */
const std::string core_library = "libadios2_core.so." + std::to_string(ADIOS2_VERSION_MAJOR) + "." +
                                 std::to_string(ADIOS2_VERSION_MINOR);

/* Another core library that the program has; empty if there is none. */
std::string other_core_library()
{
    std::string other;
    dl_iterate_phdr(
        [](dl_phdr_info *info, std::size_t, void *found) {
            const char *base = std::strrchr(info->dlpi_name, '/');
            const std::string name = base == nullptr ? info->dlpi_name : base + 1;
            const std::string any = "libadios2_core";
            const bool is_core = name.compare(0, any.size(), any) == 0;
            const bool is_ours = name == core_library || name.rfind(core_library + ".", 0) == 0 ||
                                 name == any + ".so";
            if (is_core && !is_ours) {
                *static_cast<std::string *>(found) = name;
            }
            return 0;
        },
        &other);
    return other;
}

const bool registered = [] {
    const std::string other = other_core_library();
    if (!other.empty()) {
        say("this engine is for " + core_library + ", and the program has " + other +
            ": its SST stays as it is. Take the library that was built for its version");
        return false;
    }
    IO::RegisterEngine("sst", {sst_or_reader, sst_or_writer, {}});
    IO::RegisterEngine("thalweg", {make_reader, make_writer, {}});
    return true;
}();

} // namespace
} // namespace thalweg_adios2
