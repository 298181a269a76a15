/*
 * Steps of arrays in C++: a simulation of two ranks, here two threads, and a program of one rank
 * that reads a box of its field, live; then what is stored is read once more, by number.
 *
 *   steps GROUP_FILE      with the server that wrote the group file
 *   steps DIRECTORY       with a server in this process, on that directory
 */
#include <thalweg/steps.hpp>

#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

using namespace thalweg;

namespace {

constexpr uint64_t Rows = 40, Columns = 60, Steps = 5, Ranks = 2;

/* Every element is told by its place and its step. */
double element(uint64_t step, uint64_t row, uint64_t column)
{
    return static_cast<double>(step * 10000 + row * Columns + column);
}

void simulate(Driver &driver, uint64_t rank)
{
    const std::string options = R"({"writer": "waves", "ranks": 2, "rank": )" +
                                std::to_string(rank) + R"(, "queue_steps": 4})";
    StepWriter writer(driver, "waves", options);
    const uint64_t rows = Rows / Ranks, first = rank * rows;
    for (uint64_t step = 0; step < Steps; ++step) {
        writer.begin();
        // The rank's rows of the field are made in the memory that they are sent from.
        auto field = writer.span<double>("E", {rows, Columns}, At{{Rows, Columns}, {first, 0}});
        for (uint64_t index = 0; index < rows * Columns; ++index)
            field[index] = element(step, first + index / Columns, index % Columns);
        // As many particles as there happen to be, behind those of the ranks before.
        const std::vector<float> particles(step + rank, static_cast<float>(rank));
        writer.put("particles", particles.data(), {particles.size()}, Join{0});
        writer.value("time", 0.1 * static_cast<double>(step));
        writer.end();
    }
    writer.close();
}

/* Whether the box of 10 x 6 elements is the one that was put. */
bool is_right(const Step &step, const std::vector<double> &box)
{
    for (uint64_t index = 0; index < box.size(); ++index)
        if (box[index] != element(step.number(), 15 + index / 6, 20 + 5 * (index % 6)))
            return false;
    return box.size() == 60;
}

int run(const std::string &where)
{
    auto driver = std::filesystem::is_directory(where) ? Driver::embedded(where) : Driver(where);

    std::thread ranks[] = {std::thread(simulate, std::ref(driver), 0),
                           std::thread(simulate, std::ref(driver), 1)};

    // Waits for the stream if it is not there yet, and begins with the run that is being written.
    StepReader reader(driver, "waves",
                      R"({"name": "viewer", "start": "oldest", "stream_timeout_ms": 60000})");
    uint64_t wrong = 0, count = 0, last = 0;
    for (const Step &step : reader) {
        // Rows 15 to 24, which both ranks have made, of every fifth column from 20 on.
        const auto box = step.read<double>("E", Box{{15, 20}, {10, 6}, {1, 5}});
        const auto particles = step.read<float>("particles");
        std::printf("step %llu at %.1f: E from %g to %g, %zu particles\n",
                    static_cast<unsigned long long>(step.number()),
                    step["time"].value<double>(), box.front(), box.back(), particles.size());
        wrong += !is_right(step, box) || particles.size() != 2 * step.number() + 1;
        last = step.run();
        ++count;
    }
    reader.close();
    for (std::thread &rank : ranks)
        rank.join();

    // Later, in any order: nobody's position moves.
    const StepStream stream(driver, "waves");
    for (const uint64_t number : stream.steps(last)) {
        const Step step = stream.step(last, number);
        wrong += !is_right(step, step.read<double>("E", Box{{15, 20}, {10, 6}, {1, 5}}));
    }
    driver.close();
    std::printf("%llu steps, %llu of them wrong\n", static_cast<unsigned long long>(count),
                static_cast<unsigned long long>(wrong));
    return count == Steps && wrong == 0 ? 0 : 1;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::fprintf(stderr, "usage: %s GROUP_FILE | DIRECTORY\n", argv[0]);
        return 2;
    }
    try {
        return run(argv[1]);
    } catch (const Error &error) {
        std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
        return 1;
    }
}
