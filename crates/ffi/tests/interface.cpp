// Tests of what the C++ interface adds to thalweg.h: durations, and what can be printed and
// compared. scripts/examples builds and runs it, on a directory for a server of its own, and
// compiles it with WRONG_OPTION, which has to be refused in one sentence.
#include <chrono>
#include <cmath>
#include <iostream>
#include <limits>
#include <sstream>
#include <thalweg/thalweg.hpp>

using namespace thalweg;
using namespace std::chrono_literals;

static_assert(Duration(250).milliseconds() == 250, "a number is milliseconds");
static_assert(Duration(2s).milliseconds() == 2000, "seconds");
static_assert(Duration(1h).milliseconds() == 3600000, "hours");
static_assert(Duration(1us).milliseconds() == 1, "rounded up: it waits, and does not only look");
static_assert(Duration(1ns).milliseconds() == 1, "rounded up, be it ever so short");
static_assert(Duration(1001us).milliseconds() == 2, "never shorter than asked for");
static_assert(Duration(0s).milliseconds() == 0, "only looks");
static_assert(Duration(-1).milliseconds() < 0, "the operation's own limit");
static_assert(Duration(-5s).milliseconds() == 0, "a deadline that has passed is not for ever");
static_assert(Duration(std::chrono::duration<double>(0.25)).milliseconds() == 250, "fractions");
static_assert(Duration(std::chrono::duration<double>(0.001)).milliseconds() == 1, "no more");
static_assert(Duration(std::chrono::hours::max()).milliseconds() > 0, "no overflow");
static_assert(Duration(std::chrono::nanoseconds::min()).milliseconds() == 0, "no overflow");
static_assert(Duration(std::numeric_limits<uint64_t>::max()).milliseconds() ==
                  Duration(std::numeric_limits<int64_t>::max()).milliseconds(),
              "a number that is too large is the longest time");
static_assert(!std::is_convertible<double, Duration>::value, "seconds or milliseconds?");
static_assert(!std::is_convertible<bool, Duration>::value, "a flag is no time");

static void require(bool holds, const char *what)
{
    if (!holds)
        throw std::runtime_error(what);
}

template <class T> static std::string printed(const T &value)
{
    std::ostringstream stream;
    stream << value;
    return stream.str();
}

int main(int argc, char **argv)
try {
    require(argc == 2, "usage: interface DIRECTORY");
    const auto nan = std::chrono::duration<double>(std::nan(""));
    require(Duration(nan).milliseconds() == 0, "a number that is none only looks");

    auto driver = Driver::embedded(argv[1]);
#ifdef WRONG_OPTION
    driver.createTopic("wrong", BatchSize(3));
#endif
    auto topic = driver.createTopic("times");
    auto producer = topic.producer();
    const auto before = std::chrono::system_clock::now();
    const EventID id = *producer.push(R"({"frame": 7})").wait(1min);
    producer.flush().wait(60s);
    auto consumer = topic.consumer("viewer");
    // The longest time there is, too.
    const auto event = consumer.pull(std::chrono::hours::max());
    require(event.has_value(), "the event comes");
    require(!consumer.pull(std::chrono::steady_clock::duration(-1)), "it only looks");
    require(!consumer.pull(0), "it only looks");
    require(consumer.pullBatch(4, 1us).empty(), "there is one event");

    require(printed(event->metadata()) == R"({"frame": 7})", "metadata prints as its text");
    require(event->metadata() == Metadata(R"({"frame": 7})"), "metadata compares");
    require(event->metadata() != Metadata(), "metadata compares");
    require(printed(id) == std::to_string(id.partition) + "/" + std::to_string(id.incarnation) +
                               "/" + std::to_string(id.offset),
            "an id prints as its parts");
    require(event->appendedAt() > before - 1h && event->appendedAt() < before + 1h,
            "the server's time is a time");
    require(topic.read().next(1min)->id() == id, "a reader waits for a duration");
    try {
        driver.openTopic("nowhere");
        require(false, "there is no such topic");
    } catch (const UnknownTopic &error) {
        require(std::string(error.name()) == thalweg_code_name(error.code()), "a code has a name");
    }

    for (int frame = 0; frame < 100; frame++)
        producer.push("{}").wait(1min);
    auto latest = topic.consumer("latest", Latest(), Start::Beginning());
    uint64_t offset = 0, count = 0;
    for (; offset != id.offset + 100; count++)
        offset = latest.pull(1min)->id().offset;
    require(latest.skipped() + count == 101, "what is not handed out is counted");
    require(topic.consumer("newest", Latest{}).pull(1min)->id().offset == offset,
            "a viewer begins with the newest event");
    auto other = driver.createTopic("others");
    other.producer().push("{}").wait(1min);
    auto queue = other.queue("farm");
    auto task = queue.pull(1min);
    require(task.has_value(), "the queue has it");
    task->returnToQueue(10ms, "later").get();
    task = queue.pull(1min);
    require(task && task->deliveries() == 2, "it comes again after its delay");
    try {
        task->returnToQueue(-1);
        require(false, "a delay is not negative");
    } catch (const InvalidArgument &) {
    }
    task->acknowledge().get();
    for (const QueueEvent &left : queue.drain(50ms))
        require(left.deliveries() == 0, "nothing is left");
    queue.windDown(0s);
    queue.close(1min);
    consumer.flush(1min);
    // What was moved from is refused, as of every handle.
    auto moved = topic.consumer("moved");
    const auto taken = std::move(moved);
    try {
        moved.pull(0ms);
        require(false, "nothing is behind it");
    } catch (const InvalidArgument &) {
    }
    driver.close(1min);
    std::cout << "durations, and what is printed\n";
    return 0;
} catch (const std::exception &error) {
    std::cerr << "failed: " << error.what() << "\n";
    return 1;
}
