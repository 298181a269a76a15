#ifndef MOFKA_INVALID_METADATA_HPP
#define MOFKA_INVALID_METADATA_HPP

#include <mofka/Exception.hpp>

namespace mofka {

/* Metadata that the topic refuses. */
class InvalidMetadata : public Exception {
public:
    using Exception::Exception;
};

} // namespace mofka

#endif
