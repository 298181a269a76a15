#include "stream.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

namespace thalweg_adios2 {
namespace {

using nlohmann::json;

/* A wait is looked at again after so long, to say what it is for. */
constexpr double slice_s = 5;

/* Makes a call of the C interface; throws what it fails by. */
template <class Call>
void call(Call function)
{
    thalweg_error error;
    if (function(&error) != THALWEG_OK) {
        throw Failure(error);
    }
}

/* The result of a call that gives a handle. */
template <class Handle, class Call>
Handle *given(Call function)
{
    Handle *handle = nullptr;
    call([&](thalweg_error *error) { return function(&handle, error); });
    return handle;
}

std::int64_t milliseconds(double seconds)
{
    return seconds < 0 ? -1 : static_cast<std::int64_t>(std::ceil(seconds * 1000));
}

thalweg_step_block described(const Block &block)
{
    thalweg_step_block described{};
    described.name = block.name.c_str();
    described.dtype = block.dtype.c_str();
    described.kind = static_cast<std::int32_t>(block.kind);
    described.flags = block.extremes ? 0 : THALWEG_STEP_NO_EXTREMES;
    described.ndim = static_cast<std::uint32_t>(block.count.size());
    described.joined = block.joined;
    if (block.kind == Kind::array) {
        described.shape = block.shape.data();
        described.start = block.start.data();
    }
    described.count = block.count.data();
    described.strides = block.strides.empty() ? nullptr : block.strides.data();
    return described;
}

std::string text_of(const thalweg_bytes &bytes)
{
    return bytes.size == 0 ? std::string() : std::string(static_cast<const char *>(bytes.base), bytes.size);
}

std::string bytes_at(const void *base, std::size_t size)
{
    return base == nullptr ? std::string() : std::string(static_cast<const char *>(base), size);
}

/* As options have it. */
std::string named(std::int32_t distribution)
{
    switch (distribution) {
    case THALWEG_GIVEN_ROUND_ROBIN: return "round_robin";
    case THALWEG_GIVEN_ON_DEMAND: return "on_demand";
    default: return "all";
    }
}

} // namespace

/* ------------------------------------------------------------ driver --- */

std::shared_ptr<Driver> Driver::of(const std::string &group_file, double timeout_s)
{
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<Driver>> all;
    const std::lock_guard<std::mutex> lock(mutex);
    if (auto driver = all[group_file].lock()) {
        return driver;
    }
    const json options = {{"client_name", "adios2"},
                          {"connect_timeout_ms", std::max<std::int64_t>(1, milliseconds(timeout_s))}};
    std::shared_ptr<Driver> driver(new Driver(given<thalweg_driver>([&](auto **handle, auto *error) {
        return thalweg_driver_connect(group_file.c_str(), options.dump().c_str(), handle, error);
    })));
    all[group_file] = driver;
    return driver;
}

bool Driver::has(const std::string &stream) const
{
    thalweg_topic *topic = nullptr;
    thalweg_error error;
    const std::int32_t code = thalweg_topic_open(handle(), stream.c_str(), &topic, &error);
    thalweg_topic_free(topic);
    if (code != THALWEG_OK && code != THALWEG_SERVER_UNKNOWN_TOPIC) {
        throw Failure(error);
    }
    return code == THALWEG_OK;
}

std::vector<Run> runs(const Driver &driver, const std::string &stream)
{
    thalweg_step_stream *opened = nullptr;
    thalweg_error error;
    const std::int32_t code = thalweg_step_stream_open(driver.handle(), stream.c_str(), &opened, &error);
    if (code == THALWEG_SERVER_UNKNOWN_TOPIC) {
        return {};
    }
    if (code != THALWEG_OK) {
        throw Failure(error);
    }
    const Owned<thalweg_step_stream, thalweg_step_stream_free> handle(opened);
    const Owned<thalweg_step_runs, thalweg_step_runs_free> list(given<thalweg_step_runs>(
        [&](auto **list, auto *error) { return thalweg_step_stream_runs(handle.get(), list, error); }));
    std::vector<Run> runs;
    for (std::size_t i = 0; i < thalweg_step_runs_count(list.get()); ++i) {
        thalweg_step_run_info info{};
        call([&](thalweg_error *error) { return thalweg_step_runs_at(list.get(), i, &info, error); });
        runs.push_back({info.run, info.state == THALWEG_RUN_OPEN, info.writer, named(info.distribution)});
    }
    return runs;
}

/* ------------------------------------------------------------ writer --- */

StepWriter::StepWriter(std::shared_ptr<Driver> driver, const std::string &stream, const WriterOptions &options)
    : driver_(std::move(driver))
{
    json given_options = {{"writer", options.writer},
                          {"rank", options.rank},
                          {"ranks", options.ranks},
                          {"queue_steps", options.queue_steps},
                          {"when_full", options.discard ? "discard" : "block"},
                          {"distribution", options.distribution},
                          {"readers", options.readers},
                          {"session_timeout_ms", milliseconds(options.session_timeout_s)},
                          {"open_timeout_ms", milliseconds(options.open_timeout_s)},
                          {"close_timeout_ms", milliseconds(options.close_timeout_s)},
                          {"partitions", options.partitions},
                          {"storage", options.storage}};
    if (options.retention_bytes > 0) {
        given_options["retention"] = {{"bytes", options.retention_bytes}};
    }
    if (!options.durability.empty()) {
        given_options["durability"] = options.durability;
    }
    handle_.reset(given<thalweg_step_writer>([&](auto **handle, auto *error) {
        return thalweg_step_writer_open(driver_->handle(), stream.c_str(), given_options.dump().c_str(), handle,
                                        error);
    }));
}

std::uint64_t StepWriter::begin()
{
    std::uint64_t number = 0;
    call([&](thalweg_error *error) { return thalweg_step_writer_begin(handle_.get(), &number, error); });
    return number;
}

void StepWriter::pin()
{
    call([&](thalweg_error *error) { return thalweg_step_writer_pin(handle_.get(), error); });
}

void StepWriter::put(const Block &block, const void *data)
{
    thalweg_step_block put = described(block);
    put.data = data;
    call([&](thalweg_error *error) { return thalweg_step_writer_put(handle_.get(), &put, error); });
}

std::size_t StepWriter::span(const Block &block)
{
    const thalweg_step_block put = described(block);
    std::size_t span = 0;
    void *base = nullptr;
    call([&](thalweg_error *error) { return thalweg_step_writer_span(handle_.get(), &put, &span, &base, error); });
    return span;
}

void *StepWriter::span_memory(std::size_t span) const noexcept
{
    void *base = nullptr;
    return thalweg_step_writer_span_memory(handle_.get(), span, &base, nullptr, nullptr) == THALWEG_OK ? base : nullptr;
}

void StepWriter::put_value(const std::string &name, const std::string &dtype, bool is_local, const std::string &bytes)
{
    call([&](thalweg_error *error) {
        return thalweg_step_writer_put_value(handle_.get(), name.c_str(), dtype.c_str(), is_local, bytes.data(),
                                             bytes.size(), error);
    });
}

void StepWriter::set_attribute(const std::string &name, const std::string &dtype, bool is_list,
                               const std::string &bytes)
{
    call([&](thalweg_error *error) {
        return thalweg_step_writer_set_attribute(handle_.get(), name.c_str(), dtype.c_str(), is_list, bytes.data(),
                                                 bytes.size(), error);
    });
}

void StepWriter::end(double timeout_s, const std::function<void(const std::string &)> &slow)
{
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
    for (bool said = false;; said = true) {
        const std::chrono::duration<double> left = deadline - Clock::now();
        const double wait = std::clamp(left.count(), 0.0, slice_s);
        thalweg_error error;
        const std::int32_t code = thalweg_step_writer_end(handle_.get(), THALWEG_STEP_ACCEPTED, milliseconds(wait),
                                                          nullptr, &error);
        if (code == THALWEG_OK) {
            return;
        }
        /* Too much is pinned: the step is sent unpinned by the next call. */
        if (code == THALWEG_SERVER_LIMIT_EXCEEDED && !said) {
            slow(error.message);
            continue;
        }
        if (code != THALWEG_TIMEOUT || wait < slice_s) {
            throw Failure(error);
        }
        if (!said) {
            slow(error.message);
        }
    }
}

std::string StepWriter::close(double timeout_s)
{
    thalweg_step_closed closed{};
    call([&](thalweg_error *error) {
        return thalweg_step_writer_close(handle_.get(), milliseconds(timeout_s), &closed, error);
    });
    return closed.state == THALWEG_CLOSED_BEHIND ? closed.behind : "";
}

/* -------------------------------------------------------------- step --- */

std::uint64_t StepView::number() const
{
    thalweg_step_info info{};
    call([&](thalweg_error *error) { return thalweg_step_info_of(handle_.get(), &info, error); });
    return info.number;
}

std::vector<VariableInfo> StepView::variables() const
{
    thalweg_step_info info{};
    call([&](thalweg_error *error) { return thalweg_step_info_of(handle_.get(), &info, error); });
    std::vector<VariableInfo> variables;
    variables.reserve(info.variable_count);
    for (std::size_t i = 0; i < info.variable_count; ++i) {
        thalweg_step_variable variable{};
        call([&](thalweg_error *error) { return thalweg_step_variable_at(handle_.get(), i, &variable, error); });
        variables.push_back({i, variable.name, static_cast<Kind>(variable.kind), variable.dtype,
                             Lengths(variable.shape, variable.shape + variable.ndim), variable.block_count});
    }
    return variables;
}

std::vector<BlockInfo> StepView::blocks(const VariableInfo &variable) const
{
    thalweg_step_variable known{};
    call([&](thalweg_error *error) {
        return thalweg_step_variable_at(handle_.get(), variable.index, &known, error);
    });
    std::vector<BlockInfo> blocks;
    blocks.reserve(variable.blocks);
    for (std::size_t i = 0; i < variable.blocks; ++i) {
        thalweg_step_block_info block{};
        call([&](thalweg_error *error) {
            return thalweg_step_block_at(handle_.get(), variable.index, i, &block, error);
        });
        blocks.push_back({block.rank, Lengths(block.start, block.start + block.ndim),
                          Lengths(block.count, block.count + block.ndim), bytes_at(block.min, known.item_bytes),
                          bytes_at(block.max, known.item_bytes)});
    }
    return blocks;
}

std::vector<std::string> StepView::values(const VariableInfo &variable) const
{
    std::vector<std::string> values;
    values.reserve(variable.blocks);
    for (std::size_t i = 0; i < variable.blocks; ++i) {
        thalweg_bytes value{};
        call([&](thalweg_error *error) { return thalweg_step_value(handle_.get(), variable.index, i, &value, error); });
        values.push_back(text_of(value));
    }
    return values;
}

std::vector<Attribute> StepView::attributes() const
{
    const Owned<thalweg_step_attributes, thalweg_step_attributes_free> list(given<thalweg_step_attributes>(
        [&](auto **list, auto *error) { return thalweg_step_attributes_of(handle_.get(), list, error); }));
    std::vector<Attribute> attributes;
    attributes.reserve(thalweg_step_attributes_count(list.get()));
    for (std::size_t i = 0; i < thalweg_step_attributes_count(list.get()); ++i) {
        thalweg_step_attribute known{};
        call([&](thalweg_error *error) { return thalweg_step_attributes_at(list.get(), i, &known, error); });
        Attribute attribute{known.name, known.dtype, known.is_list != 0, bytes_at(known.value, known.size), {}};
        for (std::size_t text = 0; known.value == nullptr && known.item_bytes == 0 && text < known.count; ++text) {
            thalweg_bytes bytes{};
            call([&](thalweg_error *error) {
                return thalweg_step_attributes_text(list.get(), i, text, &bytes, error);
            });
            attribute.texts.push_back(text_of(bytes));
        }
        attributes.push_back(std::move(attribute));
    }
    return attributes;
}

namespace {

/* What is wanted, as the library takes it; valid as long as `reads`. */
std::vector<thalweg_step_get> gets_of(const std::vector<Read> &reads)
{
    std::vector<thalweg_step_get> gets;
    gets.reserve(reads.size());
    for (const Read &read : reads) {
        thalweg_step_get get{};
        get.name = read.variable.c_str();
        get.block = read.block ? *read.block + 1 : 0;
        get.ndim = static_cast<std::uint32_t>(read.count.size());
        get.start = read.start.data();
        get.count = read.count.data();
        get.into = read.into;
        get.size = read.bytes;
        get.strides = read.strides.empty() ? nullptr : read.strides.data();
        gets.push_back(get);
    }
    return gets;
}

} // namespace

void StepView::read(const std::vector<Read> &reads) const
{
    std::vector<thalweg_step_get> gets = gets_of(reads);
    call([&](thalweg_error *error) { return thalweg_step_read(handle_.get(), gets.data(), gets.size(), -1, error); });
}

/* ------------------------------------------------------------ reader --- */

StepReader::StepReader(std::shared_ptr<Driver> driver, const std::string &stream, const ReaderOptions &options)
    : driver_(std::move(driver))
{
    json given_options = {{"name", options.name},
                          {"distribution", options.distribution},
                          {"rank", options.rank},
                          {"ranks", options.ranks},
                          {"latest", options.latest},
                          {"preload", options.preload_all ? "all" : "nothing"},
                          {"session_timeout_ms", milliseconds(options.session_timeout_s)},
                          {"open_timeout_ms", milliseconds(options.open_timeout_s)}};
    if (!options.group.empty()) {
        given_options["group"] = options.group;
    }
    if (options.run) {
        given_options["start"] = {{"run", *options.run}};
    }
    handle_.reset(given<thalweg_step_reader>([&](auto **handle, auto *error) {
        return thalweg_step_reader_open(driver_->handle(), stream.c_str(), given_options.dump().c_str(), handle,
                                        error);
    }));
}

Next StepReader::next(double timeout_s)
{
    thalweg_step *step = nullptr;
    thalweg_step_next next;
    call([&](thalweg_error *error) {
        return thalweg_step_reader_next(handle_.get(), milliseconds(timeout_s), &step, &next, error);
    });
    return {static_cast<Next::What>(next.state), step == nullptr ? nullptr : std::make_unique<StepView>(step),
            next.state == THALWEG_NEXT_BROKEN ? next.reason : ""};
}

void StepReader::release()
{
    call([&](thalweg_error *error) { return thalweg_step_reader_release(handle_.get(), 0, error); });
}

void StepReader::preload(const std::vector<Read> &wanted)
{
    const std::vector<thalweg_step_get> gets = gets_of(wanted);
    call([&](thalweg_error *error) {
        return thalweg_step_reader_preload(handle_.get(), gets.data(), gets.size(), error);
    });
}

void StepReader::close(double timeout_s)
{
    call([&](thalweg_error *error) {
        return thalweg_step_reader_close(handle_.get(), 1, milliseconds(timeout_s), error);
    });
}

} // namespace thalweg_adios2
