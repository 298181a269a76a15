/*
 * Types of elements: ADIOS2's, and Thalweg's, which are NumPy's texts.
 */
#ifndef THALWEG_ADIOS2_ELEMENT_HPP
#define THALWEG_ADIOS2_ELEMENT_HPP

#include <adios2/common/ADIOSTypes.h>
#include <adios2/core/VariableStruct.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

namespace thalweg_adios2 {

/* Text of any length, which only single values have. */
constexpr const char *text_dtype = "str";

/* The text of a type that is not a structure. Throws std::invalid_argument for one that has none. */
std::string dtype_of(adios2::DataType type);

/*
 * The text of a structure: its fields as they lie, with padding between them. Throws
 * std::invalid_argument if fields overlap, or one is text.
 */
std::string dtype_of(const adios2::core::StructDefinition &definition);

/* A type as ADIOS2 has it. */
struct Element {
    adios2::DataType type;
    /* Of one element; 0 of text. */
    std::size_t bytes;
    /* Of a structure: its fields. */
    std::shared_ptr<adios2::core::StructDefinition> fields;
};

/* The type that a text names; none if ADIOS2 has no such type. `name` is given to a structure. */
std::optional<Element> element_of(const std::string &dtype, const std::string &name);

} // namespace thalweg_adios2

#endif
