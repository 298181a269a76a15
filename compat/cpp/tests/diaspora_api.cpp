/*
 * What programs rely on of Diaspora's streaming API, by its factory of drivers.
 *
 *     diaspora_api LIBRARY GROUP-FILE first | second
 *
 * LIBRARY is the driver; `second` goes on where `first` ended, after the server
 * was started again.
 */
#include "check.hpp"

#include <diaspora/Consumer.hpp>
#include <diaspora/Driver.hpp>
#include <diaspora/PartitionSelector.hpp>
#include <diaspora/Producer.hpp>
#include <diaspora/Serializer.hpp>
#include <diaspora/TopicHandle.hpp>
#include <diaspora/Validator.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

using diaspora::BatchSize;
using diaspora::DataDescriptor;
using diaspora::DataView;
using diaspora::Driver;
using diaspora::Metadata;
using diaspora::NoMoreEvents;
using diaspora::Ordering;
using diaspora::ThreadCount;
using diaspora::ThreadPool;
using nlohmann::json;

namespace {

/* Never reached, unless something hangs. */
constexpr int watchdog_ms = 60'000;

/* A program's own: a partition for odd, one for even; refuses what has no number. */
class OddAndEven : public diaspora::PartitionSelectorInterface {
public:
    void setPartitions(const std::vector<diaspora::PartitionInfo> &targets) override
    {
        count_ = targets.size();
    }
    size_t selectPartitionFor(const Metadata &metadata, std::optional<size_t>) override
    {
        return metadata.json()["event_num"].get<size_t>() % count_;
    }
    Metadata metadata() const override { return Metadata(json{{"type", "odd_and_even"}}); }
    static std::shared_ptr<diaspora::PartitionSelectorInterface> create(const Metadata &)
    {
        return std::make_shared<OddAndEven>();
    }

private:
    size_t count_ = 0;
};

class Below : public diaspora::ValidatorInterface {
public:
    explicit Below(int limit) : limit_(limit) {}
    void validate(const Metadata &metadata, const DataView &) const override
    {
        if (metadata.json()["event_num"].get<int>() >= limit_)
            throw diaspora::InvalidMetadata("too large");
    }
    Metadata metadata() const override
    {
        return Metadata(json{{"type", "below"}, {"limit", limit_}});
    }
    static std::shared_ptr<diaspora::ValidatorInterface> create(const Metadata &metadata)
    {
        return std::make_shared<Below>(metadata.json()["limit"].get<int>());
    }

private:
    int limit_;
};

DIASPORA_REGISTER_PARTITION_SELECTOR(test, odd_and_even, OddAndEven);
DIASPORA_REGISTER_VALIDATOR(test, below, Below);

std::string text(const DataView &data)
{
    std::string text;
    for (const auto &segment : data.segments())
        text.append(static_cast<const char *>(segment.ptr), segment.size);
    return text;
}

Metadata numbered(int number)
{
    return Metadata(json{{"event_num", number}});
}

DataView owned(size_t size)
{
    char *memory = new char[size];
    return DataView(memory, size, memory,
                    [](DataView::UserContext context) { delete[] static_cast<char *>(context); });
}

const diaspora::DataSelector everything = [](const Metadata &, const DataDescriptor &whole) {
    return whole;
};
const diaspora::DataAllocator anywhere = [](const Metadata &, const DataDescriptor &chosen) {
    return owned(chosen.size());
};

diaspora::TopicHandle made(const Driver &driver, const std::string &name, int partitions = 1,
                           const std::string &type = "memory")
{
    driver.createTopic(
        name, Metadata(json{{"num_partitions", partitions}, {"config", {{"type", type}}}}));
    return driver.openTopic(name);
}

diaspora::Event next(const diaspora::Consumer &consumer)
{
    const auto event = consumer.pull().wait(watchdog_ms);
    CHECK(event);
    return *event;
}

void backends(const std::string &library, const Metadata &options)
{
    CHECK_THROWS(Driver::New("missing", options), diaspora::Exception);
    CHECK_THROWS(Driver::New("missing:libmissing.so", options), diaspora::Exception);
    CHECK_THROWS(Driver::New(("missing:" + library).c_str(), options), diaspora::Exception);
    const auto by_library = Driver::New(("thalweg:" + library).c_str(), options);
    CHECK(by_library);
    // Known by its name alone from now on.
    CHECK(Driver::New("thalweg", options));
    CHECK_THROWS(Driver::New("thalweg", Metadata("{}")), diaspora::Exception);
    CHECK_THROWS(Driver::New("thalweg", Metadata(R"({"group_file":"no-such-file.json"})")),
                 diaspora::Exception);
    CHECK_THROWS(Driver::New("thalweg", Metadata(R"({"group_file":1})")), diaspora::Exception);
}

void topics(const Driver &driver)
{
    CHECK(!driver.topicExists("topics"));
    CHECK_THROWS(driver.openTopic("topics"), diaspora::Exception);
    driver.createTopic("topics");
    CHECK(driver.topicExists("topics"));
    CHECK_THROWS(driver.createTopic("topics"), diaspora::Exception);
    const auto topic = driver.openTopic("topics");
    CHECK_EQUAL(topic.name(), "topics");
    CHECK_EQUAL(topic.partitions().size(), 1U);
    CHECK(topic.driver().topicExists("topics"));
    CHECK_EQUAL(topic.validator().metadata().json()["type"].get<std::string>(), "default");
    CHECK_EQUAL(topic.selector().selectPartitionFor(numbered(1), 5), 0U);
    CHECK(topic.serializer());
    CHECK_THROWS(driver.createTopic("bad", Metadata(R"({"num_partitions":"many"})")),
                 diaspora::Exception);

    const auto several = made(driver, "several", 3);
    CHECK_EQUAL(several.partitions().size(), 3U);
    std::set<std::string> ids;
    for (const auto &partition : several.partitions()) {
        ids.insert(partition.json()["uuid"].get<std::string>());
        CHECK_EQUAL(partition.json()["storage"].get<std::string>(), "memory");
    }
    CHECK_EQUAL(ids.size(), 3U);
    const auto listed = driver.listTopics();
    CHECK_EQUAL(listed.at("several").json()["num_partitions"].get<int>(), 3);
    for (const char *part : {"validator", "serializer", "partition_selector"})
        CHECK_EQUAL(listed.at("topics").json()[part]["type"].get<std::string>(), "default");

    CHECK(driver.defaultThreadPool());
    std::atomic<int> done{0};
    {
        const ThreadPool pool = driver.makeThreadPool(ThreadCount{2});
        CHECK_EQUAL(pool.threadCount().count, 2U);
        for (int index = 0; index < 10; index++)
            pool.pushWork([&] { done++; });
        while (done < 10)
            std::this_thread::yield();
    }
}

void producers(const Driver &driver)
{
    const auto topic = made(driver, "producers", 2, "default");
    int number = 0;
    for (const size_t threads : {0, 1, 2})
        for (const auto batch : {BatchSize::Adaptive(), BatchSize{10}})
            for (const auto ordering : {Ordering::Strict, Ordering::Loose}) {
                const auto pool = driver.makeThreadPool(ThreadCount{threads});
                auto producer = topic.producer(std::string_view("my_producer"), batch, ordering,
                                               pool, diaspora::MaxNumBatches{4});
                CHECK_EQUAL(producer.name(), "my_producer");
                CHECK(producer.batchSize() == batch);
                CHECK_EQUAL(producer.maxNumBatch().value, 4U);
                CHECK(producer.ordering() == ordering);
                CHECK_EQUAL(producer.threadPool().threadCount().count, threads);
                CHECK_EQUAL(producer.topic().name(), "producers");
                std::vector<std::string> data;
                data.reserve(100);
                for (int index = 0; index < 100; index++) {
                    data.push_back("data of " + std::to_string(index));
                    const auto future = producer.push(
                        numbered(number++), DataView{data.back().data(), data.back().size()});
                    // Also of a batch that is not full.
                    if (index % 23 == 0)
                        CHECK(future.wait(watchdog_ms));
                }
                CHECK(producer.flush().wait(watchdog_ms));
            }
    auto producer = topic.producer();
    const auto future = producer.push(numbered(number++), DataView{}, 3);
    CHECK(future.wait(-1));
    CHECK_EQUAL(*future.wait(0), *future.wait(-1));
    CHECK(future.completed());
    // Data that frees itself is kept until it is stored, and freed then.
    {
        auto large = owned(1 << 20);
        std::fill_n(static_cast<char *>(large.segments()[0].ptr), large.size(), 'x');
        producer.push(numbered(number++), large);
    }
    producer.flush();
    // What is not flushed is sent by letting go of the producer.
    topic.producer(BatchSize{1000}).push(numbered(number++));

    auto consumer = topic.consumer("all", everything, anywhere);
    std::set<int> seen;
    for (int index = 0; index < number; index++) {
        const auto event = next(consumer);
        const int found = event.metadata().json()["event_num"].get<int>();
        seen.insert(found);
        if (found < 1200)
            CHECK_EQUAL(text(event.data()), "data of " + std::to_string(found % 100));
        if (found == 1200)
            CHECK_EQUAL(event.partition().json()["index"].get<int>(), 1);
        if (found == 1201)
            CHECK_EQUAL(text(event.data()), std::string(1 << 20, 'x'));
    }
    CHECK_EQUAL(seen.size(), static_cast<size_t>(number));
}

void validators(const Driver &driver)
{
    const json schema{{"type", "object"}, {"required", {"x"}}};
    driver.createTopic("validated", Metadata("{}"),
                       diaspora::Validator::FromMetadata(
                           Metadata(json{{"type", "schema"}, {"schema", schema}})));
    const auto topic = driver.openTopic("validated");
    CHECK_EQUAL(topic.validator().metadata().json()["type"].get<std::string>(), "schema");
    auto producer = topic.producer();
    CHECK_EQUAL(*producer.push(Metadata(R"({"x":1})")).wait(watchdog_ms), 0U);
    CHECK_THROWS(producer.push(Metadata(R"({"y":1})")), diaspora::InvalidMetadata);
    CHECK_EQUAL(next(topic.consumer("c")).metadata().dump(), R"({"x":1})");

    const json pattern{{"x", {{{"numeric", {"<", 3}}}}}};
    driver.createTopic("patterned", Metadata("{}"),
                       diaspora::Validator::FromMetadata(
                           Metadata(json{{"type", "eventbridge"}, {"schema", pattern}})));
    auto patterned = driver.openTopic("patterned").producer();
    CHECK(patterned.push(Metadata(R"({"x":2})")).wait(watchdog_ms));
    CHECK_THROWS(patterned.push(Metadata(R"({"x":3})")), diaspora::InvalidMetadata);
    CHECK(driver.listTopics().at("patterned").json()["validator"].contains("schema"));
}

/* Validators and selectors of the program's own, also of a topic that another driver made. */
void components(const Driver &driver, const Driver &another)
{
    driver.createTopic("own", Metadata(R"({"num_partitions":2})"),
                       diaspora::Validator(std::make_shared<Below>(100)),
                       diaspora::PartitionSelector(std::make_shared<OddAndEven>()));
    for (const Driver &from : {driver, another}) {
        const auto topic = from.openTopic("own");
        CHECK_EQUAL(topic.validator().metadata().json()["limit"].get<int>(), 100);
        CHECK_EQUAL(topic.selector().selectPartitionFor(numbered(7)), 1U);
        auto producer = topic.producer();
        for (int number = 0; number < 10; number++)
            CHECK(producer.push(numbered(number)).wait(watchdog_ms));
        CHECK_THROWS(producer.push(numbered(100)), diaspora::InvalidMetadata);
        const auto listed = from.listTopics().at("own").json();
        CHECK_EQUAL(listed["validator"]["type"].get<std::string>(), "below");
        CHECK_EQUAL(listed["partition_selector"]["type"].get<std::string>(), "odd_and_even");
        CHECK_EQUAL(listed["serializer"]["type"].get<std::string>(), "default");
    }
    const auto odd = another.openTopic("own").consumer("odd", std::vector<size_t>{1});
    for (int index = 0; index < 10; index++)
        CHECK_EQUAL(next(odd).metadata().json()["event_num"].get<int>(), 2 * (index % 5) + 1);
    CHECK(!odd.pull().wait(0));
}

void pulls(const Driver &driver)
{
    const auto topic = made(driver, "pulls");
    auto consumer = topic.consumer("c", BatchSize{7}, driver.makeThreadPool(ThreadCount{1}));
    CHECK_EQUAL(consumer.name(), "c");
    CHECK(consumer.batchSize() == BatchSize{7});
    CHECK(consumer.maxNumBatch().value > 0);
    CHECK_EQUAL(consumer.threadPool().threadCount().count, 1U);
    CHECK_EQUAL(consumer.topic().name(), "pulls");
    CHECK(!consumer.dataSelector());
    CHECK(!consumer.dataAllocator());

    // Waits without an event: 0 looks, others end in time, and lose nothing.
    const auto first = consumer.pull();
    const auto second = consumer.pull();
    CHECK(!first.completed());
    CHECK(!first.wait(0));
    CHECK(!second.wait(20));
    {
        // Given up: its event is the next one's.
        const auto given_up = consumer.pull();
        CHECK(!given_up.wait(1));
    }
    auto producer = topic.producer();
    std::string data = "some data";
    for (int number = 0; number < 6; number++)
        producer.push(numbered(number), DataView{data.data(), data.size()});
    // In the order of the pulls, whichever is waited for first; a long wait is one.
    const auto event = second.wait(3'000'000);
    CHECK(event);
    CHECK_EQUAL(event->id(), 1U);
    CHECK_EQUAL(event->data().size(), 0U);
    CHECK_EQUAL(first.wait(watchdog_ms)->id(), 0U);
    CHECK_EQUAL(second.wait(0)->id(), 1U);
    CHECK(first.completed());
    {
        const auto dropped = consumer.pull();
        CHECK_EQUAL(next(consumer).id(), 3U);
    }
    CHECK_EQUAL(next(consumer).id(), 2U);
    event->acknowledge();
    CHECK_EQUAL(next(consumer).id(), 4U);
    // Does not move back, and counts at once for a consumer that is opened here.
    first.wait(0)->acknowledge();
    auto again = topic.consumer("c");
    CHECK_EQUAL(next(again).id(), 2U);

    // Several of one name each get everything.
    const auto a = topic.consumer("same"), b = topic.consumer("same");
    CHECK_EQUAL(next(a).id(), 0U);
    CHECK_EQUAL(next(b).id(), 0U);
    const auto late = topic.consumer("late", Metadata(R"({"start_from":"latest"})"));
    CHECK(!late.pull().wait(0));
    producer.push(numbered(6));
    CHECK_EQUAL(next(late).id(), 6U);
    CHECK_THROWS(topic.consumer("x", Metadata(R"({"start_from":"nowhere"})")),
                 diaspora::Exception);

    // Iterating ends when no event comes for the time.
    int count = 0;
    auto iterated = topic.consumer("iterated");
    const auto end = iterated.end();
    for (auto at = iterated.begin(200); at != end; ++at)
        CHECK_EQUAL((*at).id(), static_cast<size_t>(count++));
    CHECK_EQUAL(count, 7);

    // A future outlives its consumer, and one that is closed is at the end.
    auto gone = topic.consumer("gone", Metadata(R"({"start_from":"latest"})"));
    const auto left = gone.pull();
    std::thread waiting([&] { CHECK_EQUAL(left.wait(-1)->id(), NoMoreEvents); });
    gone = diaspora::Consumer{};
    waiting.join();
    CHECK_THROWS(left.wait(0)->acknowledge(), diaspora::Exception);
}

void parts(const Driver &driver)
{
    const auto topic = made(driver, "parts");
    std::string lower = "abcdefghijklmnopqrstuvwxyz", upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    auto producer = topic.producer();
    for (int number = 0; number < 7; number++)
        producer.push(numbered(number),
                      DataView{{{lower.data(), lower.size()}, {upper.data(), upper.size()}}});
    producer.push(numbered(7));
    producer.flush().wait(-1);

    const diaspora::DataSelector selector = [](const Metadata &metadata,
                                               const DataDescriptor &whole) {
        switch (metadata.json()["event_num"].get<int>()) {
        case 0: return whole;
        case 1: return whole.makeSubView(13, 26);
        case 2: return whole.makeStridedView(13, 3, 4, 2);
        case 3: return whole.makeUnstructuredView({{3, 6}, {15, 4}, {27, 8}});
        case 4: return whole.makeSubView(10, 20).makeSubView(5, 3);
        case 5: return whole.makeStridedView(0, 4, 2, 3).makeSubView(3, 4);
        default: return DataDescriptor{};
        }
    };
    const std::vector<std::string> wanted = {
        lower + upper, (lower + upper).substr(13, 26), "nopqtuvwzABC", "defghipqrsBCDEFGHI",
        "pqr",         "gklp",                         "",             ""};
    std::vector<std::string> kept;
    kept.reserve(wanted.size());
    const diaspora::DataAllocator in_pieces = [&kept](const Metadata &,
                                                      const DataDescriptor &chosen) {
        kept.push_back(std::string(chosen.size(), '-'));
        char *base = kept.back().data();
        const size_t half = chosen.size() / 2;
        return DataView{{{base, half}, {base, 0}, {base + half, chosen.size() - half}}};
    };
    const auto whole = topic.consumer("whole", selector, anywhere);
    const auto pieces = topic.consumer("pieces", in_pieces, selector);
    const auto nowhere = topic.consumer("nowhere", selector);
    for (const std::string &expected : wanted) {
        CHECK_EQUAL(text(next(whole).data()), expected);
        const auto event = next(pieces);
        CHECK_EQUAL(text(event.data()), expected);
        CHECK_EQUAL(event.data().segments().size(), expected.empty() ? 0U : 3U);
        CHECK_EQUAL(text(next(nowhere).data()), expected);
    }
    struct Mine {
    };
    const diaspora::DataSelector throws = [](const Metadata &, const DataDescriptor &whole_) {
        if (whole_.size() > 0)
            throw Mine{};
        return whole_;
    };
    CHECK_THROWS(topic.consumer("throwing", throws).pull().wait(-1), Mine);
    const diaspora::DataAllocator too_small = [](const Metadata &, const DataDescriptor &) {
        return owned(1);
    };
    CHECK_THROWS(topic.consumer("small", everything, too_small).pull().wait(-1),
                 diaspora::Exception);
}

void processing(const Driver &driver)
{
    const auto topic = made(driver, "processing", 2);
    auto producer = topic.producer();
    for (int number = 0; number < 20; number++)
        producer.push(numbered(number));
    producer.flush().wait(-1);
    for (const size_t threads : {0, 2}) {
        const auto pool = driver.makeThreadPool(ThreadCount{threads});
        const std::string name = "-" + std::to_string(threads);
        std::atomic<int> count{0};
        topic.consumer("some" + name)
            .process([&](const std::optional<diaspora::Event> &event) { count += event ? 1 : 0; },
                     watchdog_ms, diaspora::NumEvents{7}, pool);
        CHECK_EQUAL(count.load(), 7);
        // None within the time is told, too.
        std::atomic<int> none{0};
        count = 0;
        topic.consumer("all" + name)
            .process(
                [&](const std::optional<diaspora::Event> &event) {
                    if (event) {
                        count++;
                    } else {
                        none++;
                        throw diaspora::StopEventProcessor{};
                    }
                },
                50, diaspora::NumEvents::Infinity(), pool);
        CHECK_EQUAL(count.load(), 20);
        CHECK(none.load() >= 1);
        count = 0;
        topic.consumer("piped" + name, pool) | [&](const std::optional<diaspora::Event> &) {
            if (++count == 3)
                throw diaspora::StopEventProcessor{};
        };
        CHECK(count.load() >= 3);
        struct Mine {
        };
        CHECK_THROWS(([&] {
                         topic.consumer("throwing" + name)
                             .process([](const std::optional<diaspora::Event> &) { throw Mine{}; },
                                      -1, diaspora::NumEvents::Infinity(), pool);
                         return 0;
                     }()),
                     Mine);
    }
}

/* Producers and a consumer at the same time. */
void tailing(const Driver &driver)
{
    const auto topic = made(driver, "tailing", 2, "default");
    std::vector<std::thread> threads;
    for (int first = 0; first < 3; first++)
        threads.emplace_back([&, first] {
            auto producer = topic.producer(BatchSize{10});
            for (int index = 0; index < 200; index++)
                producer.push(numbered(first * 200 + index));
            CHECK(producer.flush().wait(watchdog_ms));
        });
    std::set<int> seen;
    const auto consumer = topic.consumer("c");
    while (seen.size() < 600) {
        const auto event = next(consumer);
        CHECK(seen.insert(event.metadata().json()["event_num"].get<int>()).second);
        event.acknowledge();
    }
    for (std::thread &thread : threads)
        thread.join();
    CHECK(!consumer.pull().wait(0));
}

/* What was acknowledged is, whoever is started again. */
void first(const Driver &driver)
{
    const auto topic = made(driver, "kept", 1, "default");
    auto producer = topic.producer();
    for (int number = 0; number < 20; number++)
        producer.push(numbered(number));
    CHECK(producer.flush().wait(watchdog_ms));
    const auto consumer = topic.consumer("c");
    for (int number = 0; number < 10; number++)
        next(consumer).acknowledge();
}

void second(const Driver &driver)
{
    const auto topic = driver.openTopic("kept");
    const auto consumer = topic.consumer("c");
    CHECK_EQUAL(next(consumer).id(), 10U);
    CHECK_EQUAL(next(topic.consumer("new")).id(), 0U);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 4) {
        std::cerr << "usage: diaspora_api LIBRARY GROUP-FILE first | second" << std::endl;
        return 2;
    }
    const std::string library = argv[1];
    const Metadata options(json{{"group_file", argv[2]}, {"margo", json::object()}});
    const auto driver = Driver::New(("thalweg:" + library).c_str(), options);
    if (std::string(argv[3]) == "second") {
        second(driver);
        return 0;
    }
    backends(library, options);
    topics(driver);
    producers(driver);
    validators(driver);
    components(driver, Driver::New("thalweg", options));
    pulls(driver);
    parts(driver);
    processing(driver);
    tailing(driver);
    first(driver);
    std::cout << "backends, topics, producers, validators, components, pulls, parts, processing"
              << std::endl;
    return 0;
}
