// For how long a program that produces large events is held up.
//
//   blocked thalweg GROUP_FILE EVENTS BYTES INTERVAL_US memory|written
//   blocked zeromq  ENDPOINT   EVENTS BYTES INTERVAL_US copied|lent RECEIVER-CORE
//
// The program is an instrument with four buffers that it fills in turn, one
// every INTERVAL_US (0: as fast as it goes). It is blocked while it is in a
// call of the library, while it waits for a buffer to be its own again, and at
// the end until everything has gone: acknowledged by the server, or, for
// ZeroMQ, received by the other process. Filling a buffer (a touch of each
// page) and waiting for the time of the next one are its own business. ZeroMQ
// copies a message (`copied`, with its usual high-water mark) or is lent the
// memory and calls back when it is done with it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <thalweg/thalweg.hpp>
#include <thread>
#include <unistd.h>
#include <vector>
#include <zmq.h>

using Clock = std::chrono::steady_clock;

constexpr size_t BUFFERS = 4;
constexpr size_t PAGE = 4096;

static void fail(const char *what, const char *why)
{
    std::fprintf(stderr, "%s: %s\n", what, why);
    std::exit(1);
}

// What the program spends in calls, event by event.
struct Blocked {
    std::vector<double> each;
    double at_the_end = 0;

    template <class Call> static double seconds(Call call)
    {
        const auto began = Clock::now();
        call();
        return std::chrono::duration<double>(Clock::now() - began).count();
    }

    void print(double elapsed)
    {
        double sum = at_the_end;
        for (const double one : each)
            sum += one;
        const auto count = static_cast<double>(each.size());
        std::sort(each.begin(), each.end());
        std::printf("{\"events\": %zu, \"blocked_us\": %.3f, \"p50_us\": %.3f, \"max_us\": %.3f, "
                    "\"end_us\": %.3f, \"events_per_s\": %.3f}\n",
                    each.size(), sum / count * 1e6, each[each.size() / 2] * 1e6,
                    each.back() * 1e6, at_the_end * 1e6, count / elapsed);
    }
};

struct Instrument {
    size_t bytes;
    std::chrono::microseconds interval;
    std::vector<char *> buffers;
    Clock::time_point next = Clock::now();

    // Memory as a program has it: anybody's, on whole pages, touched before.
    void own_buffers()
    {
        for (size_t index = 0; index < BUFFERS; index++) {
            auto *buffer = static_cast<char *>(std::aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE));
            if (buffer == nullptr)
                fail("a buffer", "no memory");
            std::memset(buffer, static_cast<int>(index + 1), bytes);
            buffers.push_back(buffer);
        }
    }

    void fill(size_t event)
    {
        char *buffer = buffers[event % BUFFERS];
        for (size_t at = 0; at < bytes; at += PAGE)
            buffer[at] = static_cast<char>(event + at);
    }

    void wait()
    {
        if (interval.count() == 0)
            return;
        std::this_thread::sleep_until(next);
        next += interval;
    }
};

static void thalweg_produces(const char *group_file, size_t events, Instrument instrument,
                             const std::string &level)
{
    using namespace thalweg;
    Driver driver(group_file);
    const std::string name = "blocked-" + std::to_string(getpid());
    // What a topic keeps is bounded, so that any number of events can be pushed.
    Options options(R"({"retention": {"bytes": 500000000}})");
    auto topic = driver.createTopic(name, Storage(level == "memory" ? "memory" : "disk"),
                                    Durability(level == "memory" ? Durability::Memory
                                                                 : Durability::Written),
                                    options);
    std::vector<DataView> views;
    for (size_t index = 0; index < BUFFERS; index++) {
        views.push_back(driver.allocate(instrument.bytes));
        auto *buffer = static_cast<char *>(views.back().segments()[0].ptr);
        std::memset(buffer, static_cast<int>(index + 1), instrument.bytes);
        instrument.buffers.push_back(buffer);
    }
    auto producer = topic.producer();
    // The connection is warm, as it is for ZeroMQ.
    producer.push("{}", views[0]).get();
    std::vector<std::optional<Future<EventID>>> lent(BUFFERS);
    Blocked blocked;
    const auto began = instrument.next = Clock::now();
    for (size_t event = 0; event < events; event++) {
        auto &future = lent[event % BUFFERS];
        instrument.wait();
        const double waited = Blocked::seconds([&] {
            if (future)
                future->get();
        });
        instrument.fill(event);
        const double pushed = Blocked::seconds(
            [&] { future = producer.push("{\"frame\": 1}", views[event % BUFFERS]); });
        blocked.each.push_back(waited + pushed);
    }
    blocked.at_the_end = Blocked::seconds([&] { producer.flush().get(); });
    const std::chrono::duration<double> elapsed = Clock::now() - began;
    driver.deleteTopic(name);
    blocked.print(elapsed.count());
}

static void *open_socket(void *context, int type, const char *endpoint, bool binds)
{
    void *socket = zmq_socket(context, type);
    if (socket == nullptr ||
        (binds ? zmq_bind(socket, endpoint) : zmq_connect(socket, endpoint)) != 0)
        fail(endpoint, zmq_strerror(zmq_errno()));
    return socket;
}

// Tells by a byte when the first event has come, and when all have.
static void receive(const char *endpoint, size_t events, int tell)
{
    void *socket = open_socket(zmq_ctx_new(), ZMQ_PULL, endpoint, true);
    for (size_t event = 0; event <= events; event++) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        if (zmq_msg_recv(&message, socket, 0) < 0)
            fail(endpoint, zmq_strerror(zmq_errno()));
        zmq_msg_close(&message);
        if ((event == 0 || event == events) && write(tell, "x", 1) != 1)
            _exit(1);
    }
    _exit(0);
}

static void give_back(void *, void *in_use)
{
    static_cast<std::atomic<bool> *>(in_use)->store(false, std::memory_order_release);
}

static void zeromq_produces(const char *endpoint, size_t events, Instrument instrument,
                            const std::string &how, int core)
{
    int told[2];
    if (pipe(told) != 0)
        fail("pipe", "could not be made");
    const pid_t receiver = fork();
    if (receiver == 0) {
        cpu_set_t cores;
        CPU_ZERO(&cores);
        CPU_SET(core, &cores);
        if (sched_setaffinity(0, sizeof cores, &cores) != 0)
            fail("the receiver", "no such core");
        receive(endpoint, events, told[1]);
    }
    close(told[1]);
    void *context = zmq_ctx_new();
    void *socket = open_socket(context, ZMQ_PUSH, endpoint, false);
    instrument.own_buffers();
    std::vector<std::atomic<bool>> in_use(BUFFERS);
    const auto push = [&](size_t event) {
        char *buffer = instrument.buffers[event % BUFFERS];
        if (how == "copied") {
            if (zmq_send(socket, buffer, instrument.bytes, 0) < 0)
                fail("send", zmq_strerror(zmq_errno()));
            return;
        }
        auto &flag = in_use[event % BUFFERS];
        flag.store(true, std::memory_order_relaxed);
        zmq_msg_t message;
        zmq_msg_init_data(&message, buffer, instrument.bytes, give_back, &flag);
        if (zmq_msg_send(&message, socket, 0) < 0)
            fail("send", zmq_strerror(zmq_errno()));
    };
    const auto own_again = [&](size_t event) {
        // Nothing but the flag says so; the core is left to whoever sends.
        while (in_use[event % BUFFERS].load(std::memory_order_acquire))
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    };
    char byte;
    push(0);
    if (read(told[0], &byte, 1) != 1)
        fail("the receiver", "ended");
    Blocked blocked;
    const auto began = instrument.next = Clock::now();
    for (size_t event = 0; event < events; event++) {
        instrument.wait();
        const double waited = Blocked::seconds([&] { own_again(event); });
        instrument.fill(event);
        blocked.each.push_back(waited + Blocked::seconds([&] { push(event); }));
    }
    blocked.at_the_end = Blocked::seconds([&] {
        if (read(told[0], &byte, 1) != 1)
            fail("the receiver", "ended");
    });
    const std::chrono::duration<double> elapsed = Clock::now() - began;
    int status;
    waitpid(receiver, &status, 0);
    zmq_close(socket);
    zmq_ctx_term(context);
    if (status != 0)
        fail("the receiver", "failed");
    blocked.print(elapsed.count());
}

int main(int argc, char **argv)
try {
    if (argc < 7)
        fail("usage", "blocked thalweg|zeromq ENDPOINT EVENTS BYTES INTERVAL_US HOW [CORE]");
    const std::string work = argv[1], how = argv[6];
    const auto events = static_cast<size_t>(std::atol(argv[3]));
    Instrument instrument{static_cast<size_t>(std::atol(argv[4])),
                          std::chrono::microseconds(std::atol(argv[5])), {}};
    if (work == "thalweg")
        thalweg_produces(argv[2], events, instrument, how);
    else
        zeromq_produces(argv[2], events, instrument, how, argc > 7 ? std::atoi(argv[7]) : 0);
} catch (const std::exception &caught) {
    fail("blocked", caught.what());
}
