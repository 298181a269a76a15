/*
 * Between Diaspora's API and Thalweg's: exceptions, metadata, data, parts of data.
 */
#ifndef THALWEG_DIASPORA_TRANSLATE_HPP
#define THALWEG_DIASPORA_TRANSLATE_HPP

#include <thalweg/compat/definition.hpp>
#include <thalweg/thalweg.hpp>

#include <diaspora/DataDescriptor.hpp>
#include <diaspora/DataView.hpp>
#include <diaspora/Exception.hpp>
#include <diaspora/Metadata.hpp>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace thalweg_diaspora {

/* Calls Thalweg; what that throws is an exception of Diaspora's. */
template <class Call> decltype(auto) translated(Call call)
{
    try {
        return call();
    } catch (const thalweg::Error &error) {
        throw diaspora::Exception(error.what());
    } catch (const thalweg::compat::InvalidDefinition &error) {
        throw diaspora::Exception(error.what());
    } catch (const nlohmann::json::exception &error) {
        throw diaspora::Exception(error.what());
    }
}

/* Metadata as it came; what is no JSON, of a topic whose serializer is `raw`, is a string. */
inline diaspora::Metadata metadata_of(std::string_view text)
{
    if (text.empty())
        return diaspora::Metadata(nlohmann::json::object());
    auto parsed = nlohmann::json::parse(text, nullptr, false);
    return parsed.is_discarded() ? diaspora::Metadata(text, false)
                                 : diaspora::Metadata(std::move(parsed));
}

/* The pieces of a program's data; whoever asks keeps them. */
inline std::vector<thalweg::DataView::Segment> pieces_of(const diaspora::DataView &data)
{
    std::vector<thalweg::DataView::Segment> pieces;
    for (const diaspora::DataView::Segment &segment : data.segments())
        if (segment.size > 0)
            pieces.push_back({segment.ptr, segment.size});
    return pieces;
}

/*
 * What a selector wants of `whole`. Read from its steps, for each counts within
 * the one before, which flatten() of Diaspora's does not do.
 */
inline thalweg::DataDescriptor narrowed(thalweg::DataDescriptor view,
                                        const diaspora::DataDescriptor &wanted)
{
    using Wanted = diaspora::DataDescriptor;
    for (const Wanted::Selection &step : wanted.selections()) {
        if (const auto *range = std::get_if<Wanted::Contiguous>(&step)) {
            view = view.makeSubView(range->offset, range->size);
        } else if (const auto *stride = std::get_if<Wanted::Strided>(&step)) {
            view = view.makeStridedView(stride->offset, stride->numblocks, stride->blocksize,
                                        stride->gapsize);
        } else {
            std::vector<thalweg_segment> parts;
            for (const auto &part : std::get<Wanted::Unstructured>(step).segments)
                parts.push_back({part.offset, part.size});
            view = view.makeUnstructuredView(parts);
        }
    }
    // A descriptor may be of the program's own making, and smaller.
    return view.makeSubView(0, std::min<uint64_t>(view.size(), wanted.size()));
}

/* What was chosen, as an allocator of a program's gets it. */
inline diaspora::DataDescriptor described(const std::string &topic,
                                          const thalweg::DataDescriptor &chosen)
{
    std::vector<diaspora::DataDescriptor::Contiguous> parts;
    uint64_t reach = 0;
    for (const thalweg_segment &segment : chosen.flatten()) {
        // Those that lie out of order cannot be said; how much it is can.
        if (segment.offset < reach)
            return diaspora::DataDescriptor(topic, static_cast<size_t>(chosen.size()));
        reach = segment.offset + segment.bytes;
        parts.push_back({segment.offset, segment.bytes});
    }
    return diaspora::DataDescriptor(topic, static_cast<size_t>(reach)).makeUnstructuredView(parts);
}

} // namespace thalweg_diaspora

#endif
