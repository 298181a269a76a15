/*
 * Tests of steps.hpp: steps of two ranks in all kinds, read in boxes, by iteration and by number;
 * what fails and what that throws. In a directory that is given.
 */
#include <thalweg/steps.hpp>

#include <complex>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

void check(bool holds, const char *what, int line)
{
    if (holds)
        return;
    std::fprintf(stderr, "steps.cpp:%d: %s\n", line, what);
    std::exit(1);
}
#define CHECK(condition) check((condition), #condition, __LINE__)

template <class Exception, class Call> std::string thrown(Call call, int line)
{
    try {
        call();
    } catch (const Exception &error) {
        return error.what();
    }
    check(false, "it does not throw", line);
    return {};
}
#define THROWS(Exception, call) thrown<thalweg::Exception>([&] { call; }, __LINE__)

struct Particle {
    double x;
    uint32_t id;
    uint32_t reserved;
};

} // namespace

template <> struct thalweg::StepType<Particle> {
    static std::string name() { return R"([["x","<f8"],["id","<u4"],["","|V4"]])"; }
};

namespace {

using namespace thalweg;

void types()
{
    CHECK(StepType<double>::name() == "<f8");
    CHECK(StepType<int8_t>::name() == "|i1");
    CHECK(StepType<bool>::name() == "|b1");
    CHECK(StepType<uint64_t>::name() == "<u8");
    CHECK(StepType<std::complex<float>>::name() == "<c8");
}

/* A rank writes three steps: rows of a field, particles, blocks of its own, values. */
void write(Driver &driver, int rank)
{
    const std::string options = "{\"rank\": " + std::to_string(rank) + ", \"ranks\": 2}";
    StepWriter writer(driver, "all", options);
    for (int it = 0; it < 3; ++it) {
        CHECK(writer.begin() == static_cast<uint64_t>(it));
        // Rank 0 lends its rows, rank 1 makes them in place.
        const At place{{4, 5}, {2 * static_cast<uint64_t>(rank), 0}};
        std::vector<double> rows(10, 10.0 * it + rank);
        if (rank == 0) {
            PutOptions lent;
            lent.borrow = true;
            writer.put("E", rows.data(), {2, 5}, place, lent);
        } else {
            const StepSpan<double> made = writer.span<double>("E", {2, 5}, place);
            CHECK(made.size() == 10);
            for (double &element : made)
                element = 10.0 * it + rank;
        }
        std::vector<Particle> particles;
        for (int index = 0; index <= rank; ++index)
            particles.push_back({1.5 * index, static_cast<uint32_t>(10 * rank + index), 0});
        writer.put("particles", particles.data(), {particles.size()}, Join{0});
        // The inside of an array with an edge of ghost cells.
        const std::vector<int32_t> mesh = {0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0, 0};
        PutOptions inside;
        inside.strides = {16, 4};
        writer.put("mesh", mesh.data() + 5, {2, 2}, Local{}, inside);
        writer.value("dt", 0.25 * it);
        writer.value("host", "node" + std::to_string(rank), true);
        writer.attribute("time", 0.5 * it);
        writer.attribute("title", "all kinds");
        writer.attribute("axes", std::vector<std::string>{"y", "x"});
        writer.attribute("origin", std::vector<int64_t>{-1, 2});
        const StepEnded ended = writer.end();
        CHECK(ended.step == static_cast<uint64_t>(it) && !ended.discarded);
    }
    CHECK(writer.attributes().get<std::string>("title") == "all kinds");
    CHECK(writer.wait(StepWait::Committed).committed);
    writer.close();
    THROWS(InvalidArgument, writer.begin());
}

void look(const Step &step)
{
    const double it = static_cast<double>(step.number());
    const StepVariable field = step["E"];
    CHECK(field.kind() == StepKind::Array && field.shape() == (Dims{4, 5}));
    CHECK(field.blockCount() == 2 && field.block(1).start[0] == 2);
    CHECK(field.extremes<double>() == std::make_pair(10 * it, 10 * it + 1));
    const std::vector<double> column = step.read<double>("E", Box{{1, 2}, {2, 1}});
    CHECK(column == (std::vector<double>{10 * it, 10 * it + 1}));
    const std::vector<double> strided = step.read<double>("E", Box{{0, 0}, {}, {3, 4}});
    CHECK(strided == (std::vector<double>{10 * it, 10 * it, 10 * it + 1, 10 * it + 1}));

    const std::vector<Particle> particles = step.read<Particle>("particles");
    CHECK(particles.size() == 3 && particles[0].id == 0 && particles[2].id == 11);
    CHECK(particles[2].x == 1.5);
    CHECK(step["mesh"].kind() == StepKind::LocalArray);
    CHECK(step.readBlock<int32_t>("mesh", 1) == (std::vector<int32_t>{1, 2, 3, 4}));
    CHECK(step["dt"].value<double>() == 0.25 * it);
    CHECK(step["host"].value<std::string>(1) == "node1");

    const StepAttributes attributes = step.attributes();
    CHECK(attributes.get<double>("time") == 0.5 * it);
    CHECK(attributes.list<std::string>("axes") == (std::vector<std::string>{"y", "x"}));
    CHECK(attributes.list<int64_t>("origin") == (std::vector<int64_t>{-1, 2}));
    CHECK(attributes.names().size() == 4 && !attributes.has("color"));
    THROWS(InvalidArgument, attributes.get<float>("time"));

    // One request for three selections, two of them boxes of one variable.
    std::vector<double> upper(10, -1), corner(1, -1);
    std::vector<int32_t> mesh(4, -1);
    StepGets gets;
    gets.add("E", upper.data(), upper.size(), Box{{0, 0}, {2, 5}});
    gets.add("E", corner.data(), 1, Box{{3, 4}, {1, 1}});
    gets.addBlock("mesh", 0, mesh.data(), mesh.size());
    step.read(gets);
    CHECK(upper == std::vector<double>(10, 10 * it) && corner[0] == 10 * it + 1 && mesh[3] == 4);
    CHECK(gets.uncovered(0) == 0);

    CHECK(THROWS(InvalidArgument, step["B"]).find("B") != std::string::npos);
    THROWS(InvalidArgument, step.read<float>("E"));
    THROWS(InvalidArgument, step.read<double>("E", Box{{9, 9}, {1, 1}}));
    THROWS(InvalidArgument, step.read<double>("E", Box{{1}, {1, 1}}));
    THROWS(InvalidArgument, step.read<int32_t>("mesh"));
}

void all_kinds(Driver &driver)
{
    std::thread other([&] { write(driver, 1); });
    write(driver, 0);
    other.join();

    StepReader reader(driver, "all", R"({"name": "cpp"})");
    uint64_t count = 0;
    for (const Step &step : reader) {
        CHECK(step.number() == count++ && step.run() == 1);
        look(step);
    }
    CHECK(count == 3);
    CHECK(reader.next(0).state == NextStep::NotReady);
    reader.close();
    THROWS(Closed, reader.next(0));

    // Read ahead, all of it or some, it is the same.
    StepReader ahead(driver, "all", R"({"name": "all ahead", "preload": "all"})");
    for (const Step &step : ahead)
        look(step);
    StepReader some(driver, "all", R"({"name": "some", "preload_bytes_max": 1000})");
    StepGets standing;
    standing.add<double>("E", nullptr, 0, Box{{0, 0}, {2, 5}});
    standing.addBlock<int32_t>("mesh", 1, nullptr, 0);
    standing.add<int32_t>("none", nullptr, 0);
    some.preload(standing);
    for (const Step &step : some)
        look(step);

    const StepStream stream(driver, "all");
    CHECK(stream.runs().at(0).stepCount == 3 && stream.runs()[0].state == StepRun::Closed);
    CHECK(stream.steps() == (std::vector<uint64_t>{0, 1, 2}));
    const Step last = stream.step(0, 2);
    look(last);
    THROWS(OutOfRange, stream.step(1, 3));
    THROWS(UnknownTopic, StepStream(driver, "none"));
}

/* A queue of one step, which a reader holds: the writer waits and is told who is behind. */
void queue(Driver &driver)
{
    const StepStream stream =
        StepStream::create(driver, "queue", R"({"storage": "memory", "retention": {"count": 9}})");
    CHECK(stream.runs().empty());
    THROWS(TopicExists, StepStream::create(driver, "queue"));
    StepReader reader(driver, "queue", R"({"name": "slow"})");
    StepWriter writer(driver, "queue", R"({"queue_steps": 1})");
    const auto step = [&](Duration timeout) {
        writer.begin();
        writer.value("n", 1);
        writer.end(StepWait::Committed, timeout);
    };
    step(-1);
    CHECK(reader.next().state == NextStep::Ready);
    const std::string behind = THROWS(Timeout, step(50));
    CHECK(behind.find("slow") != std::string::npos);
    reader.release();
    CHECK(writer.end(StepWait::Committed).step == 1);
    CHECK(reader.next().step->number() == 1);
    reader.close();
    writer.close();
}

/* Another life of the program takes the run over. */
void taken_over(Driver &driver)
{
    StepWriter first(driver, "taken", R"({"storage": "memory"})");
    StepWriter second(driver, "taken");
    CHECK(second.run() == first.run());
    second.begin();
    second.value("n", 1);
    second.end(StepWait::Committed);
    second.close();
    THROWS(RunEnded, {
        first.begin();
        first.end(StepWait::Committed);
    });
}

} // namespace

int main(int count, char **arguments)
{
    if (count != 2) {
        std::fprintf(stderr, "usage: steps DIRECTORY\n");
        return 2;
    }
    try {
        types();
        Driver driver = Driver::embedded(arguments[1]);
        all_kinds(driver);
        queue(driver);
        taken_over(driver);
        driver.close();
    } catch (const thalweg::Error &error) {
        std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
        return 1;
    }
    std::puts("steps: ok");
    return 0;
}
