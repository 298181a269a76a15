/*
 * What programs for Mofka 0.6 rely on of its C++ API, call by call.
 *
 *     mofka_api GROUP-FILE
 */
#include "check.hpp"

#include <mofka/BatchSize.hpp>
#include <mofka/Client.hpp>
#include <mofka/Consumer.hpp>
#include <mofka/Data.hpp>
#include <mofka/DataBroker.hpp>
#include <mofka/DataDescriptor.hpp>
#include <mofka/DataSelector.hpp>
#include <mofka/Event.hpp>
#include <mofka/EventID.hpp>
#include <mofka/EventProcessor.hpp>
#include <mofka/Exception.hpp>
#include <mofka/Future.hpp>
#include <mofka/InvalidMetadata.hpp>
#include <mofka/Json.hpp>
#include <mofka/Metadata.hpp>
#include <mofka/MofkaDriver.hpp>
#include <mofka/NumEvents.hpp>
#include <mofka/Ordering.hpp>
#include <mofka/PartitionSelector.hpp>
#include <mofka/Producer.hpp>
#include <mofka/Serializer.hpp>
#include <mofka/ServiceHandle.hpp>
#include <mofka/ThreadPool.hpp>
#include <mofka/TopicHandle.hpp>
#include <mofka/Validator.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

using nlohmann::json;

namespace {

std::string text(const mofka::Data &data)
{
    std::string text;
    for (const auto &segment : data.segments())
        text.append(static_cast<const char *>(segment.ptr), segment.size);
    return text;
}

mofka::Metadata numbered(int number)
{
    return mofka::Metadata{R"({"event_num":)" + std::to_string(number) + "}"};
}

/* Memory that is freed with the data. */
mofka::Data owned(size_t size)
{
    char *memory = new char[size];
    return mofka::Data{memory, size, memory,
                       [](mofka::Data::Context context) { delete[] static_cast<char *>(context); }};
}

const mofka::DataSelector everything = [](const mofka::Metadata &,
                                          const mofka::DataDescriptor &descriptor) {
    return descriptor;
};
const mofka::DataBroker anywhere = [](const mofka::Metadata &,
                                      const mofka::DataDescriptor &descriptor) {
    return owned(descriptor.size());
};

/* A topic of the test's own, with that many partitions. */
mofka::TopicHandle made(mofka::MofkaDriver &driver, const std::string &name, int partitions = 1)
{
    driver.createTopic(name);
    for (int index = 0; index < partitions; index++)
        driver.addMemoryPartition(name, 0);
    return driver.openTopic(name);
}

void values()
{
    mofka::Metadata metadata{R"({"a": 1})"};
    CHECK_EQUAL(metadata.string(), R"({"a": 1})");
    mofka::Metadata same = metadata;
    metadata.json()["a"] = 2;
    CHECK_EQUAL(same.string(), R"({"a":2})");
    same.string() = R"({"b":3})";
    CHECK_EQUAL(metadata.json()["b"].get<int>(), 3);
    CHECK_EQUAL(mofka::Metadata{}.string(), "{}");
    CHECK(!mofka::Metadata{"nothing"}.isValidJson());
    CHECK_THROWS(mofka::Metadata("{", true), mofka::Exception);
    CHECK_THROWS(mofka::Metadata("{").json(), mofka::Exception);

    int freed = 0;
    char memory[16] = "";
    {
        mofka::Data data{{{memory, 4}, {memory + 4, 12}}, &freed, [](mofka::Data::Context context) {
                             ++*static_cast<int *>(context);
                         }};
        const mofka::Data copy = data;
        CHECK_EQUAL(copy.size(), 16U);
        CHECK(copy.context() == &freed);
        data.write("abcdef", 6, 2);
        CHECK_EQUAL(std::string(memory + 2, 6), "abcdef");
        data.write("beyond its end", 14, 14);
        CHECK_EQUAL(std::string(memory + 14, 2), "be");
    }
    CHECK_EQUAL(freed, 1);

    const auto whole = mofka::DataDescriptor::From("here", 1000);
    CHECK_EQUAL(std::string(whole.location().begin(), whole.location().end()), "here");
    const auto part = whole.makeSubView(100, 200).makeSubView(10, 20).flatten();
    CHECK_EQUAL(part.size(), 1U);
    CHECK_EQUAL(part[0].offset, 110U);
    CHECK_EQUAL(part[0].size, 20U);
    CHECK_EQUAL(whole.makeSubView(100, 200).makeSubView(150, 20).flatten()[0].offset, 250U);
    CHECK_EQUAL(whole.makeSubView(990, 100).size(), 10U);
    CHECK_EQUAL(whole.makeSubView(1001, 1).size(), 0U);
    CHECK_EQUAL(whole.makeStridedView(0, 10, 50, 50).size(), 500U);
    CHECK_THROWS(whole.makeStridedView(1, 10, 50, 50), mofka::Exception);
    CHECK_THROWS(whole.makeUnstructuredView({{10, 10}, {15, 10}}), mofka::Exception);
    CHECK_THROWS(whole.makeUnstructuredView({{990, 11}}), mofka::Exception);
    CHECK_EQUAL(whole.makeUnstructuredView({{10, 10}, {20, 10}}).flatten().size(), 1U);
    CHECK_EQUAL(mofka::DataDescriptor::Null().size(), 0U);

    CHECK(mofka::BatchSize{3} < mofka::BatchSize::Adaptive());
    CHECK(mofka::NumEvents{3} < mofka::NumEvents::Infinity());
    mofka::Future<mofka::EventID> nothing;
    CHECK(!nothing);
    CHECK_THROWS(nothing.wait(), mofka::Exception);
    CHECK_THROWS(nothing.completed(), mofka::Exception);
}

void pools()
{
    std::atomic<int> done{0};
    {
        const mofka::ThreadPool none{mofka::ThreadCount{0}};
        const auto here = std::this_thread::get_id();
        none.pushWork([&] { done += here == std::this_thread::get_id() ? 1 : 0; });
        CHECK_EQUAL(done.load(), 1);
        const mofka::ThreadPool two{mofka::ThreadCount{2}};
        CHECK_EQUAL(two.threadCount().count, 2U);
        for (uint64_t priority = 0; priority < 100; priority++)
            two.pushWork([&] { done++; }, priority);
    }
    CHECK_EQUAL(done.load(), 101);
}

void topics(const std::string &group_file, mofka::MofkaDriver &driver)
{
    CHECK_THROWS(mofka::MofkaDriver("no-such-file.json"), mofka::Exception);
    CHECK_THROWS(driver.openTopic("missing"), mofka::Exception);
    CHECK(!driver.topicExists("missing"));
    CHECK_EQUAL(driver.numServers(), 1U);
    driver.startProgressThread();
    CHECK_EQUAL(driver.defaultThreadPool().threadCount().count, 0U);
    CHECK_THROWS(driver.addMemoryPartition("missing", 0), mofka::Exception);

    const auto topic = made(driver, "topics", 2);
    CHECK_THROWS(driver.addMemoryPartition("topics", 1), mofka::Exception);
    CHECK_EQUAL(topic.name(), "topics");
    CHECK_EQUAL(topic.partitions().size(), 2U);
    const auto info = topic.partitions()[1].json();
    CHECK_EQUAL(info["provider_id"].get<int>(), 1);
    CHECK(info["uuid"] != topic.partitions()[0].json()["uuid"]);
    CHECK_EQUAL(topic.validator().metadata().json()["type"].get<std::string>(), "default");
    CHECK_EQUAL(topic.selector().metadata().json()["type"].get<std::string>(), "default");
    CHECK_EQUAL(topic.serializer().metadata().json()["type"].get<std::string>(), "default");

    // What programs of another age write.
    thallium::engine engine("na+sm", THALLIUM_SERVER_MODE);
    mofka::MofkaDriver with_engine{group_file, engine};
    CHECK(with_engine.topicExists("topics"));
    const mofka::ServiceHandle handle{group_file};
    CHECK(handle);
    CHECK(mofka::Client{engine}.getConfig().json().is_object());
    engine.finalize();
    CHECK(!mofka::TopicHandle{});
    CHECK(!mofka::Producer{});
    CHECK(!mofka::Consumer{});
    CHECK(!mofka::Event{});
}

void validators(mofka::MofkaDriver &driver)
{
    const json schema{{"$schema", "http://json-schema.org/draft-07/schema#"},
                      {"type", "object"},
                      {"required", {"x"}},
                      {"properties", {{"x", {{"type", "integer"}}},
                                      {"pair", {{"items", {{{"type", "string"}}}}}}}}};
    const auto validator =
        mofka::Validator::FromMetadata("schema", mofka::Metadata{json{{"schema", schema}}});
    const auto serializer = mofka::Serializer::FromMetadata(
        mofka::Metadata{json{{"type", "schema"}, {"schema", schema}}});
    driver.createTopic("validated", validator, mofka::PartitionSelector{}, serializer);
    driver.addDefaultPartition("validated", 0);
    auto topic = driver.openTopic("validated");
    CHECK_EQUAL(topic.validator().metadata().json()["type"].get<std::string>(), "schema");
    auto producer = topic.producer();
    CHECK_EQUAL(producer.push(mofka::Metadata{R"({"x":1,"pair":["a"]})"}).wait(), 0U);
    CHECK_THROWS(producer.push(mofka::Metadata{R"({"x":"1"})"}), mofka::InvalidMetadata);
    CHECK_THROWS(producer.push(mofka::Metadata{R"({"x":1,"pair":[1]})"}), mofka::InvalidMetadata);
    CHECK_THROWS(producer.push(mofka::Metadata{"no json"}), mofka::InvalidMetadata);
    CHECK_EQUAL(topic.consumer("c").pull().wait().metadata().json()["x"].get<int>(), 1);

    CHECK_THROWS(mofka::Validator::FromMetadata("schema", mofka::Metadata{"{}"}),
                 mofka::Exception);
    CHECK_THROWS(mofka::Validator::FromMetadata("unknown", mofka::Metadata{"{}"}),
                 mofka::Exception);
    CHECK_THROWS(mofka::PartitionSelector::FromMetadata("schema", mofka::Metadata{"{}"}),
                 mofka::Exception);
    const auto pattern = mofka::Validator::FromMetadata(
        "eventbridge", mofka::Metadata{R"({"schema":{"x":[{"numeric":["<",3]}]}})"});
    driver.createTopic("patterned", pattern);
    driver.addMemoryPartition("patterned", 0);
    auto patterned = driver.openTopic("patterned").producer();
    patterned.push(mofka::Metadata{R"({"x":2})"}).wait();
    CHECK_THROWS(patterned.push(mofka::Metadata{R"({"x":3})"}), mofka::InvalidMetadata);
    CHECK(driver.openTopic("patterned").validator().metadata().json().contains("schema"));
}

void pushes(mofka::MofkaDriver &driver)
{
    const auto topic = made(driver, "pushes", 2);
    int number = 0;
    for (const size_t threads : {0, 1, 2})
        for (const auto batch : {mofka::BatchSize::Adaptive(), mofka::BatchSize{10}})
            for (const auto ordering : {mofka::Ordering::Strict, mofka::Ordering::Loose}) {
                auto producer =
                    topic.producer(ordering, mofka::ThreadCount{threads}, "my_producer", batch);
                CHECK_EQUAL(producer.name(), "my_producer");
                CHECK(producer.batchSize() == batch);
                CHECK(producer.maxBatch() == mofka::MaxBatch{2});
                CHECK_EQUAL(producer.threadPool().threadCount().count, threads);
                CHECK_EQUAL(producer.topic().name(), "pushes");
                std::vector<std::string> data;
                data.reserve(100);
                for (int index = 0; index < 100; index++) {
                    data.push_back("data of " + std::to_string(index));
                    auto future = producer.push(
                        numbered(number++), mofka::Data{data.back().data(), data.back().size()});
                    // Also of a batch that is not full.
                    if (index % 23 == 0)
                        future.wait();
                }
                producer.flush();
            }
    auto producer = topic.producer(std::string("another"), mofka::MaxBatch{4});
    const auto future = producer.push(numbered(number++), mofka::Data{}, 3);
    CHECK_EQUAL(future.wait(), future.wait());
    CHECK(future.completed());

    std::set<int> seen;
    auto consumer = topic.consumer("all", everything, anywhere);
    for (int index = 0; index < number; index++) {
        const auto event = consumer.pull().wait();
        const int found = event.metadata().json()["event_num"].get<int>();
        seen.insert(found);
        if (found == number - 1)
            CHECK_EQUAL(event.partition().json()["provider_id"].get<int>(), 1);
        else
            CHECK_EQUAL(text(event.data()), "data of " + std::to_string(found % 100));
    }
    CHECK_EQUAL(seen.size(), static_cast<size_t>(number));

    // Data that frees itself is kept until it is stored, whoever lets go of it.
    {
        auto large = owned(1 << 20);
        std::fill_n(static_cast<char *>(large.segments()[0].ptr), large.size(), 'x');
        producer.push(numbered(-1), large);
    }
    producer.flush();
    CHECK_EQUAL(text(consumer.pull().wait().data()), std::string(1 << 20, 'x'));
}

/* What arrives of a buffer that is written to between its push and the flush, behind a batch
 * that is not full. */
std::string written_later(const mofka::TopicHandle &topic, const mofka::Consumer &consumer,
                          const mofka::Metadata &options)
{
    std::string buffer(1 << 20, 'a');
    const auto producer = topic.producer("p", mofka::BatchSize{10}, options);
    producer.push(numbered(1), mofka::Data{buffer.data(), buffer.size()});
    std::fill(buffer.begin(), buffer.end(), 'b');
    producer.flush();
    return text(consumer.pull().wait().data());
}

/* A buffer is copied by the push, unless the program says that it keeps it as it is. */
void borrowing(mofka::MofkaDriver &driver)
{
    const auto topic = made(driver, "borrowing");
    const auto consumer = topic.consumer("c", everything, anywhere);
    const mofka::Metadata borrow{R"({"borrow":true})"}, copy{R"({"borrow":false})"};
    const std::string copied(1 << 20, 'a'), lent(1 << 20, 'b');
    CHECK(written_later(topic, consumer, mofka::Metadata{"{}"}) == copied);
    CHECK(written_later(topic, consumer, borrow) == lent);
    ::setenv("THALWEG_MOFKA_BORROW", "1", 1);
    CHECK(written_later(topic, consumer, mofka::Metadata{"{}"}) == lent);
    // The producer's own word counts for more.
    CHECK(written_later(topic, consumer, copy) == copied);
    ::unsetenv("THALWEG_MOFKA_BORROW");
    CHECK(written_later(topic, consumer, mofka::Metadata{"{}"}) == copied);
}

void pulls(mofka::MofkaDriver &driver)
{
    const auto topic = made(driver, "pulls");
    auto consumer = topic.consumer("c", mofka::BatchSize{7}, mofka::ThreadCount{3});
    CHECK_EQUAL(consumer.name(), "c");
    CHECK(consumer.batchSize() == mofka::BatchSize{7});
    CHECK_EQUAL(consumer.threadPool().threadCount().count, 3U);
    CHECK_EQUAL(consumer.topic().name(), "pulls");
    const auto first = consumer.pull();
    const auto second = consumer.pull();
    CHECK(!first.completed());
    {
        // Given up: the next one's event is not lost by it.
        const auto given_up = consumer.pull();
    }
    auto producer = topic.producer();
    for (int index = 0; index < 6; index++)
        producer.push(numbered(index));
    // In the order of the pulls, whichever is waited for first.
    const auto event = second.wait();
    CHECK_EQUAL(event.id(), 1U);
    CHECK_EQUAL(first.wait().id(), 0U);
    CHECK_EQUAL(second.wait().id(), 1U);
    CHECK(first.completed());
    auto &document = event.metadata().json();
    CHECK_EQUAL(document["event_num"].get<int>(), 1);
    {
        // One that has its event, and is not asked for it.
        const auto dropped = consumer.pull();
        CHECK_EQUAL(consumer.pull().wait().id(), 3U);
    }
    CHECK_EQUAL(consumer.pull().wait().id(), 2U);
    event.acknowledge();
    CHECK_EQUAL(consumer.pull().wait().id(), 4U);
    // Does not move back, and counts at once for a consumer that is opened here.
    first.wait().acknowledge();
    auto again = topic.consumer("c");
    CHECK_EQUAL(again.pull().wait().id(), 2U);

    // Several of one name each get everything.
    auto a = topic.consumer("same"), b = topic.consumer("same");
    CHECK_EQUAL(a.pull().wait().id(), 0U);
    CHECK_EQUAL(b.pull().wait().id(), 0U);
    auto late = topic.consumer("late", mofka::Metadata{R"({"start_from":"latest"})"});
    const auto waiting = late.pull();
    CHECK(!waiting.completed());
    producer.push(numbered(6));
    CHECK_EQUAL(waiting.wait().id(), 6U);
    CHECK_THROWS(topic.consumer("x", mofka::Metadata{R"({"start_from":"nowhere"})"}),
                 mofka::Exception);

    // A future outlives its consumer, and finds that no more come.
    auto gone = topic.consumer("gone", mofka::Metadata{R"({"start_from":"latest"})"});
    const auto left = gone.pull();
    gone = mofka::Consumer{};
    producer.push(numbered(7));
    producer.flush();
    CHECK(left.wait());
}

void parts(mofka::MofkaDriver &driver)
{
    const auto topic = made(driver, "parts");
    std::string lower = "abcdefghijklmnopqrstuvwxyz", upper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    auto producer = topic.producer();
    mofka::Data both{{{lower.data(), lower.size()}, {upper.data(), upper.size()}}};
    for (int index = 0; index < 5; index++)
        producer.push(numbered(index), both);
    producer.push(numbered(5));
    producer.flush();

    const mofka::DataSelector selector = [](const mofka::Metadata &metadata,
                                            const mofka::DataDescriptor &whole) {
        switch (metadata.json()["event_num"].get<int>()) {
        case 0: return whole;
        case 1: return whole.makeSubView(13, 26);
        case 2: return whole.makeStridedView(13, 3, 4, 2);
        case 3: return whole.makeUnstructuredView({{3, 6}, {15, 4}, {27, 8}});
        default: return mofka::DataDescriptor::Null();
        }
    };
    const std::vector<std::string> wanted = {lower + upper, (lower + upper).substr(13, 26),
                                             "nopqtuvwzABC", "defghipqrsBCDEFGHI", "", ""};
    std::vector<std::string> kept;
    const mofka::DataBroker in_pieces = [&kept](const mofka::Metadata &,
                                                const mofka::DataDescriptor &chosen) {
        // Of three pieces, one of them empty.
        kept.push_back(std::string(chosen.size(), '-'));
        char *base = kept.back().data();
        const size_t half = chosen.size() / 2;
        return mofka::Data{{{base, half}, {base, 0}, {base + half, chosen.size() - half}}};
    };
    kept.reserve(wanted.size());
    auto whole = topic.consumer("whole", selector, anywhere);
    auto pieces = topic.consumer("pieces", in_pieces, selector);
    auto nowhere = topic.consumer("nowhere", selector);
    auto none = topic.consumer("none");
    for (const std::string &expected : wanted) {
        CHECK_EQUAL(text(whole.pull().wait().data()), expected);
        const auto event = pieces.pull().wait();
        CHECK_EQUAL(text(event.data()), expected);
        CHECK_EQUAL(event.data().segments().size(), expected.empty() ? 0U : 3U);
        CHECK_EQUAL(text(nowhere.pull().wait().data()), expected);
        CHECK_EQUAL(none.pull().wait().data().size(), 0U);
    }

    // What a selector or a broker throws, the pull throws.
    struct Mine {
    };
    auto throwing = topic.consumer(
        "throwing", [](const mofka::Metadata &, const mofka::DataDescriptor &whole_) {
            if (whole_.size() > 0)
                throw Mine{};
            return whole_;
        });
    CHECK_THROWS(throwing.pull().wait(), Mine);
    auto small = topic.consumer("small", everything,
                                [](const mofka::Metadata &, const mofka::DataDescriptor &) {
                                    return owned(1);
                                });
    CHECK_THROWS(small.pull().wait(), mofka::Exception);
}

void ends(mofka::MofkaDriver &driver)
{
    const auto topic = made(driver, "ends", 2);
    auto producer = topic.producer();
    for (int index = 0; index < 20; index++)
        producer.push(numbered(index));
    producer.flush();
    topic.markAsComplete();
    auto consumer = topic.consumer("c");
    for (int index = 0; index < 20; index++)
        CHECK(consumer.pull().wait().id() != mofka::NoMoreEvents);
    const auto end = consumer.pull().wait();
    CHECK_EQUAL(end.id(), mofka::NoMoreEvents);
    CHECK(end.metadata().json().is_object());
    CHECK_EQUAL(end.data().size(), 0U);
    CHECK_THROWS(end.acknowledge(), mofka::Exception);
    CHECK_EQUAL(consumer.pull().wait().id(), mofka::NoMoreEvents);

    for (const size_t threads : {0, 2}) {
        std::atomic<int> count{0};
        const mofka::ThreadPool pool{mofka::ThreadCount{threads}};
        const mofka::EventProcessor counting = [&](const mofka::Event &) {
            count++;
            return mofka::Data{};
        };
        topic.consumer("all-" + std::to_string(threads), pool) | counting;
        CHECK_EQUAL(count.load(), 20);
        count = 0;
        topic.consumer("some-" + std::to_string(threads))
            .process(counting, pool, mofka::NumEvents{7});
        CHECK_EQUAL(count.load(), 7);
        count = 0;
        topic.consumer("few-" + std::to_string(threads))
            .process(
                [&](const mofka::Event &) -> mofka::Data {
                    if (++count == 3)
                        throw mofka::StopEventProcessor{};
                    return {};
                },
                pool);
        CHECK(threads == 0 ? count.load() == 3 : count.load() >= 3);
    }
}

/* A topic gets its partition after somebody waits for it. */
void later(const std::string &group_file, mofka::MofkaDriver &driver)
{
    driver.createTopic("later");
    auto topic = driver.openTopic("later");
    CHECK_EQUAL(topic.partitions().size(), 0U);
    auto producer = topic.producer();
    auto consumer = topic.consumer("c");
    const auto waiting = consumer.pull();
    CHECK(!waiting.completed());
    std::thread pushing([&] { producer.push(numbered(1)).wait(); });
    mofka::MofkaDriver(group_file).addDefaultPartition("later", 0);
    pushing.join();
    CHECK_EQUAL(waiting.wait().metadata().json()["event_num"].get<int>(), 1);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 2) {
        std::cerr << "usage: mofka_api GROUP-FILE" << std::endl;
        return 2;
    }
    const std::string group_file = argv[1];
    values();
    pools();
    mofka::MofkaDriver driver{group_file, true};
    topics(group_file, driver);
    validators(driver);
    pushes(driver);
    borrowing(driver);
    pulls(driver);
    parts(driver);
    ends(driver);
    later(group_file, driver);
    std::cout << "values, pools, topics, validators, pushes, borrowing, pulls, parts, ends" << std::endl;
    return 0;
}
