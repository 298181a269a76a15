#include "element.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace thalweg_adios2 {
namespace {

using adios2::DataType;
using adios2::core::StructDefinition;
using nlohmann::json;

struct Row {
    DataType type;
    const char *text;
    std::size_t bytes;
};

static_assert(sizeof(long double) == 16 || sizeof(long double) == 12, "a long double that NumPy has a name for");

constexpr const char *long_double = sizeof(long double) == 16 ? "<f16" : "<f12";

/* What has several texts is written as the first. */
const std::array<Row, 15> rows = {{
    {DataType::Int8, "|i1", 1},
    {DataType::Int16, "<i2", 2},
    {DataType::Int32, "<i4", 4},
    {DataType::Int64, "<i8", 8},
    {DataType::UInt8, "|u1", 1},
    {DataType::UInt16, "<u2", 2},
    {DataType::UInt32, "<u4", 4},
    {DataType::UInt64, "<u8", 8},
    {DataType::Float, "<f4", 4},
    {DataType::Double, "<f8", 8},
    {DataType::LongDouble, long_double, sizeof(long double)},
    {DataType::FloatComplex, "<c8", sizeof(std::complex<float>)},
    {DataType::DoubleComplex, "<c16", sizeof(std::complex<double>)},
    /* A character of no sign is one byte of a string. */
    {DataType::Char, "|S1", 1},
    {DataType::UInt8, "|b1", 1},
}};

const Row *row_of(DataType type)
{
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row &row) { return row.type == type; });
    return found == rows.end() ? nullptr : &*found;
}

const Row *row_of(const std::string &text)
{
    const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row &row) { return row.text == text; });
    return found == rows.end() ? nullptr : &*found;
}

std::size_t product(const json &shape)
{
    std::size_t count = 1;
    for (const json &length : shape) {
        count *= length.get<std::size_t>();
    }
    return count;
}

/* The fields of a structure. None if it has one that ADIOS2 has no type for. */
std::optional<Element> structure_of(const std::string &dtype, const std::string &name)
{
    const json fields = json::parse(dtype);
    struct Place {
        std::string name;
        std::size_t offset;
        DataType type;
        std::size_t count;
    };
    std::vector<Place> places;
    std::size_t bytes = 0;
    for (const json &field : fields) {
        if (!field.at(1).is_string()) {
            return std::nullopt;
        }
        const std::string field_name = field.at(0).get<std::string>();
        const std::string text = field.at(1).get<std::string>();
        const std::size_t count = field.size() > 2 ? product(field.at(2)) : 1;
        if (field_name.empty() && text.rfind("|V", 0) == 0) {
            bytes += std::stoul(text.substr(2)) * count;
            continue;
        }
        const Row *row = row_of(text);
        if (row == nullptr) {
            return std::nullopt;
        }
        places.push_back({field_name, bytes, row->type, count});
        bytes += row->bytes * count;
    }
    auto definition = std::make_shared<StructDefinition>(name, bytes);
    for (const Place &place : places) {
        definition->AddField(place.name, place.offset, place.type, place.count);
    }
    definition->Freeze();
    return Element{DataType::Struct, bytes, std::move(definition)};
}

} // namespace

std::string dtype_of(DataType type)
{
    if (type == DataType::String) {
        return text_dtype;
    }
    const Row *row = row_of(type);
    if (row == nullptr) {
        throw std::invalid_argument("Thalweg has no type of elements for ADIOS2's " + adios2::ToString(type));
    }
    return row->text;
}

std::string dtype_of(const StructDefinition &definition)
{
    std::vector<std::size_t> order(definition.Fields());
    for (std::size_t i = 0; i < order.size(); ++i) {
        order[i] = i;
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
        return definition.Offset(one) < definition.Offset(other);
    });
    json fields = json::array();
    std::size_t at = 0;
    const auto pad_to = [&](std::size_t offset) {
        if (offset < at) {
            throw std::invalid_argument("structure " + definition.StructName() +
                                        ": a field begins at byte " + std::to_string(offset) +
                                        ", within the one before, which ends at " + std::to_string(at));
        }
        if (offset > at) {
            fields.push_back({"", "|V" + std::to_string(offset - at)});
        }
        at = offset;
    };
    for (const std::size_t index : order) {
        pad_to(definition.Offset(index));
        const Row *row = row_of(definition.Type(index));
        if (row == nullptr) {
            throw std::invalid_argument("structure " + definition.StructName() + ", field " +
                                        definition.Name(index) + ": a field is a number or a character");
        }
        const std::size_t count = definition.ElementCount(index);
        if (count == 1) {
            fields.push_back({definition.Name(index), row->text});
        } else {
            fields.push_back({definition.Name(index), row->text, {count}});
        }
        at += count * row->bytes;
    }
    pad_to(definition.StructSize());
    return fields.dump();
}

std::optional<Element> element_of(const std::string &dtype, const std::string &name)
{
    if (dtype == text_dtype) {
        return Element{DataType::String, 0, nullptr};
    }
    if (!dtype.empty() && dtype.front() == '[') {
        try {
            return structure_of(dtype, name);
        } catch (const json::exception &) {
            return std::nullopt;
        }
    }
    const Row *row = row_of(dtype);
    if (row == nullptr) {
        return std::nullopt;
    }
    return Element{row->type, row->bytes, nullptr};
}

} // namespace thalweg_adios2
