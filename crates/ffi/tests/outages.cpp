// Tests of the C++ interface against a server that is killed and started again, and
// of memory that a program uses again. scripts/examples builds and runs it.
//
//   outages THALWEG DIRECTORY SECONDS...
//
// THALWEG is the program, each of SECONDS an outage, all of them side by side.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <future>
#include <iostream>
#include <mutex>
#include <string>
#include <sys/wait.h>
#include <thalweg/thalweg.hpp>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace thalweg;
using std::chrono::milliseconds;

constexpr int COUNT = 400;

static void require(bool holds, const std::string &what)
{
    if (!holds)
        throw std::runtime_error(what);
}

// A `thalweg serve` process on a directory of its own.
class Server {
public:
    Server(std::string program, std::string directory)
        : program_(std::move(program)), directory_(std::move(directory))
    {
        std::filesystem::create_directories(directory_);
    }
    ~Server() { kill(); }

    std::string groupFile() const { return directory_ + "/thalweg.json"; }

    void start()
    {
        const std::string data = directory_ + "/data", group = groupFile(),
                          log = directory_ + "/server.log";
        process_ = fork();
        require(process_ >= 0, "no process for the server");
        if (process_ == 0) {
            if (std::freopen(log.c_str(), "a", stdout) && std::freopen(log.c_str(), "a", stderr))
                execl(program_.c_str(), "thalweg", "serve", "--directory", data.c_str(),
                      "--group-file", group.c_str(), static_cast<char *>(nullptr));
            _exit(127);
        }
    }

    // Ends it as a crash does.
    void kill()
    {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            waitpid(process_, nullptr, 0);
        }
        process_ = 0;
    }

private:
    std::string program_, directory_;
    pid_t process_ = 0;
};

static Driver connect(const Server &server)
{
    return Driver(server.groupFile(), R"({"connect_timeout_ms": 60000})");
}

static int number(const Event &event)
{
    const std::string text = event.metadata().string();
    return std::stoi(text.substr(text.find(':') + 1));
}

static std::string task(int number) { return "{\"i\": " + std::to_string(number) + "}"; }

static std::vector<int> upTo(int count)
{
    std::vector<int> numbers;
    for (int i = 0; i < count; i++)
        numbers.push_back(i);
    return numbers;
}

// A farm, an iteration and pushes, in the middle of which the server is killed and stays
// away: nothing is lost, and nothing ends by it.
static void outage(Server &server, int seconds)
{
    server.start();
    auto driver = connect(server);
    auto topic = driver.createTopic("tasks", Durability::Written);
    std::mutex mutex;
    std::vector<int> done, seen;
    std::atomic<size_t> done_count{0}, seen_count{0};
    std::promise<void> went, came;
    auto away = went.get_future().share(), back = came.get_future().share();

    auto pushed = std::async(std::launch::async, [&, away] {
        auto producer = topic.producer();
        std::vector<Future<EventID>> futures;
        for (int i = 0; i < COUNT; i++) {
            if (i == COUNT / 2)
                away.wait();
            futures.push_back(producer.push(task(i)));
        }
        for (int i = 0; i < COUNT; i++)
            require(futures[i].get().offset == static_cast<uint64_t>(i), "stored once, in order");
    });
    auto read = std::async(std::launch::async, [&] {
        auto viewer = topic.consumer("viewer");
        while (seen.size() < COUNT) {
            const auto event = viewer.pull(-1);
            require(event.has_value(), "a pull without a limit gives an event");
            seen.push_back(number(*event));
            event->acknowledge();
            seen_count++;
        }
    });
    std::vector<std::future<void>> workers;
    for (int worker = 0; worker < 3; worker++)
        workers.push_back(std::async(std::launch::async, [&, back] {
            auto queue = topic.queue("farm", Options(R"({"prefetch": 8})"));
            for (const QueueEvent &event : queue.drain(std::chrono::seconds(1))) {
                {
                    const std::lock_guard<std::mutex> lock(mutex);
                    done.push_back(number(event));
                }
                event.acknowledge();
                // The rest is done when the server is back.
                if (++done_count >= COUNT / 4)
                    back.wait();
            }
            queue.close();
        }));
    while (done_count < COUNT / 4 || seen_count < COUNT / 4)
        std::this_thread::sleep_for(milliseconds(10));
    server.kill();
    went.set_value();
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    server.start();
    came.set_value();
    pushed.get();
    read.get();
    for (auto &worker : workers)
        worker.get();
    require(seen == upTo(COUNT), "each event is read once, in order");
    std::sort(done.begin(), done.end());
    done.erase(std::unique(done.begin(), done.end()), done.end());
    require(done == upTo(COUNT), "every task is done");
    driver.close();
    std::cout << "an outage of " + std::to_string(seconds) + " s ended nothing\n" << std::flush;
}

// A program that reuses its frame's memory after each push stores every frame as it was;
// memory that it lends has to stay as it is.
static void frames(Server &server)
{
    auto driver = connect(server);
    auto topic = driver.createTopic("frames");
    for (const size_t size : {size_t(65536), size_t(65537), size_t(1000003)}) {
        auto producer = topic.producer();
        std::vector<char> frame(size);
        for (char value = 0; value < 20; value++) {
            std::fill(frame.begin(), frame.end(), value);
            producer.push("{}", DataView(frame));
            std::fill(frame.begin(), frame.end(), 'x');
        }
        producer.flush().get();
    }
    size_t count = 0;
    for (const Event &event : topic.read()) {
        const DataView data = event.data();
        require(data.segments().size() == 1, "a frame is one piece");
        const auto *bytes = static_cast<const char *>(data.segments()[0].ptr);
        const char value = static_cast<char>(count++ % 20);
        require(std::all_of(bytes, bytes + data.size(), [&](char byte) { return byte == value; }),
                "a frame is what it was when it was pushed");
    }
    require(count == 60, "each frame comes once");

    auto lent = topic.producer(Options(R"({"check_borrowed": true, "linger_ms": 3600000})"));
    std::vector<char> frame(1000003, 'a');
    auto future = lent.push("{}", DataView(frame).borrow());
    // It is not sent yet, and was not copied.
    frame[1000] = 'b';
    try {
        lent.flush().get();
        require(false, "what is borrowed must not change");
    } catch (const DataChanged &) {
    }
    try {
        driver.close();
    } catch (const DataChanged &) {
        // Said once more of the producer that failed.
    }
    std::cout << "frames that share their memory are stored as they were\n" << std::flush;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        std::cerr << "usage: outages THALWEG DIRECTORY SECONDS...\n";
        return 2;
    }
    try {
        const std::string program = argv[1], directory = argv[2];
        // Processes are made by threads here: each of them runs another program at once.
        std::vector<std::unique_ptr<Server>> servers;
        std::vector<std::future<void>> outages;
        for (int index = 3; index < argc; index++) {
            servers.push_back(std::make_unique<Server>(program, directory + "/" + argv[index]));
            outages.push_back(std::async(std::launch::async, outage, std::ref(*servers.back()),
                                         std::stoi(argv[index])));
        }
        Server server(program, directory + "/frames");
        server.start();
        frames(server);
        for (auto &one : outages)
            one.get();
    } catch (const std::exception &error) {
        std::cerr << "failed: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
