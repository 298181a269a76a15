/*
 * The engine of a program that writes: puts become blocks of a Thalweg step.
 */
#include "element.hpp"
#include "engine.hpp"

#include <adios2/core/Attribute.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace thalweg_adios2 {
namespace {

using adios2::DataType;
using adios2::Dims;
using adios2::Mode;
using adios2::ShapeID;
using adios2::StepMode;
using adios2::StepStatus;
using adios2::core::Attribute;
using adios2::core::AttributeBase;
using adios2::core::Engine;
using adios2::core::IO;
using adios2::core::Span;
using adios2::core::Variable;
using adios2::core::VariableBase;
using adios2::core::VariableStruct;
using adios2::helper::Comm;

/* An attribute as it travels. */
struct Sent {
    std::string dtype;
    bool is_list;
    std::string bytes;

    bool operator==(const Sent &other) const
    {
        return dtype == other.dtype && is_list == other.is_list && bytes == other.bytes;
    }
};

/* A text stands behind its length. */
void append(std::string &bytes, const std::string &text)
{
    const auto length = static_cast<std::uint32_t>(text.size());
    for (int byte = 0; byte < 4; ++byte) {
        bytes.push_back(static_cast<char>(length >> (8 * byte)));
    }
    bytes += text;
}

template <class T>
void append(std::string &bytes, const T &element)
{
    bytes.append(reinterpret_cast<const char *>(&element), sizeof(T));
}

template <class T>
Sent sent(const AttributeBase &base)
{
    const auto &attribute = static_cast<const Attribute<T> &>(base);
    Sent sent{dtype_of(base.m_Type), !base.m_IsSingleValue, {}};
    if (base.m_IsSingleValue) {
        append(sent.bytes, attribute.m_DataSingleValue);
    }
    for (std::size_t i = 0; !base.m_IsSingleValue && i < attribute.m_DataArray.size(); ++i) {
        append(sent.bytes, attribute.m_DataArray[i]);
    }
    return sent;
}

Sent sent_of(const AttributeBase &base)
{
#define sent_of_type(T)                                                                            \
    if (base.m_Type == adios2::helper::GetDataType<T>()) {                                         \
        return sent<T>(base);                                                                      \
    }
    ADIOS2_FOREACH_ATTRIBUTE_STDTYPE_1ARG(sent_of_type)
#undef sent_of_type
    throw std::invalid_argument("attribute " + base.m_Name + " is of a type that Thalweg has not");
}

/* Says from time to time that a call is still waiting, until it is let go of. */
class StillWaiting {
public:
    explicit StillWaiting(std::string line) : thread_([this, line = std::move(line)] {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!done_.wait_for(lock, std::chrono::seconds(5), [this] { return over_; })) {
            say(line);
        }
    })
    {
    }
    ~StillWaiting()
    {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            over_ = true;
        }
        done_.notify_all();
        thread_.join();
    }

private:
    std::mutex mutex_;
    std::condition_variable done_;
    bool over_ = false;
    std::thread thread_;
};

class WriterEngine final : public Engine {
public:
    WriterEngine(IO &io, const std::string &name, Mode mode, Comm comm)
        : Engine("ThalwegWriter", io, name, mode, std::move(comm)), parameters_(parse(io.m_Parameters)),
          column_major_(io.m_ArrayOrder == adios2::ArrayOrdering::ColumnMajor)
    {
        open();
        m_IsOpen = true;
    }

    ~WriterEngine() override
    {
        if (m_IsOpen) {
            if (m_FailVerbose) {
                say("writer of " + m_Name + " is gone without Close: its run stays open for " +
                    std::to_string(parameters_.session_timeout_s) + " s, and is broken then");
            }
            m_IsOpen = false;
        }
    }

    StepStatus BeginStep(StepMode mode, const float) override
    {
        if (m_BetweenStepPairs) {
            throw std::logic_error("BeginStep is called a second time without EndStep, of stream " + m_Name);
        }
        if (mode == StepMode::Read) {
            throw std::invalid_argument("BeginStep of a writer with StepMode::Read, of stream " + m_Name);
        }
        step_ = writer_->begin();
        if (step_ == 0 && parameters_.first_is_precious) {
            writer_->pin();
        }
        begun_ = true;
        m_BetweenStepPairs = true;
        return StepStatus::OK;
    }

    std::size_t CurrentStep() const override { return begun_ ? step_ : static_cast<std::size_t>(-1); }

    void EndStep() override
    {
        if (!m_BetweenStepPairs) {
            throw std::logic_error("EndStep without BeginStep, of stream " + m_Name);
        }
        m_BetweenStepPairs = false;
        send_attributes();
        for (const auto &[name, value] : values_) {
            writer_->put_value(name, value.dtype, value.is_local, value.bytes);
        }
        values_.clear();
        writer_->end(parameters_.queue_timeout_s, say);
        spans_ = 0;
        for (const auto &forget : forget_spans_) {
            forget();
        }
        forget_spans_.clear();
    }

    /* Put has copied what it was given. */
    void PerformPuts() override {}
    void PerformDataWrite() override {}
    void Flush(const int) override {}

    void NotifyEngineAttribute(std::string, DataType) noexcept override { attributes_changed_ = true; }
    void NotifyEngineAttribute(std::string, AttributeBase *, void *) noexcept override
    {
        attributes_changed_ = true;
    }

private:
    struct Value {
        std::string dtype;
        bool is_local;
        std::string bytes;
    };

    void open()
    {
        say_without_meaning(parameters_);
        const std::string stream = stream_of(m_Name);
        std::string writer = parameters_.writer_name.empty() ? unique_name("writer") : parameters_.writer_name;
        if (m_Comm.Size() > 1) {
            writer = m_Comm.BroadcastValue(writer, 0);
        }
        auto driver = Driver::of(parameters_.group_file, parameters_.rendezvous_timeout_s);
        const bool made = m_Comm.Rank() == 0 && !driver->has(stream);

        WriterOptions options;
        options.writer = writer;
        options.rank = static_cast<std::uint32_t>(m_Comm.Rank());
        options.ranks = static_cast<std::uint32_t>(m_Comm.Size());
        options.queue_steps = static_cast<std::uint64_t>(parameters_.queue_limit);
        options.discard = parameters_.discard;
        options.distribution = name_of(parameters_.distribution);
        options.readers = static_cast<std::uint32_t>(parameters_.rendezvous_readers);
        options.session_timeout_s = parameters_.session_timeout_s;
        options.open_timeout_s = parameters_.rendezvous_timeout_s;
        options.close_timeout_s = parameters_.close_timeout_s;
        options.retention_bytes = parameters_.retention_bytes;
        options.storage = parameters_.storage;
        options.durability = parameters_.durability;
        options.partitions = parameters_.partitions;
        if (made) {
            say("stream " + stream + " is made, and keeps " +
                (parameters_.retention_bytes == 0 ? std::string("all steps")
                                                  : std::to_string(parameters_.retention_bytes) + " bytes of steps") +
                " (parameter RetentionBytes)");
        }
        StillWaiting waiting("writer of " + stream + " waits for " + std::to_string(options.readers) +
                             " reading program(s), parameter RendezvousReaderCount");
        writer_ = std::make_unique<StepWriter>(std::move(driver), stream, options);
    }

    /* Attributes that are new, or have changed. */
    void send_attributes()
    {
        if (!attributes_changed_) {
            return;
        }
        for (const auto &[name, attribute] : m_IO.GetAttributes()) {
            if (attribute->m_Type != DataType::None) {
                send_attribute(name, sent_of(*attribute));
            }
        }
        attributes_changed_ = false;
    }

    void send_attribute(const std::string &name, Sent now)
    {
        const auto before = sent_.find(name);
        if (before != sent_.end() && before->second == now) {
            return;
        }
        writer_->set_attribute(name, now.dtype, now.is_list, now.bytes);
        sent_[name] = std::move(now);
    }

    void check_in_step(const VariableBase &variable) const
    {
        if (!m_BetweenStepPairs) {
            throw std::logic_error("variable " + variable.m_Name +
                                   ": Put stands between BeginStep and EndStep, of stream " + m_Name);
        }
    }

    Block block_of(const VariableBase &variable, std::string dtype) const
    {
        Block block{variable.m_Name, std::move(dtype), Kind::array, {}, {}, {}, 0, parameters_.stats_level > 0, {}};
        block.count = to_lengths(variable.m_Count, column_major_);
        if (variable.m_ShapeID == ShapeID::LocalArray) {
            block.kind = Kind::local_array;
            return block;
        }
        block.shape = to_lengths(variable.m_Shape, column_major_);
        if (variable.m_ShapeID == ShapeID::JoinedArray) {
            block.kind = Kind::joined;
            for (std::size_t d = 0; d < block.shape.size(); ++d) {
                if (block.shape[d] == adios2::JoinedDim) {
                    block.joined = static_cast<std::uint32_t>(d);
                    block.shape[d] = 0;
                }
            }
            return block;
        }
        block.start = to_lengths(variable.m_Start, column_major_);
        return block;
    }

    void put_array(VariableBase &variable, std::string dtype, const void *data)
    {
        if (data != nullptr && variable.GetMemorySpace(data) != adios2::MemorySpace::Host) {
            throw std::invalid_argument("variable " + variable.m_Name + ": its memory is not the host's");
        }
        if (!variable.m_Operations.empty()) {
            say_once("operators are left out: blocks travel and are kept as they are put");
        }
        Block block = block_of(variable, std::move(dtype));
        std::size_t offset = 0;
        if (!variable.m_MemoryCount.empty()) {
            Within memory = within(ordered(variable.m_MemoryCount, column_major_),
                                   ordered(variable.m_MemoryStart, column_major_),
                                   ordered(variable.m_Count, column_major_), variable.m_ElementSize,
                                   "variable " + variable.m_Name + ", memory selection");
            offset = memory.offset;
            block.strides = std::move(memory.strides);
        }
        writer_->put(block, data == nullptr ? data : static_cast<const char *>(data) + offset);
    }

    static bool is_value(const VariableBase &variable)
    {
        return variable.m_ShapeID == ShapeID::GlobalValue || variable.m_ShapeID == ShapeID::LocalValue;
    }

    void put_value(const VariableBase &variable, std::string bytes)
    {
        values_[variable.m_Name] =
            Value{dtype_of(variable.m_Type), variable.m_ShapeID == ShapeID::LocalValue, std::move(bytes)};
    }

    void put(Variable<std::string> &variable, const std::string *data)
    {
        check_in_step(variable);
        if (!is_value(variable)) {
            throw std::invalid_argument("variable " + variable.m_Name + ": strings are single values");
        }
        put_value(variable, *data);
    }

    template <class T>
    void put(Variable<T> &variable, const T *data)
    {
        check_in_step(variable);
        if (is_value(variable)) {
            put_value(variable, std::string(reinterpret_cast<const char *>(data), sizeof(T)));
        } else {
            put_array(variable, dtype_of(variable.m_Type), data);
        }
    }

    void put(VariableStruct &variable, const void *data)
    {
        check_in_step(variable);
        const auto &definition = *variable.m_WriteStructDefinition;
        const std::string dtype = dtype_of(definition);
        Sent name{text_dtype, false, {}};
        append(name.bytes, definition.StructName());
        send_attribute(structure_prefix + variable.m_Name, std::move(name));
        if (is_value(variable)) {
            values_[variable.m_Name] =
                Value{dtype, variable.m_ShapeID == ShapeID::LocalValue,
                      std::string(static_cast<const char *>(data), variable.m_ElementSize)};
        } else {
            put_array(variable, dtype, data);
        }
    }

    template <class T>
    void put_span(Variable<T> &variable, Span<T> &span, bool initialize, const T &value)
    {
        check_in_step(variable);
        if (is_value(variable)) {
            throw std::invalid_argument("variable " + variable.m_Name + ": a span is of an array");
        }
        const std::size_t number = writer_->span(block_of(variable, dtype_of(variable.m_Type)));
        if (initialize) {
            std::fill_n(static_cast<T *>(writer_->span_memory(number)), span.Size(), value);
        }
        span.m_BufferIdx = static_cast<int>(number);
        span.m_PayloadPosition = 0;
        ++spans_;
        /* The variable keeps its spans by number; those of a step that is ended are no one's. */
        forget_spans_.push_back([this, name = variable.m_Name] {
            if (auto *found = m_IO.InquireVariable<T>(name)) {
                found->m_BlocksSpan.clear();
            }
        });
    }

    void *span_memory(int index, std::size_t position) const noexcept
    {
        void *memory = index < 0 ? nullptr : writer_->span_memory(static_cast<std::size_t>(index));
        return memory == nullptr ? nullptr : static_cast<char *>(memory) + position;
    }

    void say_once(const char *line)
    {
        if (said_.insert({line, true}).second) {
            say(std::string("stream ") + m_Name + ": " + line);
        }
    }

#define declare_put(T)                                                                             \
    void DoPutSync(Variable<T> &variable, const T *data) override { put(variable, data); }         \
    void DoPutDeferred(Variable<T> &variable, const T *data) override { put(variable, data); }
    ADIOS2_FOREACH_STDTYPE_1ARG(declare_put)
#undef declare_put

#define declare_span(T)                                                                            \
    void DoPut(Variable<T> &variable, Variable<T>::Span &span, const bool initialize,              \
               const T &value) override                                                            \
    {                                                                                              \
        put_span(variable, span, initialize, value);                                               \
    }                                                                                              \
    std::size_t PutCount(Variable<T> &) override { return spans_; }
    ADIOS2_FOREACH_PRIMITIVE_STDTYPE_1ARG(declare_span)
#undef declare_span

#define declare_buffer(T, L)                                                                       \
    T *DoBufferData_##L(const int index, const std::size_t position, const std::size_t) noexcept   \
        override                                                                                   \
    {                                                                                              \
        return static_cast<T *>(span_memory(index, position));                                     \
    }
    ADIOS2_FOREACH_PRIMITVE_STDTYPE_2ARGS(declare_buffer)
#undef declare_buffer

    void DoPutStructSync(VariableStruct &variable, const void *data) override { put(variable, data); }
    void DoPutStructDeferred(VariableStruct &variable, const void *data) override { put(variable, data); }

    void DoClose(const int) override
    {
        if (m_BetweenStepPairs) {
            EndStep();
        }
        const std::string behind = writer_->close(parameters_.queue_timeout_s);
        if (!behind.empty()) {
            say("stream " + m_Name + " is closed, and lies in the server's memory alone: " + behind);
        }
    }

    const Parameters parameters_;
    const bool column_major_;
    std::unique_ptr<StepWriter> writer_;
    bool begun_ = false;
    std::size_t step_ = 0;
    /* What was put since BeginStep: the last of each name counts. */
    std::map<std::string, Value> values_;
    std::size_t spans_ = 0;
    std::vector<std::function<void()>> forget_spans_;
    bool attributes_changed_ = true;
    std::map<std::string, Sent> sent_;
    std::map<std::string, bool> said_;
};

} // namespace

std::shared_ptr<Engine> make_writer(IO &io, const std::string &name, Mode mode, Comm comm)
{
    return std::make_shared<WriterEngine>(io, name, mode, std::move(comm));
}

} // namespace thalweg_adios2
