/*
 * Where the data of an event lands that a program's allocator made space for.
 */
#ifndef THALWEG_COMPAT_LANDING_HPP
#define THALWEG_COMPAT_LANDING_HPP

#include <thalweg/thalweg.hpp>

#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace thalweg::compat {

/*
 * `View` is the program's: a list of `segments()`, each with `ptr` and `size`.
 * Thalweg writes to one piece of memory. If the program gave several, they are
 * filled from a piece of ours when the event is handed out.
 */
template <class View> class Landing {
public:
    explicit Landing(View view) : view_(std::move(view))
    {
        if (view_.segments().size() > 1)
            gathered_.resize(size(view_));
    }

    static size_t size(const View &view)
    {
        size_t size = 0;
        for (const auto &segment : view.segments())
            size += segment.size;
        return size;
    }

    /* As Thalweg's allocators return it; it keeps `landing`. */
    static DataView target(std::shared_ptr<Landing> landing)
    {
        if (!landing->gathered_.empty()) {
            void *base = landing->gathered_.data();
            const size_t size = landing->gathered_.size();
            return DataView(base, size, std::move(landing));
        }
        std::vector<DataView::Segment> segments;
        for (const auto &segment : landing->view_.segments())
            segments.push_back({segment.ptr, segment.size});
        return DataView(std::move(segments), std::move(landing));
    }

    /* What the program gave, filled, of an event whose data is `data`. */
    static const View &of(const DataView &data)
    {
        auto *landing = const_cast<Landing *>(static_cast<const Landing *>(data.owner().get()));
        std::call_once(landing->scattered_, [landing] { landing->scatter(); });
        return landing->view_;
    }

private:
    void scatter()
    {
        const char *from = gathered_.data();
        for (const auto &segment : view_.segments()) {
            if (gathered_.empty() || segment.size == 0)
                continue;
            std::memcpy(segment.ptr, from, segment.size);
            from += segment.size;
        }
    }

    View view_;
    std::string gathered_;
    std::once_flag scattered_;
};

} // namespace thalweg::compat

#endif
