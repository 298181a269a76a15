/*
 * What a call costs a program: a push and a pull by the headers for Mofka,
 * beside Thalweg's own C++ API.
 *
 *     calls GROUP-FILE [EVENTS [ROUNDS]]
 *
 * Each round pushes, flushes and pulls that many events by either, in turn, in a
 * topic in memory of its own: metadata alone, and with 1 KB and 64 KB of data.
 * A push is timed until it returns, the flush by itself; a pull until its event
 * is there, metadata and data looked at. Prints nanoseconds an event, the median
 * of the rounds, as a table in Markdown.
 */
#include <mofka/BatchSize.hpp>
#include <mofka/Consumer.hpp>
#include <mofka/MofkaDriver.hpp>
#include <mofka/Producer.hpp>
#include <mofka/TopicHandle.hpp>
#include <thalweg/thalweg.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

const std::string metadata = R"({"projection_id":17,"theta":0.7853981633974483,"center":320.0})";

/* Nanoseconds an event. */
struct Costs {
    double push = 0, flush = 0, pull = 0;
};

double nanoseconds(const std::function<void()> &call, size_t events)
{
    const auto began = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    return took.count() / static_cast<double>(events);
}

void expect(bool holds, const char *what)
{
    if (holds)
        return;
    std::fprintf(stderr, "calls: %s\n", what);
    std::exit(1);
}

Costs native(thalweg::Driver &driver, const std::string &name, size_t events, std::string &data)
{
    auto topic = driver.createTopic(name, thalweg::Storage("memory"));
    Costs costs;
    {
        auto producer = topic.producer();
        costs.push = nanoseconds(
            [&] {
                for (size_t index = 0; index < events; index++)
                    producer.push(metadata,
                                  thalweg::DataView(data.data(), data.size()).borrow());
            },
            events);
        costs.flush = nanoseconds([&] { producer.flush().get(); }, events);
    }
    auto consumer = topic.consumer("c");
    size_t bytes = 0;
    costs.pull = nanoseconds(
        [&] {
            for (size_t index = 0; index < events; index++) {
                const auto event = consumer.pull(-1);
                bytes += event->metadataView().size() + event->data().size();
            }
        },
        events);
    expect(bytes == events * (metadata.size() + data.size()), "events are not what was pushed");
    return costs;
}

Costs legacy(mofka::MofkaDriver &driver, const std::string &name, size_t events, std::string &data,
             bool borrow)
{
    driver.createTopic(name);
    driver.addMemoryPartition(name, 0);
    const auto topic = driver.openTopic(name);
    Costs costs;
    {
        const auto producer = topic.producer(
            "p", mofka::Metadata{borrow ? R"({"borrow":true})" : R"({"borrow":false})"});
        costs.push = nanoseconds(
            [&] {
                for (size_t index = 0; index < events; index++)
                    producer.push(mofka::Metadata{metadata}, mofka::Data{data.data(), data.size()});
            },
            events);
        costs.flush = nanoseconds([&] { producer.flush(); }, events);
    }
    const mofka::DataSelector all = [](const mofka::Metadata &,
                                       const mofka::DataDescriptor &descriptor) {
        return descriptor;
    };
    // One that frees itself, as programs for Mofka have it.
    const mofka::DataBroker broker = [](const mofka::Metadata &,
                                        const mofka::DataDescriptor &descriptor) {
        char *memory = new char[descriptor.size()];
        return mofka::Data{memory, descriptor.size(), memory, [](mofka::Data::Context context) {
                               delete[] static_cast<char *>(context);
                           }};
    };
    const auto consumer = topic.consumer("c", all, broker);
    size_t bytes = 0;
    costs.pull = nanoseconds(
        [&] {
            for (size_t index = 0; index < events; index++) {
                const auto event = consumer.pull().wait();
                bytes += event.metadata().string().size() + event.data().size();
            }
        },
        events);
    expect(bytes == events * (metadata.size() + data.size()), "events are not what was pushed");
    return costs;
}

double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: calls GROUP-FILE [EVENTS [ROUNDS]]\n");
        return 2;
    }
    const std::string group_file = argv[1];
    const size_t events = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 20000;
    const size_t rounds = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 5;
    thalweg::Driver driver(group_file);
    mofka::MofkaDriver mofka_driver{group_file};
    std::printf("| data, bytes | | push, ns | flush, ns/event | pull, ns |\n"
                "| --- | --- | --- | --- | --- |\n");
    size_t number = 0;
    for (const size_t size : {size_t{0}, size_t{1000}, size_t{64000}}) {
        const size_t count = size > 10000 ? events / 20 : events;
        std::string data(size, 'x');
        using Run = std::function<Costs(const std::string &)>;
        const std::vector<std::pair<const char *, Run>> ways{
            {"Thalweg's own",
             [&](const std::string &name) { return native(driver, name, count, data); }},
            {"Mofka's, copied",
             [&](const std::string &name) {
                 return legacy(mofka_driver, name, count, data, false);
             }},
            {"Mofka's, `borrow`",
             [&](const std::string &name) {
                 return legacy(mofka_driver, name, count, data, true);
             }},
        };
        std::vector<std::vector<Costs>> found(ways.size());
        for (size_t round = 0; round <= rounds; round++)
            for (size_t way = 0; way < ways.size(); way++) {
                const std::string name = "calls-" + std::to_string(number++);
                const auto costs = ways[way].second(name);
                driver.deleteTopic(name);
                // The first is for the caches.
                if (round > 0)
                    found[way].push_back(costs);
            }
        for (size_t way = 0; way < ways.size(); way++) {
            const auto of = [&](double Costs::*which) {
                std::vector<double> values;
                for (const Costs &costs : found[way])
                    values.push_back(costs.*which);
                return median(values);
            };
            std::printf("| %zu | %s | %.0f | %.0f | %.0f |\n", size, ways[way].first,
                        of(&Costs::push), of(&Costs::flush), of(&Costs::pull));
        }
    }
    return 0;
}
