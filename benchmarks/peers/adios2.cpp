// Steps of one array through ADIOS2: one rank that writes, or one that reads.
//
//     adios2 write|read ENGINE NAME BYTES STEPS EVERY_US [KEY=VALUE ...]
//
// Prints `ready` and waits for a line, then does its steps, and prints for each when it did what,
// nanoseconds of the monotonic clock: a writer began it, had put all, came back from its end (twice); a
// reader asked for it, was given it, had read all, had let go of it.

#include <adios2.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

using Marks = std::array<uint64_t, 4>;

static uint64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return uint64_t(time.tv_sec) * 1000000000 + uint64_t(time.tv_nsec);
}

static void waitForTheWord() {
    std::cout << "ready" << std::endl;
    std::string line;
    if (!std::getline(std::cin, line)) {
        std::exit(1);
    }
}

struct Load {
    std::string name;
    size_t count;
    size_t steps;
    uint64_t everyUs;
};

static std::vector<Marks> write(adios2::IO &io, const Load &load) {
    std::vector<double> block(load.count, 1.0);
    auto variable = io.DefineVariable<double>("v0", {load.count}, {0}, {load.count}, adios2::ConstantDims);
    std::vector<Marks> marks;
    waitForTheWord();
    auto engine = io.Open(load.name, adios2::Mode::Write);
    const uint64_t first = now();
    for (size_t step = 0; step < load.steps; ++step) {
        block[0] = double(step);
        if (load.everyUs > 0) {
            const uint64_t due = first + step * load.everyUs * 1000, at = now();
            if (due > at) {
                std::this_thread::sleep_for(std::chrono::nanoseconds(due - at));
            }
        }
        const uint64_t began = now();
        engine.BeginStep();
        engine.Put(variable, block.data(), adios2::Mode::Sync);
        const uint64_t put = now();
        engine.EndStep();
        const uint64_t ended = now();
        marks.push_back({began, put, ended, ended});
    }
    engine.Close();
    return marks;
}

static std::vector<Marks> read(adios2::IO &io, const Load &load) {
    // Written, so that its pages are there.
    std::vector<double> memory(load.count, 1.0);
    std::vector<Marks> marks;
    waitForTheWord();
    auto engine = io.Open(load.name, adios2::Mode::Read);
    for (size_t step = 0; step < load.steps; ++step) {
        const uint64_t asked = now();
        // A timeout of -1 is for ever.
        const auto status = engine.BeginStep(adios2::StepMode::Read, 60.0f);
        if (status != adios2::StepStatus::OK) {
            std::cerr << "step " << step << " did not come\n";
            std::exit(1);
        }
        const uint64_t given = now();
        auto variable = io.InquireVariable<double>("v0");
        variable.SetSelection({{0}, {load.count}});
        engine.Get(variable, memory.data(), adios2::Mode::Sync);
        const uint64_t got = now();
        if (memory[0] != double(step)) {
            std::cerr << "step " << step << " has " << memory[0] << "\n";
            std::exit(1);
        }
        engine.EndStep();
        marks.push_back({asked, given, got, now()});
    }
    engine.Close();
    return marks;
}

int main(int count, char **words) {
    if (count < 7) {
        std::cerr << "adios2 write|read ENGINE NAME BYTES STEPS EVERY_US [KEY=VALUE ...]\n";
        return 2;
    }
    const std::string role = words[1];
    const Load load{words[3], std::stoull(words[4]) / sizeof(double), std::stoull(words[5]),
                    std::stoull(words[6])};
    adios2::ADIOS adios;
    auto io = adios.DeclareIO("steps");
    io.SetEngine(words[2]);
    for (int index = 7; index < count; ++index) {
        const std::string word = words[index];
        const auto at = word.find('=');
        io.SetParameter(word.substr(0, at), word.substr(at + 1));
    }
    const auto marks = role == "write" ? write(io, load) : read(io, load);
    std::printf("[");
    for (size_t index = 0; index < marks.size(); ++index) {
        const auto &one = marks[index];
        std::printf("%s[%llu,%llu,%llu,%llu]", index ? "," : "", (unsigned long long)one[0],
                    (unsigned long long)one[1], (unsigned long long)one[2], (unsigned long long)one[3]);
    }
    std::printf("]\n");
}
