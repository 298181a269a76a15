/*
 * Thalweg's C++17 interface: errors, and what the other headers need of
 * thalweg.h. Include thalweg.hpp.
 */
#ifndef THALWEG_ERROR_HPP
#define THALWEG_ERROR_HPP

#if __cplusplus < 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG < 201703L)
#error "thalweg.hpp needs C++17"
#endif

#include <thalweg/thalweg.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace thalweg {

/* ------------------------------------------------------------ errors --- */

/* Why something fails. what() is a sentence that names the thing and the numbers. */
class Error : public std::runtime_error {
public:
    explicit Error(const thalweg_error &error)
        : std::runtime_error(error.message), code_(error.code), retryable_(error.retryable != 0),
          retry_after_ms_(error.retry_after_ms)
    {
    }

    /* One of the THALWEG_ codes of thalweg.h. */
    int32_t code() const noexcept { return code_; }
    /* The code's name in lower case, such as "unknown topic": lives as long as the program. */
    const char *name() const noexcept { return thalweg_code_name(code_); }
    /* Whether the same call may succeed later. */
    bool retryable() const noexcept { return retryable_; }
    /* When, in milliseconds, if the server said so; 0 otherwise. */
    uint32_t retryAfter() const noexcept { return retry_after_ms_; }

private:
    int32_t code_;
    bool retryable_;
    uint32_t retry_after_ms_;
};

/* The kinds of errors that a program does different things about. */
struct Timeout : Error { using Error::Error; };
struct Closed : Error { using Error::Error; };
struct InvalidArgument : Error { using Error::Error; };
struct BudgetExceeded : Error { using Error::Error; };
struct Unreachable : Error { using Error::Error; };
/* A queue or group waits for members of before the server's start, for `retryAfter()` at most. */
struct Recovering : Error { using Error::Error; };
struct WrongServer : Error { using Error::Error; };
struct Damaged : Error { using Error::Error; };
struct DataChanged : Error { using Error::Error; };
struct Forked : Error { using Error::Error; };
struct Cancelled : Error { using Error::Error; };
struct NotAllowed : Error { using Error::Error; };
struct UnknownTopic : Error { using Error::Error; };
struct TopicExists : Error { using Error::Error; };
struct UnknownPartition : Error { using Error::Error; };
struct OutOfRange : Error { using Error::Error; };
struct ProducerFenced : Error { using Error::Error; };
struct MemberFenced : Error { using Error::Error; };
struct LeaseExpired : Error { using Error::Error; };
/* The run of steps is over for its writer: a rank is gone, or another life has its place. */
struct RunEnded : Error { using Error::Error; };
/* A rank of this group of readers is gone: its program begins anew, at the position of its name. */
struct GroupIncomplete : Error { using Error::Error; };
struct StorageError : Error { using Error::Error; };
/* The topic is full: `retryAfter()` says when to push the events again. */
struct TopicFull : Error { using Error::Error; };
/* The topic is full, and dropped the events. */
struct EventDropped : Error { using Error::Error; };

namespace detail {

[[noreturn]] inline void raise(const thalweg_error &error)
{
    switch (error.code) {
    case THALWEG_TIMEOUT:
    case THALWEG_SERVER_DEADLINE_PASSED: throw Timeout(error);
    case THALWEG_CLOSED: throw Closed(error);
    case THALWEG_INVALID_ARGUMENT:
    case THALWEG_SERVER_INVALID_TOPIC:
    case THALWEG_SERVER_INVALID_STORAGE:
    case THALWEG_SERVER_INVALID_EVENT:
    case THALWEG_SERVER_LIMIT_EXCEEDED:
    case THALWEG_SERVER_INVALID_DURABILITY:
    case THALWEG_SERVER_INVALID_CONSUMER:
    case THALWEG_SERVER_INVALID_SELECTION: throw InvalidArgument(error);
    case THALWEG_BUDGET: throw BudgetExceeded(error);
    case THALWEG_UNREACHABLE: throw Unreachable(error);
    case THALWEG_RECOVERING: throw Recovering(error);
    case THALWEG_WRONG_SERVER:
    case THALWEG_SERVER_WRONG_SERVER: throw WrongServer(error);
    case THALWEG_DAMAGED:
    case THALWEG_SERVER_DAMAGED:
    case THALWEG_SERVER_CHECKSUM_MISMATCH: throw Damaged(error);
    case THALWEG_DATA_CHANGED: throw DataChanged(error);
    case THALWEG_FORKED: throw Forked(error);
    case THALWEG_CANCELLED:
    case THALWEG_SERVER_CANCELLED: throw Cancelled(error);
    case THALWEG_SERVER_NOT_AUTHENTICATED:
    case THALWEG_SERVER_NOT_AUTHORIZED:
    case THALWEG_SERVER_CREDENTIAL_EXPIRED: throw NotAllowed(error);
    case THALWEG_SERVER_UNKNOWN_TOPIC: throw UnknownTopic(error);
    case THALWEG_SERVER_TOPIC_EXISTS: throw TopicExists(error);
    case THALWEG_SERVER_UNKNOWN_PARTITION:
    case THALWEG_SERVER_NO_PARTITIONS: throw UnknownPartition(error);
    case THALWEG_SERVER_OFFSET_OUT_OF_RANGE:
    case THALWEG_SERVER_WRONG_INCARNATION: throw OutOfRange(error);
    case THALWEG_SERVER_PRODUCER_FENCED: throw ProducerFenced(error);
    case THALWEG_SERVER_MEMBER_FENCED: throw MemberFenced(error);
    case THALWEG_SERVER_LEASE_EXPIRED: throw LeaseExpired(error);
    case THALWEG_SERVER_RUN_ENDED: throw RunEnded(error);
    case THALWEG_SERVER_GROUP_INCOMPLETE: throw GroupIncomplete(error);
    case THALWEG_IO:
    case THALWEG_SERVER_STORAGE_FULL:
    case THALWEG_SERVER_STORAGE_FAILED: throw StorageError(error);
    case THALWEG_SERVER_TOPIC_FULL: throw TopicFull(error);
    case THALWEG_SERVER_EVENT_DROPPED: throw EventDropped(error);
    default: throw Error(error);
    }
}

/* Calls a function of thalweg.h with its error as the last argument. */
template <class Function, class... Arguments>
void call(Function function, Arguments... arguments)
{
    thalweg_error error;
    if (function(arguments..., &error) != THALWEG_OK)
        raise(error);
}

[[noreturn]] inline void refuse(int32_t code, const char *message)
{
    thalweg_error error{};
    error.code = code;
    std::snprintf(error.message, sizeof error.message, "%s", message);
    raise(error);
}

/* Owns a handle of thalweg.h. */
template <class Handle, void (*Free)(Handle *)>
struct Deleter {
    void operator()(Handle *handle) const noexcept { Free(handle); }
};
template <class Handle, void (*Free)(Handle *)>
using Owned = std::unique_ptr<Handle, Deleter<Handle, Free>>;

/* A string of the library's. */
template <class Function, class... Arguments>
std::string text(Function function, Arguments... arguments)
{
    char *given = nullptr;
    call(function, arguments..., &given);
    std::unique_ptr<char, void (*)(char *)> owned(given, thalweg_string_free);
    return std::string(given);
}

inline std::string quoted(std::string_view text)
{
    std::string out = "\"";
    for (const char letter : text) {
        if (letter == '"' || letter == '\\') {
            out += '\\';
            out += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(letter));
            out += escaped;
        } else {
            out += letter;
        }
    }
    return out + '"';
}

/* A JSON object that is put together from members, and from other objects'. */
class Object {
public:
    /* `value` is JSON. */
    Object &add(std::string_view key, std::string_view value)
    {
        comma();
        members_ += quoted(key) + ": ";
        members_ += value;
        return *this;
    }

    /* All members of another object. */
    Object &merge(std::string_view object)
    {
        const char *space = " \t\r\n";
        const auto begin = object.find_first_not_of(space);
        if (begin == std::string_view::npos)
            return *this;
        const auto end = object.find_last_not_of(space);
        if (object[begin] != '{' || object[end] != '}' || begin == end)
            refuse(THALWEG_INVALID_ARGUMENT, "options are a JSON object");
        const auto inside = object.substr(begin + 1, end - begin - 1);
        if (inside.find_first_not_of(space) != std::string_view::npos) {
            comma();
            members_ += inside;
        }
        return *this;
    }

    std::string string() const { return "{" + members_ + "}"; }

private:
    void comma()
    {
        if (!members_.empty())
            members_ += ", ";
    }
    std::string members_;
};

} // namespace detail

} // namespace thalweg

#endif
