/*
 * What ADIOS2's own staging programs do not look at, on the engine: memory selections of Put and Get,
 * spans, structures, every type, blocks of no elements, column-major order, what nobody wrote,
 * calls in the wrong order. Writes and reads in one process; ends with 0 if all is as it should be.
 */
#include <adios2.h>

#include <complex>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using adios2::Dims;
using adios2::Mode;
using adios2::StepStatus;

void expect(bool holds, const std::string &what)
{
    if (!holds) {
        std::cerr << "not so: " << what << std::endl;
        std::exit(1);
    }
}

template <class Exception>
void expect_thrown(const std::function<void()> &call, const std::string &what)
{
    try {
        call();
    } catch (const Exception &) {
        return;
    } catch (const std::exception &error) {
        expect(false, what + " throws another exception: " + error.what());
    }
    expect(false, what + " throws");
}

/* A stream of one writer and one reader, each with an IO of its own. */
struct Both {
    explicit Both(const std::string &name, adios2::ArrayOrdering writing = adios2::ArrayOrdering::Auto,
                  adios2::ArrayOrdering reading = adios2::ArrayOrdering::Auto)
        : name(name), out(adios.DeclareIO("out-" + name, writing)), in(adios.DeclareIO("in-" + name, reading))
    {
        out.SetEngine("SST");
        out.SetParameter("RendezvousReaderCount", "0");
        in.SetEngine("SST");
        writer = out.Open(name, Mode::Write);
    }

    /* Ends the step that is being written, and has it read. */
    void read()
    {
        writer.EndStep();
        if (!reader) {
            reader = in.Open(name, Mode::Read);
        }
        expect(reader.BeginStep() == StepStatus::OK, name + ": a step");
    }

    void end()
    {
        writer.Close();
        expect(reader.BeginStep() == StepStatus::EndOfStream, name + ": the end");
        reader.Close();
    }

    std::string name;
    adios2::ADIOS adios;
    adios2::IO out;
    adios2::IO in;
    adios2::Engine writer;
    adios2::Engine reader;
};

template <class T>
std::vector<T> counted(std::size_t count, T from = T(0))
{
    std::vector<T> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = from + static_cast<T>(static_cast<float>(i));
    }
    return values;
}

void memory_selections()
{
    Both both("memory");
    auto variable = both.out.DefineVariable<int>("v", {4, 6}, {1, 2}, {2, 3});
    /* Two ghost rows above, one column left, two right. */
    const auto ghosted = counted<int>(5 * 6);
    variable.SetMemorySelection({{2, 1}, {5, 6}});
    both.writer.BeginStep();
    both.writer.Put(variable, ghosted.data());
    both.read();

    auto read = both.in.InquireVariable<int>("v");
    std::vector<int> whole(4 * 6, -1);
    both.reader.Get(read, whole.data(), Mode::Sync);
    for (int y = 0; y < 4; ++y) {
        for (int x = 0; x < 6; ++x) {
            const bool covered = y >= 1 && y < 3 && x >= 2 && x < 5;
            const int expected = covered ? (y + 1) * 6 + (x - 1) : -1;
            expect(whole[static_cast<std::size_t>(y * 6 + x)] == expected, "a put with a memory selection; the rest stays");
        }
    }
    read.SetSelection({{1, 2}, {2, 3}});
    read.SetMemorySelection({{1, 1}, {4, 5}});
    std::vector<int> spread(4 * 5, -7);
    both.reader.Get(read, spread.data());
    both.reader.PerformGets();
    for (int y = 0; y < 4; ++y) {
        for (int x = 0; x < 5; ++x) {
            const bool covered = y >= 1 && y < 3 && x >= 1 && x < 4;
            const int expected = covered ? (y + 1) * 6 + x : -7;
            expect(spread[static_cast<std::size_t>(y * 5 + x)] == expected, "a get with a memory selection");
        }
    }
    both.reader.EndStep();
    both.end();
}

template <class T>
void put_type(Both &both, const std::string &name)
{
    auto array = both.out.DefineVariable<T>(name, {6}, {0}, {6});
    auto value = both.out.DefineVariable<T>(name + "_value");
    both.writer.Put(array, counted<T>(6, T(1)).data(), Mode::Sync);
    both.writer.Put(value, T(5));
}

template <class T>
void get_type(Both &both, const std::string &name)
{
    auto array = both.in.InquireVariable<T>(name);
    auto value = both.in.InquireVariable<T>(name + "_value");
    expect(array && value, "type " + name + " is there");
    std::vector<T> read;
    both.reader.Get(array, read, Mode::Sync);
    expect(read == counted<T>(6, T(1)), "elements of type " + name);
    T single{};
    both.reader.Get(value, single);
    expect(single == T(5), "a value of type " + name);
    if constexpr (std::is_arithmetic_v<T>) {
        /* Of long doubles Thalweg does not look for them. */
        if (!std::is_same_v<T, char> && !std::is_same_v<T, long double>) {
            expect(array.Min() == T(1) && array.Max() == T(6), "the extremes of type " + name);
        }
    }
}

void types()
{
    Both both("types");
    both.writer.BeginStep();
#define FOR_ALL(DO)                                                                                \
    DO<char>(both, "char");                                                                        \
    DO<std::int8_t>(both, "i1");                                                                   \
    DO<std::int16_t>(both, "i2");                                                                  \
    DO<std::int32_t>(both, "i4");                                                                  \
    DO<std::int64_t>(both, "i8");                                                                  \
    DO<std::uint8_t>(both, "u1");                                                                  \
    DO<std::uint16_t>(both, "u2");                                                                 \
    DO<std::uint32_t>(both, "u4");                                                                 \
    DO<std::uint64_t>(both, "u8");                                                                 \
    DO<float>(both, "f4");                                                                         \
    DO<double>(both, "f8");                                                                        \
    DO<long double>(both, "f16");                                                                  \
    DO<std::complex<float>>(both, "c8");                                                           \
    DO<std::complex<double>>(both, "c16");
    FOR_ALL(put_type)
    both.read();
    FOR_ALL(get_type)
    both.reader.EndStep();
    both.end();
}

void spans_and_empty_blocks()
{
    Both both("spans");
    auto variable = both.out.DefineVariable<double>("v", {6}, {0}, {3});
    auto empty = both.out.DefineVariable<float>("empty", {4}, {4}, {0});
    for (int step = 0; step < 2; ++step) {
        both.writer.BeginStep();
        variable.SetSelection({{0}, {3}});
        auto first = both.writer.Put(variable, true, 1.5);
        variable.SetSelection({{3}, {3}});
        auto second = both.writer.Put(variable);
        std::iota(second.begin(), second.end(), 10.0 + step);
        first[1] = 42;
        both.writer.Put(empty, static_cast<const float *>(nullptr));
        both.read();
        std::vector<double> read;
        both.reader.Get(both.in.InquireVariable<double>("v"), read, Mode::Sync);
        expect(read == std::vector<double>({1.5, 42, 1.5, 10.0 + step, 11.0 + step, 12.0 + step}), "two spans of a variable");
        expect(both.in.InquireVariable<float>("empty").Shape() == Dims{4}, "a block of no elements");
        both.reader.EndStep();
    }
    both.end();
}

void structures()
{
    struct Particle {
        char kind;
        double at[3];
        std::int16_t charge;
    };
    Both both("structures");
    auto written = both.out.DefineStruct("Particle", sizeof(Particle));
    written.AddField("kind", offsetof(Particle, kind), adios2::DataType::Char);
    written.AddField("at", offsetof(Particle, at), adios2::DataType::Double, 3);
    written.AddField("charge", offsetof(Particle, charge), adios2::DataType::Int16);
    auto variable = both.out.DefineStructVariable("particles", written, {2}, {0}, {2});
    const std::vector<Particle> particles = {{'e', {1, 2, 3}, -1}, {'p', {4, 5, 6}, 1}};
    both.writer.BeginStep();
    both.writer.Put(variable, particles.data());
    both.read();

    auto read = both.in.InquireStructVariable("particles");
    auto definition = read.GetWriteStructDef();
    expect(definition.StructName() == "Particle" && definition.StructSize() == sizeof(Particle), "the structure's name and size");
    expect(definition.Fields() == 3 && definition.Name(1) == "at" && definition.ElementCount(1) == 3 &&
               definition.Offset(2) == offsetof(Particle, charge) && definition.Type(0) == adios2::DataType::Char,
           "the structure's fields");
    read.SetReadStructDef(definition);
    std::vector<Particle> came(2);
    both.reader.Get(read, came.data(), Mode::Sync);
    expect(came[1].kind == 'p' && came[1].at[2] == 6 && came[0].charge == -1, "the structure's elements");
    both.reader.EndStep();
    both.end();
}

void orders()
{
    /* Three columns of two, as Fortran has them: its (3, 2) is C's (2, 3). */
    Both both("orders", adios2::ArrayOrdering::ColumnMajor, adios2::ArrayOrdering::RowMajor);
    auto variable = both.out.DefineVariable<int>("v", {3, 2}, {0, 0}, {3, 2});
    both.writer.BeginStep();
    both.writer.Put(variable, counted<int>(6).data());
    both.read();
    auto read = both.in.InquireVariable<int>("v");
    expect(read.Shape() == Dims({2, 3}), "the shape, as the other order has it");
    read.SetSelection({{1, 1}, {1, 2}});
    std::vector<int> row;
    both.reader.Get(read, row, Mode::Sync);
    expect(row == std::vector<int>({4, 5}), "a box, as the other order has it");
    both.reader.EndStep();
    both.end();
}

void blocks()
{
    Both both("blocks");
    auto local = both.out.DefineVariable<int>("local", {}, {}, {2, 2});
    auto text = both.out.DefineVariable<std::string>("text");
    auto rank = both.out.DefineVariable<std::int32_t>("rank", {adios2::LocalValueDim});
    auto host = both.out.DefineVariable<std::string>("host", {adios2::LocalValueDim});
    both.writer.BeginStep();
    both.writer.Put(local, counted<int>(4).data(), Mode::Sync);
    local.SetSelection({{}, {1, 3}});
    both.writer.Put(local, counted<int>(3, 10).data(), Mode::Sync);
    both.writer.Put(text, std::string("some text"));
    both.writer.Put(rank, 7);
    both.writer.Put(host, std::string("node"));
    both.read();

    auto read = both.in.InquireVariable<int>("local");
    expect(read.ShapeID() == adios2::ShapeID::LocalArray, "a local array");
    const auto infos = both.reader.BlocksInfo(read, both.reader.CurrentStep());
    expect(infos.size() == 2 && infos[1].Count == Dims({1, 3}) && infos[1].Min == 10 && infos[1].Max == 12, "what is known of blocks");
    read.SetBlockSelection(1);
    std::vector<int> block;
    both.reader.Get(read, block, Mode::Sync);
    expect(block == counted<int>(3, 10), "a block");
    expect_thrown<std::invalid_argument>([&] {
        read.SetBlockSelection(2);
        int none[4];
        both.reader.Get(read, none, Mode::Sync);
    }, "a block that is not there");

    std::string came;
    both.reader.Get("text", came);
    expect(came == "some text", "a text");
    auto ranks = both.in.InquireVariable<std::int32_t>("rank");
    expect(ranks.ShapeID() == adios2::ShapeID::GlobalArray && ranks.Shape() == Dims{1}, "a local value is an array");
    std::vector<std::int32_t> values;
    both.reader.Get(ranks, values, Mode::Sync);
    expect(values == std::vector<std::int32_t>{7}, "a local value");
    std::vector<std::string> hosts(1);
    both.reader.Get(both.in.InquireVariable<std::string>("host"), hosts.data(), Mode::Sync);
    expect(hosts[0] == "node", "a local text");
    both.reader.EndStep();
    both.end();
}

void wrong_order()
{
    Both both("order");
    auto variable = both.out.DefineVariable<int>("v", {2}, {0}, {2});
    const int data[2] = {1, 2};
    expect_thrown<std::logic_error>([&] { both.writer.Put(variable, data); }, "Put outside of a step");
    both.writer.BeginStep();
    expect(both.writer.CurrentStep() == 0, "the writer's step");
    expect_thrown<std::logic_error>([&] { both.writer.BeginStep(); }, "BeginStep of a writer, twice");
    both.writer.Put(variable, data);
    both.read();
    expect_thrown<std::logic_error>([&] { both.reader.BeginStep(); }, "BeginStep of a reader, twice");
    both.reader.EndStep();
    expect(both.reader.BeginStep(adios2::StepMode::Read, 0) == StepStatus::NotReady, "no step yet");
    expect_thrown<std::logic_error>([&] { both.reader.EndStep(); }, "EndStep without BeginStep");
    both.writer.BeginStep();
    both.read();
    expect(both.in.AvailableVariables().empty(), "a step of no variables");
    both.reader.EndStep();
    both.end();
}

/* Many short streams of one name, read one after the other, each when it is closed already. */
void short_streams()
{
    adios2::ADIOS adios;
    for (int round = 0; round < 3; ++round) {
        const std::string suffix = std::to_string(round);
        auto out = adios.DeclareIO("out" + suffix);
        auto in = adios.DeclareIO("in" + suffix);
        out.SetEngine("SST");
        out.SetParameter("RendezvousReaderCount", "0");
        in.SetEngine("SST");
        in.SetParameter("OpenTimeoutSecs", "20");
        auto variable = out.DefineVariable<int>("v");
        auto writer = out.Open("short", Mode::Write);
        adios2::Engine reader;
        if (round == 0) {
            reader = in.Open("short", Mode::Read);
        }
        writer.BeginStep();
        writer.Put(variable, round);
        writer.EndStep();
        writer.Close();
        if (round > 0) {
            reader = in.Open("short", Mode::Read);
        }
        int came = -1;
        expect(reader.BeginStep() == StepStatus::OK, "a step of a short stream");
        reader.Get("v", came);
        reader.EndStep();
        expect(came == round, "the short stream's own step");
        expect(reader.BeginStep() == StepStatus::EndOfStream, "the end of a short stream");
        expect(reader.BeginStep() == StepStatus::EndOfStream, "the end once more");
        reader.Close();
    }
}

} // namespace

int main()
{
    memory_selections();
    types();
    spans_and_empty_blocks();
    structures();
    orders();
    blocks();
    wrong_order();
    short_streams();
    std::cout << "all of it holds" << std::endl;
}
