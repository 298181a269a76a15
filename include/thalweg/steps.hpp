/*
 * Thalweg's C++17 interface to steps of arrays. Header only, over steps.h, which
 * says what each call waits for and what fails; include it beside thalweg.hpp.
 *
 *     thalweg::StepWriter writer(driver, "fields", R"({"rank": 0, "ranks": 2})");
 *     writer.begin();
 *     writer.put("E", field.data(), {100, 80}, thalweg::At{{200, 80}, {0, 0}});
 *     writer.end();
 *     writer.close();
 *
 *     thalweg::StepReader reader(driver, "fields", R"({"name": "viewer"})");
 *     for (const thalweg::Step &step : reader) {
 *         std::vector<double> corner = step.read<double>("E", thalweg::Box{{10, 0}, {10, 80}});
 *     }
 *
 * StepStream, StepWriter and StepReader are moved, not copied; a Step is a shared handle and can
 * be copied. Whatever fails throws an exception derived from thalweg::Error: RunEnded where a
 * run is over for its writer, Timeout with who is behind in what(), OutOfRange where retention
 * has taken a step. Threads and memory: as steps.h says.
 */
#ifndef THALWEG_STEPS_HPP
#define THALWEG_STEPS_HPP

#include <thalweg/steps.h>
#include <thalweg/thalweg.hpp>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace thalweg {

/* ------------------------------------------------------------- types --- */

namespace detail {

template <class T> struct is_complex : std::false_type {};
template <class T> struct is_complex<std::complex<T>> : std::true_type {};

inline bool little_endian()
{
    const uint16_t one = 1;
    unsigned char first = 0;
    std::memcpy(&first, &one, 1);
    return first == 1;
}

} // namespace detail

/*
 * The type of an element as steps.h writes it, such as "<f8" for double: of integers, floats,
 * bool and std::complex. Other types are named by a specialization, as structures:
 *
 *     template <> struct thalweg::StepType<Particle> {
 *         static std::string name() { return R"([["x","<f8"],["id","<u4"],["","|V4"]])"; }
 *     };
 */
template <class T, class = void> struct StepType {
    static_assert(std::is_arithmetic<T>::value || detail::is_complex<T>::value,
                  "thalweg::StepType is to be specialized for this type");
    static std::string name()
    {
        char kind = 'f';
        if (detail::is_complex<T>::value)
            kind = 'c';
        else if (std::is_same<T, bool>::value)
            kind = 'b';
        else if (std::is_integral<T>::value)
            kind = std::is_signed<T>::value ? 'i' : 'u';
        const char order = sizeof(T) == 1 ? '|' : detail::little_endian() ? '<' : '>';
        return std::string{order, kind} + std::to_string(sizeof(T));
    }
};

/* Lengths, indices and the like, one each dimension. */
using Dims = std::vector<uint64_t>;

/* A pointer and how many elements. Not owned. */
template <class T> class StepSpan {
public:
    StepSpan(T *data, size_t size) : data_(data), size_(size) {}
    T *data() const noexcept { return data_; }
    size_t size() const noexcept { return size_; }
    T *begin() const noexcept { return data_; }
    T *end() const noexcept { return data_ + size_; }
    T &operator[](size_t index) const { return data_[index]; }

private:
    T *data_;
    size_t size_;
};

/* How the blocks of a variable make a whole. */
enum class StepKind {
    Value = THALWEG_STEP_VALUE,
    Array = THALWEG_STEP_ARRAY,
    Joined = THALWEG_STEP_JOINED,
    LocalValue = THALWEG_STEP_LOCAL_VALUE,
    LocalArray = THALWEG_STEP_LOCAL_ARRAY
};

/* Where a block belongs: at a place of an array that all ranks make, */
struct At {
    Dims shape; /* lengths of the whole */
    Dims start; /* where the block begins in it */
};
/* behind the blocks of the ranks before, along a dimension, */
struct Join {
    uint32_t dimension = 0;
};
/* or nowhere: it is an array by itself. */
struct Local {};

class Place {
public:
    /* The block is the whole array. */
    Place() = default;
    Place(At at) : at_(std::move(at)) {}
    Place(Join join) : kind_(StepKind::Joined), joined_(join.dimension) {}
    Place(Local) : kind_(StepKind::LocalArray) {}

private:
    friend class StepWriter;
    StepKind kind_ = StepKind::Array;
    uint32_t joined_ = 0;
    std::optional<At> at_;
};

/* What can be chosen of a put. */
struct PutOptions {
    /* Sends it from where it lies: see THALWEG_STEP_BORROW. */
    bool borrow = false;
    /* Whether readers are told its least and greatest element. */
    bool extremes = true;
    /* Bytes from one element to the next along each dimension; empty: one behind the other. */
    std::vector<int64_t> strides = {};
};

/* What is wanted of a variable. Without it: all. */
struct Box {
    Dims start;     /* empty: from 0 on */
    Dims count;     /* empty: as many as there are from there */
    Dims step = {}; /* from one element to the next; empty: 1 */
};

/* What has become of a step. */
struct StepEnded {
    uint64_t step = 0;
    bool committed = false;             /* readers have it, or know that it was dropped */
    std::optional<std::string> discarded; /* why it was dropped; none: it was not, as far as known */
};

/* What the end of a step waits for; see THALWEG_STEP_ACCEPTED. */
enum class StepWait {
    Begun = THALWEG_STEP_BEGUN,
    Accepted = THALWEG_STEP_ACCEPTED,
    Committed = THALWEG_STEP_COMMITTED
};

/* -------------------------------------------------------- attributes --- */

/* The attributes of a run, as they were when they were asked for. */
class StepAttributes {
public:
    explicit StepAttributes(thalweg_step_attributes *handle) : handle_(handle) {}

    size_t size() const noexcept { return thalweg_step_attributes_count(handle_.get()); }
    bool has(const std::string &name) const noexcept { return find(name) != THALWEG_STEP_NONE; }

    /* What there is to know of one, from 0; pointers live as long as this object. */
    thalweg_step_attribute at(size_t index) const
    {
        thalweg_step_attribute attribute;
        detail::call(thalweg_step_attributes_at, handle_.get(), index, &attribute);
        return attribute;
    }

    std::vector<std::string> names() const
    {
        std::vector<std::string> names;
        for (size_t index = 0; index < size(); ++index)
            names.emplace_back(at(index).name);
        return names;
    }

    /* The elements of an attribute of type T. Throws InvalidArgument if it is not there, or is of
     * another type. */
    template <class T> std::vector<T> list(const std::string &name) const
    {
        const size_t index = known(name);
        if constexpr (std::is_same<T, std::string>::value) {
            std::vector<std::string> texts;
            const size_t count = at(index).count;
            for (size_t text = 0; text < count; ++text) {
                thalweg_bytes bytes;
                detail::call(thalweg_step_attributes_text, handle_.get(), index, text, &bytes);
                texts.emplace_back(static_cast<const char *>(bytes.base), bytes.size);
            }
            return texts;
        } else {
            const thalweg_step_attribute found = at(index);
            if (StepType<T>::name() != found.dtype)
                refuse(name, "is of another type");
            std::vector<T> values(found.count);
            if (found.size > 0)
                std::memcpy(values.data(), found.value, found.size);
            return values;
        }
    }

    /* The one element of an attribute of type T. */
    template <class T> T get(const std::string &name) const
    {
        std::vector<T> values = list<T>(name);
        if (values.size() != 1)
            refuse(name, "is not a single value");
        return values.front();
    }

private:
    size_t find(const std::string &name) const noexcept
    {
        return thalweg_step_attributes_find(handle_.get(), name.c_str());
    }
    size_t known(const std::string &name) const
    {
        const size_t index = find(name);
        if (index == THALWEG_STEP_NONE)
            refuse(name, "is not there");
        return index;
    }
    [[noreturn]] static void refuse(const std::string &name, const char *why)
    {
        detail::refuse(THALWEG_INVALID_ARGUMENT, ("attribute " + name + " " + why).c_str());
    }

    detail::Owned<thalweg_step_attributes, thalweg_step_attributes_free> handle_;
};

/* ------------------------------------------------------------ writer --- */

/*
 * One rank of a program that writes steps. Destroyed without close(), it leaves its run open, to
 * be taken up or broken: see thalweg_step_writer_free.
 */
class StepWriter {
public:
    /* Opens it, and makes the stream if it is not there: options of thalweg_step_writer_open. */
    StepWriter(const Driver &driver, const std::string &stream, const Options &options = {})
    {
        thalweg_step_writer *writer = nullptr;
        detail::call(thalweg_step_writer_open, driver.handle(), stream.c_str(),
                     options.string().c_str(), &writer);
        handle_.reset(writer);
    }

    uint64_t run() const noexcept { return thalweg_step_writer_run(handle_.get()); }
    /* The step that is being written, or the next one. */
    uint64_t next() const noexcept { return thalweg_step_writer_next(handle_.get()); }

    /* Begins a step, and gives its number. */
    uint64_t begin()
    {
        uint64_t number = 0;
        detail::call(thalweg_step_writer_begin, handle_.get(), &number);
        return number;
    }

    /* Puts a block of `count` elements from `data` on, which is copied, unless it is borrowed. */
    template <class T>
    void put(const std::string &name, const T *data, const Dims &count, const Place &place = {},
             const PutOptions &options = {})
    {
        put(name, StepType<T>::name(), data, count, place, options);
    }

    /* The same of any type, by its name. */
    void put(const std::string &name, const std::string &dtype, const void *data,
             const Dims &count, const Place &place, const PutOptions &options = {})
    {
        thalweg_step_block block = block_of(name, dtype, count, place, options);
        block.data = data;
        detail::call(thalweg_step_writer_put, handle_.get(), &block);
    }

    /*
     * Puts a block that is made in place: its memory, to be filled until the step is ended, and
     * not to be touched after that.
     */
    template <class T>
    StepSpan<T> span(const std::string &name, const Dims &count, const Place &place = {},
                     bool extremes = true)
    {
        PutOptions options;
        options.extremes = extremes;
        const std::string dtype = StepType<T>::name();
        const thalweg_step_block block = block_of(name, dtype, count, place, options);
        void *base = nullptr;
        size_t *number = nullptr;
        detail::call(thalweg_step_writer_span, handle_.get(), &block, number, &base);
        size_t size = 1;
        for (const uint64_t length : count)
            size *= static_cast<size_t>(length);
        return StepSpan<T>(static_cast<T *>(base), size);
    }

    /* Puts a value: one for all ranks, or one of this rank. */
    template <class T> void value(const std::string &name, const T &value, bool local = false)
    {
        if constexpr (std::is_convertible<const T &, std::string_view>::value) {
            const std::string_view text = value;
            detail::call(thalweg_step_writer_put_value, handle_.get(), name.c_str(), "str",
                         int32_t{local}, static_cast<const void *>(text.data()), text.size());
        } else {
            const std::string dtype = StepType<T>::name();
            detail::call(thalweg_step_writer_put_value, handle_.get(), name.c_str(),
                         dtype.c_str(), int32_t{local}, static_cast<const void *>(&value),
                         sizeof value);
        }
    }

    /* Sets an attribute: a number, a text, or a vector of such. */
    template <class T> void attribute(const std::string &name, const T &value)
    {
        if constexpr (std::is_convertible<const T &, std::string>::value) {
            const std::string text = value;
            const char *pointer = text.c_str();
            detail::call(thalweg_step_writer_set_texts, handle_.get(), name.c_str(), int32_t{0},
                         &pointer, size_t{1});
        } else {
            const std::string dtype = StepType<T>::name();
            detail::call(thalweg_step_writer_set_attribute, handle_.get(), name.c_str(),
                         dtype.c_str(), int32_t{0}, static_cast<const void *>(&value),
                         sizeof value);
        }
    }
    template <class T> void attribute(const std::string &name, const std::vector<T> &values)
    {
        if constexpr (std::is_same<T, std::string>::value) {
            std::vector<const char *> texts;
            for (const std::string &text : values)
                texts.push_back(text.c_str());
            detail::call(thalweg_step_writer_set_texts, handle_.get(), name.c_str(), int32_t{1},
                         texts.data(), texts.size());
        } else {
            const std::string dtype = StepType<T>::name();
            detail::call(thalweg_step_writer_set_attribute, handle_.get(), name.c_str(),
                         dtype.c_str(), int32_t{1}, static_cast<const void *>(values.data()),
                         values.size() * sizeof(T));
        }
    }

    /* The attributes as they are now. */
    StepAttributes attributes() const
    {
        thalweg_step_attributes *attributes = nullptr;
        detail::call(thalweg_step_writer_attributes, handle_.get(), &attributes);
        return StepAttributes(attributes);
    }

    /* Pins the step that is begun: retention leaves it, and late readers are given it first. */
    void pin() { detail::call(thalweg_step_writer_pin, handle_.get()); }

    /* Gives up the step that is begun. */
    void drop() { detail::call(thalweg_step_writer_drop, handle_.get()); }

    /* Ends the step. After a Timeout the same call goes on with it. */
    StepEnded end(StepWait wait = StepWait::Accepted, Duration timeout = -1)
    {
        return waited(thalweg_step_writer_end, wait, timeout);
    }

    /* Waits for the step that was ended last. */
    StepEnded wait(StepWait wait = StepWait::Committed, Duration timeout = -1)
    {
        return waited(thalweg_step_writer_wait, wait, timeout);
    }

    /*
     * Says that this rank has written its last step, and waits until that is committed. Of a stream
     * in memory it waits for its readers then, up to close_timeout_ms: which of them are behind when
     * that is over.
     */
    std::optional<std::string> close(Duration timeout = -1)
    {
        thalweg_step_closed closed;
        detail::call(thalweg_step_writer_close, handle_.get(), timeout.milliseconds(), &closed);
        if (closed.state != THALWEG_CLOSED_BEHIND)
            return std::nullopt;
        return std::string(closed.behind);
    }

    thalweg_step_writer *handle() const noexcept { return handle_.get(); }

private:
    static thalweg_step_block block_of(const std::string &name, const std::string &dtype,
                                       const Dims &count, const Place &place,
                                       const PutOptions &options)
    {
        const auto check = [&](size_t dimensions) {
            if (dimensions != count.size())
                detail::refuse(THALWEG_INVALID_ARGUMENT,
                               ("variable " + name + ": count, shape, start and strides have one "
                                "number each dimension").c_str());
        };
        thalweg_step_block block{};
        block.name = name.c_str();
        block.dtype = dtype.c_str();
        block.kind = static_cast<int32_t>(place.kind_);
        block.flags = (options.borrow ? uint32_t{THALWEG_STEP_BORROW} : 0u) |
                      (options.extremes ? 0u : uint32_t{THALWEG_STEP_NO_EXTREMES});
        block.ndim = static_cast<uint32_t>(count.size());
        block.joined = place.joined_;
        block.count = count.data();
        if (place.at_) {
            check(place.at_->shape.size());
            check(place.at_->start.size());
            block.shape = place.at_->shape.data();
            block.start = place.at_->start.data();
        }
        if (!options.strides.empty()) {
            check(options.strides.size());
            block.strides = options.strides.data();
        }
        return block;
    }

    template <class Function> StepEnded waited(Function function, StepWait wait, Duration timeout)
    {
        thalweg_step_ended ended;
        detail::call(function, handle_.get(), static_cast<int32_t>(wait), timeout.milliseconds(),
                     &ended);
        StepEnded result;
        result.step = ended.step;
        result.committed = ended.reached == THALWEG_STEP_COMMITTED;
        if (ended.discarded != 0)
            result.discarded = std::string(ended.reason);
        return result;
    }

    detail::Owned<thalweg_step_writer, thalweg_step_writer_free> handle_;
};

/* -------------------------------------------------------------- step --- */

class Step;

/* A variable of a step. Its step lives at least as long. */
class StepVariable {
public:
    std::string name() const { return variable_.name; }
    StepKind kind() const noexcept { return static_cast<StepKind>(variable_.kind); }
    /* The name of its elements' type, such as "<f8". */
    std::string dtype() const { return variable_.dtype; }
    size_t itemBytes() const noexcept { return variable_.item_bytes; }
    /* Lengths of the whole: none of a local array. */
    Dims shape() const { return Dims(variable_.shape, variable_.shape + variable_.ndim); }
    /* How many blocks it has, or values. */
    size_t blockCount() const noexcept { return variable_.block_count; }

    /* Block `index`, from 0: see thalweg_step_block_info; pointers live as long as the step. */
    thalweg_step_block_info block(size_t index) const
    {
        thalweg_step_block_info info;
        detail::call(thalweg_step_block_at, step_.get(), index_, index, &info);
        return info;
    }

    /* Value `index` of a variable that is a value, or one of each rank. Nothing travels. */
    template <class T> T value(size_t index = 0) const
    {
        thalweg_bytes bytes;
        detail::call(thalweg_step_value, step_.get(), index_, index, &bytes);
        if constexpr (std::is_same<T, std::string>::value) {
            return std::string(static_cast<const char *>(bytes.base), bytes.size);
        } else {
            check<T>();
            T value{};
            std::memcpy(&value, bytes.base, bytes.size);
            return value;
        }
    }

    /* Its least and greatest element; none if they are not known. Nothing travels. */
    template <class T> std::optional<std::pair<T, T>> extremes() const
    {
        check<T>();
        T min{}, max{};
        int32_t known = 0;
        detail::call(thalweg_step_extremes, step_.get(), index_, static_cast<void *>(&min),
                     static_cast<void *>(&max), sizeof(T), &known);
        if (known == 0)
            return std::nullopt;
        return std::make_pair(min, max);
    }

    /* Throws InvalidArgument if its elements are not of type T. */
    template <class T> void check() const
    {
        const std::string type = StepType<T>::name();
        if (sizeof(T) != variable_.item_bytes || type != variable_.dtype)
            detail::refuse(THALWEG_INVALID_ARGUMENT,
                           ("variable " + name() + " is of type " + dtype() + ", not " + type)
                               .c_str());
    }

private:
    friend class Step;
    StepVariable(std::shared_ptr<thalweg_step> step, size_t index)
        : step_(std::move(step)), index_(index)
    {
        detail::call(thalweg_step_variable_at, step_.get(), index, &variable_);
    }

    std::shared_ptr<thalweg_step> step_;
    size_t index_;
    thalweg_step_variable variable_;
};

/* Selections that are read with one request, into memory of the caller's. */
class StepGets {
public:
    /* All, or a box, of a variable. `size` is of the memory, in elements. */
    template <class T>
    StepGets &add(const std::string &name, T *into, size_t size, const Box &box = {})
    {
        return add(name, 0, into, size, box);
    }

    /* Block `block`, from 0, or a box of it. */
    template <class T>
    StepGets &addBlock(const std::string &name, uint64_t block, T *into, size_t size,
                       const Box &box = {})
    {
        return add(name, block + 1, into, size, box);
    }

    size_t size() const noexcept { return gets_.size(); }
    /* How many elements of selection `index` nobody has put; known once it was read. */
    uint64_t uncovered(size_t index) const { return gets_.at(index).uncovered; }

private:
    friend class Step;
    friend class StepReader;
    struct Wanted {
        std::string name, dtype;
        Box box;
    };

    template <class T>
    StepGets &add(const std::string &name, uint64_t block, T *into, size_t size, const Box &box)
    {
        const size_t lengths[] = {box.start.size(), box.count.size(), box.step.size()};
        size_t dimensions = 0;
        for (const size_t length : lengths)
            dimensions = length > dimensions ? length : dimensions;
        for (const size_t length : lengths)
            if (length != 0 && length != dimensions)
                detail::refuse(THALWEG_INVALID_ARGUMENT,
                               "start, count and step of a box have one number each dimension");
        // What the get points to keeps its place.
        wanted_.push_back(std::make_unique<Wanted>(Wanted{name, StepType<T>::name(), box}));
        const Wanted &wanted = *wanted_.back();
        thalweg_step_get get{};
        get.name = wanted.name.c_str();
        get.block = block;
        get.ndim = static_cast<uint32_t>(dimensions);
        get.start = box.start.empty() ? nullptr : wanted.box.start.data();
        get.count = box.count.empty() ? nullptr : wanted.box.count.data();
        get.step = box.step.empty() ? nullptr : wanted.box.step.data();
        get.into = into;
        get.size = size * sizeof(T);
        gets_.push_back(get);
        return *this;
    }

    std::vector<std::unique_ptr<Wanted>> wanted_;
    std::vector<thalweg_step_get> gets_;
};

/* A step: what its ranks have put, of which nothing is read before it is asked for. */
class Step {
public:
    explicit Step(thalweg_step *handle) : handle_(handle, thalweg_step_free)
    {
        detail::call(thalweg_step_info_of, handle_.get(), &info_);
    }

    uint64_t run() const noexcept { return info_.run; }
    uint64_t number() const noexcept { return info_.number; }
    /* Steps that were passed over since the one before, with the option latest. */
    uint64_t skipped() const noexcept { return info_.skipped; }
    /* All that there is to know; pointers live as long as the step. */
    const thalweg_step_info &info() const noexcept { return info_; }

    bool has(const std::string &name) const noexcept
    {
        return thalweg_step_find(handle_.get(), name.c_str()) != THALWEG_STEP_NONE;
    }

    /* A variable. Throws InvalidArgument if there is none of that name. */
    StepVariable operator[](const std::string &name) const
    {
        const size_t index = thalweg_step_find(handle_.get(), name.c_str());
        if (index == THALWEG_STEP_NONE)
            detail::refuse(THALWEG_INVALID_ARGUMENT, ("there is no variable " + name).c_str());
        return StepVariable(handle_, index);
    }

    /* All variables, in the order in which they were put first. */
    std::vector<StepVariable> variables() const
    {
        std::vector<StepVariable> all;
        for (size_t index = 0; index < info_.variable_count; ++index)
            all.push_back(StepVariable(handle_, index));
        return all;
    }

    /* The attributes of the run as they are at this step. */
    StepAttributes attributes() const
    {
        thalweg_step_attributes *attributes = nullptr;
        detail::call(thalweg_step_attributes_of, handle_.get(), &attributes);
        return StepAttributes(attributes);
    }

    /* All, or a box, of a variable. What nobody has put is T{}. */
    template <class T> std::vector<T> read(const std::string &name, const Box &box = {}) const
    {
        const StepVariable variable = (*this)[name];
        variable.check<T>();
        std::vector<T> elements(count_of(variable.shape(), box));
        StepGets gets;
        read(gets.add(name, elements.data(), elements.size(), box));
        return elements;
    }

    /* Block `block`, from 0, of a variable, or a box of it. */
    template <class T>
    std::vector<T> readBlock(const std::string &name, size_t block, const Box &box = {}) const
    {
        const StepVariable variable = (*this)[name];
        variable.check<T>();
        const thalweg_step_block_info info = variable.block(block);
        std::vector<T> elements(count_of(Dims(info.count, info.count + info.ndim), box));
        StepGets gets;
        read(gets.addBlock(name, block, elements.data(), elements.size(), box));
        return elements;
    }

    /* Reads several selections with one request; see thalweg_step_read. */
    void read(StepGets &gets, Duration timeout = -1) const
    {
        for (const auto &wanted : gets.wanted_) {
            const StepVariable variable = (*this)[wanted->name];
            if (variable.dtype() != wanted->dtype)
                detail::refuse(THALWEG_INVALID_ARGUMENT,
                               ("variable " + wanted->name + " is of type " + variable.dtype() +
                                ", not " + wanted->dtype).c_str());
        }
        detail::call(thalweg_step_read, handle_.get(), gets.gets_.data(), gets.gets_.size(),
                     timeout.milliseconds());
    }

    thalweg_step *handle() const noexcept { return handle_.get(); }

private:
    static size_t count_of(const Dims &shape, const Box &box)
    {
        size_t elements = 1;
        for (size_t dimension = 0; dimension < shape.size(); ++dimension) {
            const auto of = [&](const Dims &numbers, uint64_t otherwise) {
                return dimension < numbers.size() ? numbers[dimension] : otherwise;
            };
            const uint64_t start = of(box.start, 0), step = of(box.step, 1);
            const uint64_t length = shape[dimension];
            const uint64_t rest =
                step == 0 || start >= length ? 0 : (length - start - 1) / step + 1;
            const uint64_t count = of(box.count, rest);
            // What is outside of the array is refused when it is read, and takes no memory.
            elements *= static_cast<size_t>(count < rest ? count : rest);
        }
        return elements;
    }

    std::shared_ptr<thalweg_step> handle_;
    thalweg_step_info info_{};
};

/* ------------------------------------------------------------ reader --- */

/* What StepReader::next finds. */
struct NextStep {
    enum State {
        Ready = THALWEG_NEXT_STEP,
        NotReady = THALWEG_NEXT_NOT_READY,
        EndOfRun = THALWEG_NEXT_END,
        Broken = THALWEG_NEXT_BROKEN
    };
    State state = NotReady;
    std::optional<Step> step; /* if the state is Ready */
    uint64_t run = 0;         /* of the step, or which has ended */
    std::string reason;       /* what is waited for, or why the run broke */
};

/* One rank of a program that reads steps. Destroyed, it leaves the step that it holds unread. */
class StepReader {
public:
    /* Opens it: options of thalweg_step_reader_open. */
    StepReader(const Driver &driver, const std::string &stream, const Options &options = {})
    {
        thalweg_step_reader *reader = nullptr;
        detail::call(thalweg_step_reader_open, driver.handle(), stream.c_str(),
                     options.string().c_str(), &reader);
        handle_.reset(reader);
    }

    /* The next step; releases the one before. 0 looks, a negative timeout waits for ever. */
    NextStep next(Duration timeout = -1)
    {
        thalweg_step *step = nullptr;
        thalweg_step_next found;
        detail::call(thalweg_step_reader_next, handle_.get(), timeout.milliseconds(), &step,
                     &found);
        NextStep next;
        next.state = static_cast<NextStep::State>(found.state);
        next.run = found.run;
        next.reason = found.reason;
        if (step != nullptr)
            next.step.emplace(step);
        return next;
    }

    /* Says that the step that was given last is read. */
    void release(Duration timeout = -1)
    {
        detail::call(thalweg_step_reader_release, handle_.get(), timeout.milliseconds());
    }

    /*
     * Has this read of each step before it is asked for, from the next one on: what `wanted` would
     * read, whose memory is left alone; see thalweg_step_reader_preload.
     */
    void preload(const StepGets &wanted)
    {
        detail::call(thalweg_step_reader_preload, handle_.get(), wanted.gets_.data(),
                     wanted.gets_.size());
    }

    /* Where the record of the step that was given last is. */
    thalweg_event_id position() const
    {
        thalweg_event_id position;
        detail::call(thalweg_step_reader_position, handle_.get(), &position);
        return position;
    }

    /* Leaves, and releases the step that was given last, or has it given again. */
    void close(bool release = true, Duration timeout = -1)
    {
        detail::call(thalweg_step_reader_close, handle_.get(), int32_t{release},
                     timeout.milliseconds());
    }

    thalweg_step_reader *handle() const noexcept { return handle_.get(); }

    /*
     * The steps of a run, for a loop, which waits for ever for each and ends with the run; one
     * more loop goes on with the run behind it. Throws RunEnded, with the reason, behind the
     * last step of a run that is broken.
     */
    class Iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Step;
        using difference_type = std::ptrdiff_t;
        using pointer = const Step *;
        using reference = const Step &;

        Iterator() = default;
        explicit Iterator(StepReader &reader) : reader_(&reader) { ++*this; }
        reference operator*() const { return *step_; }
        pointer operator->() const { return &*step_; }
        Iterator &operator++()
        {
            NextStep next;
            do
                next = reader_->next();
            while (next.state == NextStep::NotReady);
            step_ = std::move(next.step);
            if (next.state == NextStep::Broken)
                detail::refuse(THALWEG_SERVER_RUN_ENDED,
                               ("run " + std::to_string(next.run) + " is broken: " + next.reason)
                                   .c_str());
            return *this;
        }
        bool operator==(const Iterator &other) const { return !step_ && !other.step_; }
        bool operator!=(const Iterator &other) const { return !(*this == other); }

    private:
        StepReader *reader_ = nullptr;
        std::optional<Step> step_;
    };

    Iterator begin() { return Iterator(*this); }
    Iterator end() { return Iterator(); }

private:
    detail::Owned<thalweg_step_reader, thalweg_step_reader_free> handle_;
};

/* ------------------------------------------------------------ stream --- */

/* A run of which something is stored. */
struct StepRun {
    uint64_t run = 0;
    std::string writer; /* name of the writing program */
    uint32_t ranks = 0;
    enum State {
        Open = THALWEG_RUN_OPEN,
        Closed = THALWEG_RUN_CLOSED,
        Broken = THALWEG_RUN_BROKEN
    };
    State state = Open;
    /* How its writers ask that reading programs are given steps. */
    enum Given {
        All = THALWEG_GIVEN_ALL,
        RoundRobin = THALWEG_GIVEN_ROUND_ROBIN,
        OnDemand = THALWEG_GIVEN_ON_DEMAND
    };
    Given distribution = All;
    std::string reason; /* why it is broken */
    uint64_t first = 0, last = 0, stepCount = 0, discarded = 0, bytes = 0;
};

/* What is stored of a stream. */
class StepStream {
public:
    /* Opens a stream that is there. */
    StepStream(const Driver &driver, const std::string &name)
    {
        thalweg_step_stream *stream = nullptr;
        detail::call(thalweg_step_stream_open, driver.handle(), name.c_str(), &stream);
        handle_.reset(stream);
    }

    /* Makes one: options of thalweg_step_stream_create. */
    static StepStream create(const Driver &driver, const std::string &name,
                             const Options &options = {})
    {
        thalweg_step_stream *stream = nullptr;
        detail::call(thalweg_step_stream_create, driver.handle(), name.c_str(),
                     options.string().c_str(), &stream);
        return StepStream(stream);
    }

    /* The runs that are stored, in order. */
    std::vector<StepRun> runs() const
    {
        thalweg_step_runs *list = nullptr;
        detail::call(thalweg_step_stream_runs, handle_.get(), &list);
        const detail::Owned<thalweg_step_runs, thalweg_step_runs_free> owned(list);
        std::vector<StepRun> runs;
        for (size_t index = 0; index < thalweg_step_runs_count(list); ++index) {
            thalweg_step_run_info info;
            detail::call(thalweg_step_runs_at, list, index, &info);
            StepRun run;
            run.run = info.run;
            run.writer = info.writer;
            run.ranks = info.ranks;
            run.state = static_cast<StepRun::State>(info.state);
            run.distribution = static_cast<StepRun::Given>(info.distribution);
            run.reason = info.reason;
            run.first = info.first;
            run.last = info.last;
            run.stepCount = info.step_count;
            run.discarded = info.discarded;
            run.bytes = info.bytes;
            runs.push_back(std::move(run));
        }
        return runs;
    }

    /* The numbers of the steps of a run that are stored; 0 is the last run. */
    std::vector<uint64_t> steps(uint64_t run = 0) const
    {
        std::vector<uint64_t> numbers(64);
        size_t count = 0;
        while (true) {
            detail::call(thalweg_step_stream_steps, handle_.get(), run, numbers.data(),
                         numbers.size(), &count);
            if (count <= numbers.size())
                break;
            numbers.resize(count);
        }
        numbers.resize(count);
        return numbers;
    }

    /* A stored step by its number; run 0 is the last run. */
    Step step(uint64_t run, uint64_t number) const
    {
        thalweg_step *step = nullptr;
        detail::call(thalweg_step_stream_step, handle_.get(), run, number, &step);
        return Step(step);
    }

    thalweg_step_stream *handle() const noexcept { return handle_.get(); }

private:
    explicit StepStream(thalweg_step_stream *handle) : handle_(handle) {}
    detail::Owned<thalweg_step_stream, thalweg_step_stream_free> handle_;
};

} // namespace thalweg

#endif
