// A farm: requests that workers answer, events that they share, and one question to all.
//
//   farm GROUP_FILE      with the server that wrote the group file
//   farm DIRECTORY       with a server in this process, on that directory
#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <thalweg/thalweg.hpp>
#include <thread>

using namespace thalweg;
using namespace std::chrono_literals;

constexpr size_t TASKS = 40, CELLS = 1000;

static void require(bool holds, const char *what)
{
    if (!holds)
        throw std::runtime_error(what);
}

// Sums the numbers of each request until it is told to stop.
static void work(Queue &queue, const std::atomic<bool> &stop)
{
    while (!stop && !queue.windingDown()) {
        std::optional<QueueEvent> request;
        try {
            request = queue.pull(50ms);
        } catch (const Error &error) {
            // A server that is away, or recovers, is no end.
            if (!error.retryable())
                throw;
        }
        if (!request)
            continue;
        const DataView data = request->data();
        const double *cells = data.as<double>();
        const double sum = std::accumulate(cells, cells + data.size() / sizeof(double), 0.0);
        // Acknowledges the request, once the reply is stored.
        request->reply("{\"sum\": " + std::to_string(sum) + "}");
    }
    queue.close();
}

static void ask(Driver &driver)
{
    auto topic = driver.createTopic("farm-sums", ExistOk(), Storage::Memory());
    std::atomic<bool> stop{false};
    auto first = topic.queue("workers", Options(R"({"prefetch": 4})"));
    auto second = topic.queue("workers");
    std::thread one([&] { work(first, stop); }), two([&] { work(second, stop); });

    // What is lent stands before the requester, whose end may still send it.
    std::vector<std::vector<double>> inputs;
    auto requester = topic.requester();
    std::vector<Future<Event>> replies;
    for (size_t task = 0; task < TASKS; task++) {
        inputs.emplace_back(CELLS, static_cast<double>(task));
        // Not copied: `inputs` stay as they are until the replies are there.
        replies.push_back(requester.request("{}", DataView(inputs.back()).borrow(), 1min));
    }
    for (size_t task = 0; task < TASKS; task++) {
        const Event reply = replies[task].get();
        const auto expected = "{\"sum\": " + std::to_string(double(task * CELLS)) + "}";
        require(reply.metadata().string() == expected, "each request has its reply");
        require(reply.replier() == "workers", "a reply says who gave it");
    }
    stop = true;
    one.join();
    two.join();
    std::cout << TASKS << " requests have their replies\n";
}

static void settle(Driver &driver)
{
    auto topic = driver.createTopic("farm-tasks", ExistOk(), Storage::Memory());
    auto producer = topic.producer();
    for (const char *task : {"good", "bad", "again"})
        producer.push("{\"task\": \"" + std::string(task) + "\"}").get();
    auto queue = topic.queue("farm", Options(R"({"deliveries_max": 2, "lease_ms": 30000})"));
    size_t acknowledged = 0;
    while (acknowledged < 2) {
        const auto event = queue.pull(1min);
        require(event.has_value(), "an event comes");
        const std::string task = event->metadata().string();
        if (task.find("bad") != std::string::npos) {
            event->reject("no such detector").get();
        } else if (task.find("again") != std::string::npos && event->deliveries() == 1) {
            event->extend().get();
            event->returnToQueue(0ms, "not now").get();
        } else {
            event->acknowledge().get();
            acknowledged++;
            try {
                event->extend().get();
                require(false, "a settled event has no lease");
            } catch (const LeaseExpired &) {
            }
        }
    }
    queue.close();
    const auto letter = driver.openTopic("farm-tasks.dead").consumer("look").pull().get();
    for (const auto &[name, value] : letter.headers())
        if (name == "thalweg.reason")
            std::cout << "dead: " << letter.metadata() << ", " << value << "\n";
}

// Goes through a queue until nothing is left in it, and reads a topic to its end.
static void finish(Driver &driver)
{
    auto topic = driver.createTopic("farm-scans", ExistOk(), Partitions{2}, Storage::Memory());
    auto producer = topic.producer();
    for (int scan = 0; scan < 100; scan++)
        producer.push("{\"scan\": " + std::to_string(scan) + "}");
    producer.flush().get();

    size_t drained = 0, read = 0;
    auto queue = topic.queue("once");
    for (const QueueEvent &event : queue.drain(200ms)) {
        event.acknowledge();
        drained++;
    }
    queue.close();

    size_t there = 0;
    for (const Event &event : topic.read())
        there += !event.metadata().string().empty();
    auto reader = topic.read(Start::Beginning(), End::Now());
    // It came later than the end.
    producer.push("{\"scan\": \"late\"}").get();
    for (const Event &event : reader)
        read += !event.metadata().string().empty();
    require(reader.ended() && reader.gaps().string() == "[]", "nothing was lost");
    require(topic.read(End::Before(0)).next() == std::nullopt,
            "there is nothing before the first");
    require(drained >= 100 && there >= 100 && read == there, "each event comes once");
    std::cout << "drained, and read to the end\n";
}

static void share(Driver &driver)
{
    auto topic = driver.createTopic("farm-frames", ExistOk(), Partitions{4}, Storage::Memory());
    std::vector<uint32_t> assigned;
    GroupListener listener;
    listener.assigned = [&](const std::vector<uint32_t> &partitions) {
        assigned.insert(assigned.end(), partitions.begin(), partitions.end());
    };
    auto member = topic.group("analysis", listener);
    // The listener is told in a pull, which may be the one after they are granted.
    while (assigned.size() < 4)
        require(!member.pull(20ms), "nothing was pushed yet");
    require(member.partitions().size() == 4, "they are the member's");

    // One question to all who are there: the group, and a viewer.
    auto viewer = topic.consumer("viewer", Start::Latest());
    auto requester = topic.requester();
    auto asked = requester.broadcast("{\"ready\": \"?\"}", {}, 1min);
    for (Consumer *consumer : {&member, &viewer}) {
        const auto event = consumer->pull(1min);
        require(event.has_value(), "the question comes");
        event->reply("{\"ready\": true}").get();
        event->acknowledge();
    }
    const Gathered gathered = asked.get();
    require(gathered.missing.empty(), "nobody is missing");
    std::cout << gathered.replies.size() << " replies to a broadcast";

    // Who does not answer is named.
    auto again = requester.broadcast("{\"ready\": \"?\"}", {}, 1min, 1);
    const auto question = member.pull(1min);
    question->reply("{\"ready\": true}").get();
    question->acknowledge();
    const Gathered one = again.get();
    require(one.replies.size() == 1 && one.missing.size() == 1, "one of two is enough");
    std::cout << "; then " << one.missing[0].substr(0, one.missing[0].find('/'))
              << " is missing\n";
    member.flush();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::cerr << "usage: farm GROUP_FILE|DIRECTORY\n";
        return 2;
    }
    try {
        auto driver = std::filesystem::is_directory(argv[1]) ? Driver::embedded(argv[1])
                                                             : Driver(argv[1]);
        ask(driver);
        settle(driver);
        finish(driver);
        share(driver);
        driver.close();
    } catch (const std::exception &error) {
        std::cerr << "failed: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
