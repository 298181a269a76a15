/*
 * Steps of a Thalweg stream, over its C interface: what an engine needs of it, with RAII and
 * exceptions. Nothing here knows ADIOS2.
 *
 * Lengths, starts and counts are in row-major order. Every call blocks as it says, and may be made
 * by one thread at a time.
 */
#ifndef THALWEG_ADIOS2_STREAM_HPP
#define THALWEG_ADIOS2_STREAM_HPP

#include <thalweg/steps.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace thalweg_adios2 {

/* A call of Thalweg has failed. What it says names the thing and the numbers. */
class Failure : public std::runtime_error {
public:
    explicit Failure(const thalweg_error &error) : std::runtime_error(error.message), code_(error.code) {}

    std::int32_t code() const noexcept { return code_; }

private:
    std::int32_t code_;
};

using Lengths = std::vector<std::uint64_t>;

/* Distances in bytes from one element to the next along each dimension; empty where they lie together. */
using Strides = std::vector<std::int64_t>;

/* How a variable's blocks make a whole. */
enum class Kind {
    value = THALWEG_STEP_VALUE,
    array = THALWEG_STEP_ARRAY,
    joined = THALWEG_STEP_JOINED,
    local_value = THALWEG_STEP_LOCAL_VALUE,
    local_array = THALWEG_STEP_LOCAL_ARRAY
};

/* Frees what a function of the C interface gave. */
template <auto Free>
struct Freed {
    template <class Handle>
    void operator()(Handle *handle) const noexcept
    {
        Free(handle);
    }
};
template <class Handle, auto Free>
using Owned = std::unique_ptr<Handle, Freed<Free>>;

/* A connection. Those of a process to one server are one. */
class Driver {
public:
    /* Connects to the server of a group file, waiting for the file and the server up to `timeout_s`. */
    static std::shared_ptr<Driver> of(const std::string &group_file, double timeout_s);

    thalweg_driver *handle() const noexcept { return handle_.get(); }
    /* Whether there is a topic of the name. */
    bool has(const std::string &stream) const;

private:
    explicit Driver(thalweg_driver *handle) : handle_(handle) {}

    Owned<thalweg_driver, thalweg_driver_free> handle_;
};

/* A run of a stream. */
struct Run {
    std::uint64_t number = 0;
    bool open = false;
    std::string writer;
    /* How readers are to be given steps: "all", "round_robin" or "on_demand". */
    std::string distribution = "all";
};

/* The runs of a stream, oldest first; none of one that is not there. */
std::vector<Run> runs(const Driver &driver, const std::string &stream);

/* ----------------------------------------------------------- writing --- */

struct WriterOptions {
    std::string writer;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    std::uint64_t queue_steps = 0;
    bool discard = false;
    /* How readers are to be given steps. */
    std::string distribution = "all";
    std::uint32_t readers = 0;
    double session_timeout_s = 10;
    double open_timeout_s = 600;
    /* How long closing waits for readers of a stream in memory. */
    double close_timeout_s = 60;
    /* How the stream is made, if it is not there. */
    std::uint64_t retention_bytes = 0;
    std::string storage = "disk";
    std::string durability;
    int partitions = 1;
};

/* A block that is put. */
struct Block {
    const std::string &name;
    std::string dtype;
    Kind kind;
    /* Of arrays and joined arrays; the joined dimension's length is not looked at. */
    Lengths shape;
    Lengths start;
    Lengths count;
    std::uint32_t joined = 0;
    bool extremes = true;
    /* How the elements lie that are put. */
    Strides strides;
};

/* A rank of a program that writes. Let go of without `close`, it leaves its run open. */
class StepWriter {
public:
    StepWriter(std::shared_ptr<Driver> driver, const std::string &stream, const WriterOptions &options);

    /* Begins a step, and gives its number. */
    std::uint64_t begin();
    /* Pins the step that is begun. */
    void pin();
    /* Puts a block, which is copied. */
    void put(const Block &block, const void *data);
    /* Puts a block that is made in place; its number in the step. */
    std::size_t span(const Block &block);
    /* Where the memory of that block is now; null if there is none. */
    void *span_memory(std::size_t span) const noexcept;
    void put_value(const std::string &name, const std::string &dtype, bool is_local, const std::string &bytes);
    void set_attribute(const std::string &name, const std::string &dtype, bool is_list, const std::string &bytes);
    /*
     * Ends the step: waits until this rank's data is as durable as the stream promises, up to
     * `timeout_s`. `slow` is called once where that takes seconds, with what is waited for.
     */
    void end(double timeout_s, const std::function<void(const std::string &)> &slow);
    /* Says which readers of a stream in memory are behind; empty if none are. */
    std::string close(double timeout_s);

private:
    std::shared_ptr<Driver> driver_;
    Owned<thalweg_step_writer, thalweg_step_writer_free> handle_;
};

/* ----------------------------------------------------------- reading --- */

struct ReaderOptions {
    std::string name;
    /* How steps are given to those of the name: "all", "round_robin" or "on_demand". */
    std::string distribution = "all";
    /* Which of the programs it is that share them; empty if none are shared. */
    std::string group;
    std::uint32_t rank = 0;
    std::uint32_t ranks = 1;
    /* A run, or where the name is. */
    std::optional<std::uint64_t> run;
    bool latest = false;
    /* Whether all arrays of each step are read before they are asked for. */
    bool preload_all = false;
    double session_timeout_s = 10;
    double open_timeout_s = 60;
};

struct VariableInfo {
    /* Its place in the step. */
    std::size_t index;
    std::string name;
    Kind kind;
    std::string dtype;
    /* Of a local value one number: how many. */
    Lengths shape;
    std::size_t blocks;
};

/* A block of a variable. `min` and `max` are empty if they are not known. */
struct BlockInfo {
    std::uint32_t rank;
    Lengths start;
    Lengths count;
    std::string min;
    std::string max;
};

/* What is wanted of a variable, and where to. What no block has keeps what it was. */
struct Read {
    std::string variable;
    std::optional<std::size_t> block;
    /* A box of the whole, or of the block. */
    Lengths start;
    Lengths count;
    /* Where its first element goes, and the bytes of all of them. */
    void *into;
    std::size_t bytes;
    Strides strides;
};

/* An attribute: its elements one behind the other, or texts. */
struct Attribute {
    std::string name;
    std::string dtype;
    bool is_list = false;
    std::string bytes;
    std::vector<std::string> texts;

    bool operator==(const Attribute &other) const
    {
        return dtype == other.dtype && is_list == other.is_list && bytes == other.bytes && texts == other.texts;
    }
};

/* A step as it is read. */
class StepView {
public:
    explicit StepView(thalweg_step *handle) : handle_(handle) {}

    std::uint64_t number() const;
    std::vector<VariableInfo> variables() const;
    std::vector<BlockInfo> blocks(const VariableInfo &variable) const;
    /* Of a value one, of local values each rank's. */
    std::vector<std::string> values(const VariableInfo &variable) const;
    std::vector<Attribute> attributes() const;
    /* Reads all of them with one request. */
    void read(const std::vector<Read> &reads) const;

private:
    Owned<thalweg_step, thalweg_step_free> handle_;
};

/* What a reader was given. */
struct Next {
    enum What {
        step = THALWEG_NEXT_STEP,
        not_ready = THALWEG_NEXT_NOT_READY,
        closed = THALWEG_NEXT_END,
        broken = THALWEG_NEXT_BROKEN
    };
    What what;
    std::unique_ptr<StepView> view;
    /* Why the run is broken. */
    std::string reason;
};

/* A rank of a program that reads. */
class StepReader {
public:
    StepReader(std::shared_ptr<Driver> driver, const std::string &stream, const ReaderOptions &options);

    /* The next step, waiting up to `timeout_s`; a negative one is without a limit. */
    Next next(double timeout_s);
    /* Says that the last step is read, and does not wait. */
    void release();
    /* Has this read of each step before it is asked for, from the next one on; no memory is touched. */
    void preload(const std::vector<Read> &wanted);
    /* Leaves the stream; the last step is released. */
    void close(double timeout_s);

private:
    std::shared_ptr<Driver> driver_;
    Owned<thalweg_step_reader, thalweg_step_reader_free> handle_;
};

} // namespace thalweg_adios2

#endif
