/*
 * The engine of a program that reads: variables of a Thalweg step become an IO's.
 */
#include "element.hpp"
#include "engine.hpp"

#include <adios2/core/Attribute.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg_adios2 {
namespace {

using adios2::DataType;
using adios2::Dims;
using adios2::MinBlockInfo;
using adios2::MinMaxStruct;
using adios2::MinVarInfo;
using adios2::Mode;
using adios2::SelectionType;
using adios2::ShapeID;
using adios2::StepMode;
using adios2::StepStatus;
using adios2::core::Engine;
using adios2::core::IO;
using adios2::core::StructDefinition;
using adios2::core::Variable;
using adios2::core::VariableBase;
using adios2::core::VariableStruct;
using adios2::helper::Comm;

/* What a program wants of a variable, whichever way it said so. */
struct Wanted {
    bool has_box = false;
    Dims start;
    Dims count;
    std::optional<std::size_t> block;
    Dims memory_start;
    Dims memory_count;
};

/* As the variable's own selections say, which are by box or by block. */
Wanted wanted_of(const VariableBase &variable)
{
    Wanted wanted;
    wanted.has_box = variable.m_SelectionType == SelectionType::BoundingBox && !variable.m_Start.empty() &&
                     variable.m_Start.size() == variable.m_Count.size();
    if (wanted.has_box) {
        wanted.start = variable.m_Start;
        wanted.count = variable.m_Count;
    }
    if (variable.m_SelectionType == SelectionType::WriteBlock || variable.m_BlockID != 0) {
        wanted.block = variable.m_BlockID;
    }
    wanted.memory_start = variable.m_MemoryStart;
    wanted.memory_count = variable.m_MemoryCount;
    return wanted;
}

#if ADIOS2_VERSION_MAJOR > 2 || ADIOS2_VERSION_MINOR >= 12
Wanted wanted_of(const adios2::core::Selection &selection)
{
    Wanted wanted;
    wanted.has_box = selection.GetSelectionType() == SelectionType::BoundingBox;
    wanted.start = selection.GetStart();
    wanted.count = selection.GetCount();
    if (selection.HasBlockSelection()) {
        wanted.block = selection.GetBlockID();
    }
    if (selection.HasMemorySelection()) {
        wanted.memory_start = selection.GetMemoryStart();
        wanted.memory_count = selection.GetMemoryCount();
    }
    return wanted;
}
#endif

/* A variable of the step, and what was asked of it so far. */
struct Known {
    VariableInfo info;
    Element element;
    std::optional<std::vector<std::string>> values;
    std::optional<std::vector<BlockInfo>> blocks;
    /* What MinVarInfo points to. */
    Dims shape;
    std::vector<Dims> starts;
    std::vector<Dims> counts;
    std::vector<const char *> texts;

    bool is_value() const { return info.kind == Kind::value || info.kind == Kind::local_value; }
};

/* The last run that this process has read, of each stream: the next opening begins behind it. */
class RunsRead {
public:
    static std::optional<std::uint64_t> last(const std::string &key)
    {
        const std::lock_guard<std::mutex> lock(mutex());
        const auto found = all().find(key);
        return found == all().end() ? std::nullopt : std::optional(found->second);
    }
    static void note(const std::string &key, std::uint64_t run)
    {
        const std::lock_guard<std::mutex> lock(mutex());
        all()[key] = run;
    }

private:
    static std::mutex &mutex()
    {
        static std::mutex mutex;
        return mutex;
    }
    static std::map<std::string, std::uint64_t> &all()
    {
        static std::map<std::string, std::uint64_t> all;
        return all;
    }
};

using Clock = std::chrono::steady_clock;

class ReaderEngine final : public Engine {
public:
    ReaderEngine(IO &io, const std::string &name, Mode mode, Comm comm)
        : Engine("ThalwegReader", io, name, mode, std::move(comm)), parameters_(parse(io.m_Parameters)),
          column_major_(io.m_ArrayOrder == adios2::ArrayOrdering::ColumnMajor)
    {
        if (mode != Mode::Read) {
            throw std::invalid_argument("stream " + m_Name + ": a stream is read step by step, with Mode::Read");
        }
        open();
        m_IsOpen = true;
    }

    ~ReaderEngine() override { m_IsOpen = false; }

    StepStatus BeginStep(StepMode mode, const float timeout_s) override
    {
        if (m_BetweenStepPairs) {
            throw std::logic_error("BeginStep is called a second time without EndStep, of stream " + m_Name);
        }
        if (mode != StepMode::Read) {
            throw std::invalid_argument("BeginStep of a reader with another mode than StepMode::Read, of stream " +
                                        m_Name);
        }
        if (ended_) {
            return *ended_;
        }
        forget_step();
        const StepStatus status = next(timeout_s);
        if (status != StepStatus::OK) {
            return status;
        }
        m_BetweenStepPairs = true;
        define_attributes();
        define_variables();
        m_IO.ResetVariablesStepSelection(true, "in BeginStep of a Thalweg stream");
        return status;
    }

    std::size_t CurrentStep() const override { return step_; }

    void EndStep() override
    {
        if (!m_BetweenStepPairs) {
            throw std::logic_error("EndStep without BeginStep, of stream " + m_Name);
        }
        m_BetweenStepPairs = false;
        PerformGets();
        learn();
        view_.reset();
        /* A writer whose queue is full may go on. */
        reader_->release();
    }

    void PerformGets() override
    {
        if (pending_.empty()) {
            return;
        }
        std::vector<Read> reads;
        reads.swap(pending_);
        view_->read(reads);
        if (learns()) {
            std::move(reads.begin(), reads.end(), std::back_inserter(read_));
        }
    }

    void Flush(const int) override {}

    MinVarInfo *MinBlocksInfo(const VariableBase &variable, const std::size_t step) const override
    {
        Known *known = find(variable.m_Name);
        return known == nullptr ? nullptr : blocks_info(*known, step);
    }

    bool VarShape(const VariableBase &variable, const std::size_t, Dims &shape) const override
    {
        const Known *known = find(variable.m_Name);
        if (known == nullptr || known->shape.empty()) {
            return false;
        }
        shape = known->shape;
        return true;
    }

    bool VariableMinMax(const VariableBase &variable, const std::size_t, MinMaxStruct &extremes) override
    {
        std::memset(&extremes, 0, sizeof extremes);
        Known *known = find(variable.m_Name);
        if (known == nullptr) {
            return true;
        }
        bool first = true;
        if (known->is_value()) {
            for (const std::string &value : values_of(*known)) {
                extend(extremes, *known, value, value, first);
            }
        } else {
            for (const BlockInfo &block : blocks_of(*known)) {
                extend(extremes, *known, block.min, block.max, first);
            }
        }
        return true;
    }

private:
    /* ------------------------------------------------------ opening --- */

    void open()
    {
        say_without_meaning(parameters_);
        stream_ = stream_of(m_Name);
        const auto deadline = Clock::now() + std::chrono::seconds(parameters_.open_timeout_s);
        driver_ = Driver::of(parameters_.group_file, parameters_.open_timeout_s);

        ReaderOptions options;
        options.name = parameters_.reader_name.empty() ? unique_name("reader") : parameters_.reader_name;
        options.rank = static_cast<std::uint32_t>(m_Comm.Rank());
        options.ranks = static_cast<std::uint32_t>(m_Comm.Size());
        Run run;
        if (m_Comm.Rank() == 0) {
            run = choose_run(deadline);
        }
        if (m_Comm.Size() > 1) {
            options.name = m_Comm.BroadcastValue(options.name, 0);
            run.number = m_Comm.BroadcastValue(run.number, 0);
            run.distribution = m_Comm.BroadcastValue(run.distribution, 0);
        }
        options.run = run.number;
        options.latest = parameters_.latest;
        options.preload_all = parameters_.preload_all;
        /* The writer says whether readers share its steps. A run that is read again is read whole. */
        if (run.distribution != "all" && parameters_.run.empty()) {
            if (options.latest) {
                say_once("AlwaysProvideLatestTimestep: readers that share steps are given each of them");
            }
            options.latest = false;
            options.distribution = run.distribution;
            options.group = options.name;
            options.name = "shared-run-" + std::to_string(run.number);
        }
        options.session_timeout_s = parameters_.session_timeout_s;
        options.open_timeout_s = std::max(1, parameters_.open_timeout_s);
        reader_ = std::make_unique<StepReader>(driver_, stream_, options);
        RunsRead::note(parameters_.group_file + "\n" + stream_, run.number);
    }

    /*
     * The run to read: that of the parameter Run; else the one behind that which this process has
     * read last, be it closed meanwhile; else the one that is being written. It is waited for.
     */
    Run choose_run(Clock::time_point deadline) const
    {
        const auto before = RunsRead::last(parameters_.group_file + "\n" + stream_);
        for (;;) {
            const std::vector<Run> all = runs(*driver_, stream_);
            for (auto run = all.rbegin(); run != all.rend(); ++run) {
                if (parameters_.run == "last" ? !run->open : parameters_.run == std::to_string(run->number)) {
                    return *run;
                }
            }
            if (parameters_.run.empty()) {
                for (const Run &run : all) {
                    if (before ? run.number > *before : run.open) {
                        return run;
                    }
                }
            }
            const auto now = Clock::now();
            if (now >= deadline) {
                const std::string what = parameters_.run.empty()     ? "no program writes it"
                                         : parameters_.run == "last" ? "it has no closed run"
                                                                     : "it has no run " + parameters_.run;
                throw std::runtime_error("stream " + stream_ + ": " + what + "; waited " +
                                         std::to_string(parameters_.open_timeout_s) +
                                         " s, parameter OpenTimeoutSecs");
            }
            std::this_thread::sleep_for(std::min<Clock::duration>(std::chrono::milliseconds(50), deadline - now));
        }
    }

    /* -------------------------------------------------------- steps --- */

    /* Asks for the next step: of several ranks the first decides. */
    StepStatus next(float timeout_s)
    {
        int status = static_cast<int>(StepStatus::OK);
        if (m_Comm.Rank() == 0) {
            status = static_cast<int>(ask(timeout_s));
        }
        if (m_Comm.Size() > 1) {
            status = m_Comm.BroadcastValue(status, 0);
            if (m_Comm.Rank() != 0 && status != static_cast<int>(StepStatus::NotReady)) {
                status = static_cast<int>(ask(-1));
            }
        }
        return static_cast<StepStatus>(status);
    }

    StepStatus ask(float timeout_s)
    {
        Next came = reader_->next(timeout_s);
        switch (came.what) {
        case Next::not_ready:
            return StepStatus::NotReady;
        case Next::closed:
            ended_ = StepStatus::EndOfStream;
            return *ended_;
        case Next::broken:
            say("stream " + stream_ + ": " + came.reason);
            ended_ = StepStatus::OtherError;
            return *ended_;
        case Next::step:
            break;
        }
        view_ = std::move(came.view);
        step_ = view_->number();
        return StepStatus::OK;
    }

    /* Whether the next step is asked for what this one was: after LockReaderSelections, as SST does. */
    bool learns() const { return !parameters_.preload_all && m_ReaderSelectionsLocked; }

    /* Has the next steps read ahead what was read of this one. */
    void learn()
    {
        const auto is_same = [](const Read &one, const Read &other) {
            return one.variable == other.variable && one.block == other.block && one.start == other.start &&
                   one.count == other.count;
        };
        if (learns() && !std::equal(read_.begin(), read_.end(), learned_.begin(), learned_.end(), is_same)) {
            reader_->preload(read_);
            learned_ = read_;
        }
        read_.clear();
    }

    /* Takes the variables of the step before out of the IO. */
    void forget_step()
    {
        for (const auto &[name, known] : known_) {
            m_IO.RemoveVariable(name);
        }
        known_.clear();
        pending_.clear();
        view_.reset();
    }

    Known *find(const std::string &name) const
    {
        const auto found = known_.find(name);
        return found == known_.end() || view_ == nullptr ? nullptr : &found->second;
    }

    Known &want(const VariableBase &variable) const
    {
        Known *known = find(variable.m_Name);
        if (known == nullptr) {
            throw std::invalid_argument("variable " + variable.m_Name + " is not in the step that is read, of stream " +
                                        m_Name);
        }
        if (known->element.type != variable.m_Type) {
            throw std::invalid_argument("variable " + variable.m_Name + " is of type " +
                                        adios2::ToString(known->element.type) + " in this step, not " +
                                        adios2::ToString(variable.m_Type));
        }
        return *known;
    }

    const std::vector<std::string> &values_of(Known &known) const
    {
        if (!known.values) {
            known.values = view_->values(known.info);
        }
        return *known.values;
    }

    const std::vector<BlockInfo> &blocks_of(Known &known) const
    {
        if (!known.blocks) {
            known.blocks = view_->blocks(known.info);
        }
        return *known.blocks;
    }

    /* --------------------------------------------------- attributes --- */

    void define_attributes()
    {
        for (const Attribute &attribute : view_->attributes()) {
            Attribute &before = attributes_[attribute.name];
            if (before == attribute) {
                continue;
            }
            before = attribute;
            if (attribute.name.rfind(structure_prefix, 0) == 0) {
                structures_[attribute.name.substr(std::strlen(structure_prefix))].name = attribute.texts.at(0);
            } else {
                define_attribute(attribute);
            }
        }
    }

    void define_attribute(const Attribute &attribute)
    {
        const auto element = element_of(attribute.dtype, "");
        if (!element || element->type == DataType::Struct) {
            say_once("attribute " + attribute.name + " is left out: ADIOS2 has no type " + attribute.dtype);
            return;
        }
        /* One that was there, of another type or not to be changed, is replaced. */
        m_IO.RemoveAttribute(attribute.name);
#define define_of_type(T)                                                                          \
    if (element->type == adios2::helper::GetDataType<T>()) {                                       \
        const std::vector<T> values = elements_of<T>(attribute);                                   \
        if (attribute.is_list) {                                                                   \
            m_IO.DefineAttribute<T>(attribute.name, values.data(), values.size(), "", "/", true);  \
        } else {                                                                                   \
            m_IO.DefineAttribute<T>(attribute.name, values.at(0), "", "/", true);                  \
        }                                                                                          \
    }
        ADIOS2_FOREACH_ATTRIBUTE_STDTYPE_1ARG(define_of_type)
#undef define_of_type
    }

    template <class T>
    static std::vector<T> elements_of(const Attribute &attribute)
    {
        if constexpr (std::is_same_v<T, std::string>) {
            return attribute.texts;
        } else {
            const std::string &bytes = attribute.bytes;
            std::vector<T> values(bytes.size() / sizeof(T));
            std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
            return values;
        }
    }

    /* ---------------------------------------------------- variables --- */

    void define_variables()
    {
        for (VariableInfo &info : view_->variables()) {
            const std::string name = info.name;
            auto element = element_of(info.dtype, structures_[name].name);
            if (!element) {
                say_once("variable " + name + " is left out: ADIOS2 has no type " + info.dtype);
                continue;
            }
            if (m_IO.GetVariables().count(name) != 0) {
                throw std::logic_error("variable " + name + " is defined in IO " + m_IO.m_Name +
                                       ", and in the stream " + m_Name + ", too: a reader's variables come from the stream");
            }
            Known known{std::move(info), std::move(*element), {}, {}, {}, {}, {}, {}};
            known.shape = to_dims(known.info.shape, column_major_);
            Known &placed = known_.emplace(name, std::move(known)).first->second;
            define_variable(placed);
        }
    }

    void define_variable(Known &known)
    {
        if (known.element.type == DataType::Struct) {
            define_structure(known);
        }
#define define_of_type(T)                                                                          \
    else if (known.element.type == adios2::helper::GetDataType<T>()) { define<T>(known); }
        ADIOS2_FOREACH_STDTYPE_1ARG(define_of_type)
#undef define_of_type
    }

    /* The lengths that a variable has before something is selected. */
    Dims first_count(Known &known) const
    {
        if (known.info.kind != Kind::local_array) {
            return known.shape;
        }
        const auto &blocks = blocks_of(known);
        return blocks.empty() ? Dims() : to_dims(blocks.front().count, column_major_);
    }

    template <class T>
    void define(Known &known)
    {
        Variable<T> &variable = m_IO.DefineVariable<T>(known.info.name);
        prepare(variable, known);
        if (known.info.kind == Kind::value) {
            variable.m_Value = variable.m_Min = variable.m_Max = decode<T>(values_of(known).at(0));
        }
    }

    void define_structure(Known &known)
    {
        Structure &structure = structures_[known.info.name];
        structure.written = known.element.fields;
        VariableStruct &variable = m_IO.DefineStructVariable(known.info.name, *structure.written);
        prepare(variable, known);
        variable.m_WriteStructDefinition = structure.written.get();
        variable.m_ReadStructDefinition = structure.read;
    }

    void prepare(VariableBase &variable, Known &known)
    {
        variable.m_Engine = this;
        variable.m_AvailableStepsCount = 1;
        if (known.info.kind == Kind::value) {
            return;
        }
        const bool is_local = known.info.kind == Kind::local_array;
        variable.m_ShapeID = is_local ? ShapeID::LocalArray : ShapeID::GlobalArray;
        variable.m_SingleValue = false;
        variable.m_Count = first_count(known);
        if (!is_local) {
            variable.m_Shape = known.shape;
            variable.m_Start = Dims(known.shape.size(), 0);
        }
    }

    template <class T>
    static T decode(const std::string &bytes)
    {
        if constexpr (std::is_same_v<T, std::string>) {
            return bytes;
        } else {
            T value{};
            std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
            return value;
        }
    }

    /* ------------------------------------------------------- blocks --- */

    MinVarInfo *blocks_info(Known &known, std::size_t step) const
    {
        if (known.is_value()) {
            return values_info(known, step);
        }
        const auto &blocks = blocks_of(known);
        if (known.counts.size() != blocks.size()) {
            for (const BlockInfo &block : blocks) {
                known.starts.push_back(to_dims(block.start, column_major_));
                known.counts.push_back(to_dims(block.count, column_major_));
            }
        }
        const std::size_t dimensions = blocks.empty() ? known.shape.size() : blocks.front().count.size();
        const bool is_local = known.info.kind == Kind::local_array;
        auto info = std::make_unique<MinVarInfo>(static_cast<int>(dimensions), is_local ? nullptr : known.shape.data());
        info->Step = step;
        info->WasLocalValue = false;
        for (std::size_t i = 0; i < blocks.size(); ++i) {
            MinBlockInfo block;
            block.WriterID = static_cast<int>(blocks[i].rank);
            block.BlockID = i;
            block.Start = is_local ? nullptr : known.starts[i].data();
            block.Count = known.counts[i].data();
            block.BufferP = nullptr;
            std::memset(&block.MinMax, 0, sizeof block.MinMax);
            bool first = true;
            extend(block.MinMax, known, blocks[i].min, blocks[i].max, first);
            info->BlocksInfo.push_back(block);
        }
        return info.release();
    }

    MinVarInfo *values_info(Known &known, std::size_t step) const
    {
        const auto &values = values_of(known);
        const bool is_local = known.info.kind == Kind::local_value;
        /* Of a local value ADIOS2 has numbers where pointers would be. */
        const auto number = [](std::size_t value) { return reinterpret_cast<const std::size_t *>(value); };
        auto info = std::make_unique<MinVarInfo>(is_local ? 1 : 0, is_local ? number(values.size()) : nullptr);
        info->Step = step;
        info->WasLocalValue = is_local;
        info->IsValue = !is_local;
        if (known.texts.size() != values.size()) {
            for (const std::string &value : values) {
                known.texts.push_back(value.c_str());
            }
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
            MinBlockInfo block;
            block.WriterID = static_cast<int>(i);
            block.BlockID = i;
            block.Start = is_local ? number(i) : nullptr;
            block.Count = is_local ? number(1) : nullptr;
            const void *at = known.element.type == DataType::String ? static_cast<const void *>(&known.texts[i])
                                                                    : values[i].data();
            block.BufferP = const_cast<void *>(at);
            std::memset(&block.MinMax, 0, sizeof block.MinMax);
            bool first = true;
            extend(block.MinMax, known, values[i], values[i], first);
            info->BlocksInfo.push_back(block);
        }
        return info.release();
    }

    /* Takes a block's least and greatest element into `extremes`; nothing where there are none. */
    static void extend(MinMaxStruct &extremes, const Known &known, const std::string &min, const std::string &max,
                       bool &first)
    {
        if (min.empty() || max.empty()) {
            return;
        }
        const bool begins = std::exchange(first, false);
#define extend_of_type(T, N)                                                                       \
    if (known.element.type == adios2::helper::GetDataType<T>()) {                                  \
        const T least = decode<T>(min);                                                            \
        const T greatest = decode<T>(max);                                                         \
        T &low = extremes.MinUnion.field_##N;                                                      \
        T &high = extremes.MaxUnion.field_##N;                                                     \
        low = begins ? least : std::min(low, least);                                               \
        high = begins ? greatest : std::max(high, greatest);                                       \
    }
        ADIOS2_FOREACH_MINMAX_STDTYPE_2ARGS(extend_of_type)
#undef extend_of_type
    }

    /* --------------------------------------------------------- gets --- */

    void get_value(Known &known, const Wanted &wanted, void *data)
    {
        const auto &values = values_of(known);
        std::size_t from = 0;
        std::size_t count = 1;
        if (known.info.kind == Kind::local_value) {
            count = values.size();
            if (wanted.has_box) {
                from = wanted.start.at(0);
                count = wanted.count.at(0);
            } else if (wanted.block) {
                from = *wanted.block;
                count = 1;
            }
        }
        if (from > values.size() || count > values.size() - from) {
            throw std::invalid_argument("variable " + known.info.name + " has " + std::to_string(values.size()) +
                                        " values; wanted are " + std::to_string(count) + " from number " +
                                        std::to_string(from));
        }
        for (std::size_t i = 0; i < count; ++i) {
            const std::string &value = values[from + i];
            if (known.element.type == DataType::String) {
                static_cast<std::string *>(data)[i] = value;
            } else {
                std::memcpy(static_cast<char *>(data) + i * known.element.bytes, value.data(), known.element.bytes);
            }
        }
    }

    void get(VariableBase &variable, const Wanted &wanted, void *data)
    {
        if (!m_BetweenStepPairs) {
            throw std::logic_error("variable " + variable.m_Name +
                                   ": Get stands between BeginStep and EndStep, of stream " + m_Name);
        }
        Known &known = want(variable);
        if (known.is_value()) {
            get_value(known, wanted, data);
        } else {
            add_pending(known, wanted, data);
        }
    }

    void add_pending(Known &known, const Wanted &wanted, void *data)
    {
        const bool is_local = known.info.kind == Kind::local_array;
        /* A box is of the whole, as SST has it, but of local arrays, which have none. */
        const bool of_block = is_local || (wanted.block && !wanted.has_box);
        const std::size_t block = wanted.block.value_or(0);
        Dims whole = known.shape;
        if (of_block) {
            const auto &blocks = blocks_of(known);
            if (block >= blocks.size()) {
                throw std::invalid_argument("variable " + known.info.name + " has " + std::to_string(blocks.size()) +
                                            " blocks; wanted is number " + std::to_string(block));
            }
            whole = to_dims(blocks[block].count, column_major_);
        }
        Dims start = wanted.has_box ? wanted.start : Dims(whole.size(), 0);
        Dims count = wanted.has_box ? wanted.count : whole;
        if (start.size() != whole.size() || count.size() != whole.size()) {
            throw std::invalid_argument("variable " + known.info.name + " has " + std::to_string(whole.size()) +
                                        " dimensions; the selection is start " + adios2::ToString(start) +
                                        ", count " + adios2::ToString(count));
        }

        const bool has_memory = !wanted.memory_count.empty();
        const Dims memory_count = has_memory ? wanted.memory_count : count;
        const Dims memory_start = has_memory ? wanted.memory_start : Dims(count.size(), 0);
        /* What is outside of the array is no one's, and keeps what it was. */
        for (std::size_t d = 0; d < whole.size(); ++d) {
            count[d] = std::min(count[d], start[d] < whole[d] ? whole[d] - start[d] : 0);
        }
        if (elements(count) == 0) {
            return;
        }

        Read read{known.info.name, {}, to_lengths(start, column_major_), to_lengths(count, column_major_),
                  data, elements(count) * known.element.bytes, {}};
        if (of_block) {
            read.block = block;
        }
        if (memory_count != count) {
            Within memory = within(ordered(memory_count, column_major_), ordered(memory_start, column_major_),
                                   ordered(count, column_major_), known.element.bytes,
                                   "variable " + known.info.name + ", memory selection");
            read.into = static_cast<char *>(data) + memory.offset;
            read.strides = std::move(memory.strides);
        }
        pending_.push_back(std::move(read));
    }

    void get_structure(VariableStruct &variable, void *data)
    {
        Structure &structure = structures_[variable.m_Name];
        if (variable.m_ReadStructDefinition == nullptr) {
            throw std::logic_error("variable " + variable.m_Name + ": SetReadStructDef stands before Get");
        }
        if (structure.read != nullptr && structure.read != variable.m_ReadStructDefinition) {
            throw std::logic_error("variable " + variable.m_Name +
                                   ": the structure that it is read as cannot be changed");
        }
        const StructDefinition &read = *variable.m_ReadStructDefinition;
        if (dtype_of(read) != dtype_of(*structure.written)) {
            throw std::invalid_argument("variable " + variable.m_Name + ": structure " + read.StructName() +
                                        " is not the one that was written: " + dtype_of(read) + ", written as " +
                                        dtype_of(*structure.written));
        }
        structure.read = variable.m_ReadStructDefinition;
        get(variable, wanted_of(variable), data);
    }

    void say_once(const std::string &line)
    {
        if (said_.insert({line, true}).second) {
            say("stream " + m_Name + ": " + line);
        }
    }

#define declare_get(T)                                                                             \
    void DoGetSync(Variable<T> &variable, T *data) override                                        \
    {                                                                                              \
        get(variable, wanted_of(variable), data);                                                  \
        PerformGets();                                                                             \
    }                                                                                              \
    void DoGetDeferred(Variable<T> &variable, T *data) override                                    \
    {                                                                                              \
        get(variable, wanted_of(variable), data);                                                  \
    }
    ADIOS2_FOREACH_STDTYPE_1ARG(declare_get)
#undef declare_get

#if ADIOS2_VERSION_MAJOR > 2 || ADIOS2_VERSION_MINOR >= 12
#define declare_get(T)                                                                             \
    void DoGetSync(Variable<T> &variable, T *data, const adios2::core::Selection &selection) override \
    {                                                                                              \
        get(variable, wanted_of(selection), data);                                                 \
        PerformGets();                                                                             \
    }                                                                                              \
    void DoGetDeferred(Variable<T> &variable, T *data, const adios2::core::Selection &selection) override \
    {                                                                                              \
        get(variable, wanted_of(selection), data);                                                 \
    }
    ADIOS2_FOREACH_STDTYPE_1ARG(declare_get)
#undef declare_get
#endif

    void DoGetStructSync(VariableStruct &variable, void *data) override
    {
        get_structure(variable, data);
        PerformGets();
    }
    void DoGetStructDeferred(VariableStruct &variable, void *data) override { get_structure(variable, data); }

    void DoClose(const int) override
    {
        if (m_BetweenStepPairs) {
            EndStep();
        }
        view_.reset();
        reader_->close(close_timeout_s);
    }

    /* How long Close waits for the last step's release: without it the reader's name is as it was. */
    static constexpr double close_timeout_s = 10;

    struct Structure {
        std::string name;
        std::shared_ptr<StructDefinition> written;
        StructDefinition *read = nullptr;
    };

    const Parameters parameters_;
    const bool column_major_;
    std::string stream_;
    std::shared_ptr<Driver> driver_;
    std::unique_ptr<StepReader> reader_;
    std::unique_ptr<StepView> view_;
    std::optional<StepStatus> ended_;
    std::size_t step_ = 0;
    mutable std::map<std::string, Known> known_;
    std::map<std::string, Structure> structures_;
    /* What was given of each attribute, so that only changes are defined. */
    std::map<std::string, Attribute> attributes_;
    std::vector<Read> pending_;
    /* What was read of this step, and of the one that steps are read ahead like. Their memory is the program's. */
    std::vector<Read> read_;
    std::vector<Read> learned_;
    std::map<std::string, bool> said_;
};

} // namespace

std::shared_ptr<Engine> make_reader(IO &io, const std::string &name, Mode mode, Comm comm)
{
    return std::make_shared<ReaderEngine>(io, name, mode, std::move(comm));
}

} // namespace thalweg_adios2
