/*
 * A streaming reconstruction as such programs are written for Mofka 0.6: a
 * handshake, projections in turn to one partition each rank, a sliding window,
 * images that are published while their buffers are used again, events that
 * say that it is the end. What comes out has to be what was computed without a
 * stream.
 *
 *     mofka_stream GROUP-FILE create | first | second
 *
 * `first` ends in the middle; `second` goes on, perhaps after the server was
 * started again.
 */
#include "check.hpp"

#include <mofka/Client.hpp>
#include <mofka/MofkaDriver.hpp>
#include <mofka/TopicHandle.hpp>
#include <nlohmann/json.hpp>

#include <cstring>
#include <iostream>
#include <queue>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using json = nlohmann::json;
namespace tl = thallium;

namespace {

constexpr int ranks = 2;
constexpr int projections = 24; /* of each rank */
constexpr int stop_after = 10;
constexpr size_t rays = 64;
constexpr size_t pixels = 40'000; /* an image is larger than what a push copies */
constexpr size_t window_length = 4;

float ray(int rank, int projection, size_t index)
{
    return static_cast<float>(rank * 1000 + projection) + static_cast<float>(index) / 128.F;
}

/* What stands for a reconstruction: the window's sum, the same in every pixel but for its index. */
float pixel(double sum, size_t index)
{
    return static_cast<float>(sum) + static_cast<float>(index % 7);
}

double window_sum(int rank, int last)
{
    double sum = 0;
    for (int projection = std::max(0, last - static_cast<int>(window_length) + 1);
         projection <= last; projection++)
        for (size_t index = 0; index < rays; index++)
            sum += static_cast<double>(ray(rank, projection, index));
    return sum;
}

class Stream {
private:
    size_t batchsize;
    int rank;
    std::vector<json> vmeta;
    std::vector<std::vector<float>> window;
    std::queue<mofka::Future<mofka::EventID>> futures;
    std::vector<float *> buffer;
    json info;

    mofka::MofkaDriver driver;
    mofka::BatchSize batchSize = mofka::BatchSize{batchsize};
    mofka::ThreadCount threadCount = mofka::ThreadCount{1};
    mofka::Ordering ordering = mofka::Ordering::Strict;
    mofka::Validator validator;
    mofka::Serializer serializer;
    mofka::PartitionSelector selector;

    mofka::DataSelector data_selector = [](const mofka::Metadata &metadata,
                                           const mofka::DataDescriptor &descriptor) {
        if (metadata.json()["Type"] == "FIN")
            return mofka::DataDescriptor::Null();
        return descriptor;
    };
    mofka::DataBroker data_broker = [](const mofka::Metadata &metadata,
                                       const mofka::DataDescriptor &descriptor) {
        (void)metadata;
        return mofka::Data{new float[descriptor.size() / sizeof(float)], descriptor.size()};
    };

    void add(mofka::Event event)
    {
        mofka::Metadata metadata = event.metadata();
        mofka::Data data = event.data();
        CHECK_EQUAL(metadata.string(), metadata.json().dump());
        vmeta.push_back(metadata.json());
        CHECK_EQUAL(data.segments().size(), 1U);
        CHECK_EQUAL(data.segments()[0].size, rays * sizeof(float));
        float *start = static_cast<float *>(data.segments()[0].ptr);
        window.emplace_back(start, start + rays);
        delete[] start;
        if (window.size() > window_length)
            window.erase(window.begin());
    }

public:
    Stream(std::string group_file, size_t batchsize_, int rank_)
        : batchsize{batchsize_}, rank{rank_}, driver{group_file, true}
    {
    }

    void handshake(int size)
    {
        mofka::Producer producer = getProducer("handshake_up", "hs_p");
        json md = {{"comm_size", size}};
        mofka::Metadata metadata{md};
        auto future = producer.push(metadata);
        future.wait();

        std::vector<size_t> targets = {static_cast<size_t>(rank)};
        mofka::TopicHandle topic = driver.openTopic("handshake_down");
        mofka::Consumer consumer = topic.consumer("hs_c", batchSize, threadCount, targets);
        auto event = consumer.pull().wait();
        mofka::Metadata m = event.metadata();
        CHECK_EQUAL(event.data().segments().size(), 0U);
        info = m.json();
    }

    json getInfo() { return info; }

    mofka::Producer getProducer(std::string topic_name, std::string producer_name)
    {
        auto topic = driver.openTopic(topic_name);
        mofka::Producer producer =
            topic.producer(producer_name, batchSize, threadCount, ordering);
        return producer;
    }

    mofka::Consumer getConsumer(std::string topic_name, std::string consumer_name,
                                std::vector<size_t> targets)
    {
        mofka::TopicHandle topic = driver.openTopic(topic_name);
        mofka::Consumer consumer = topic.consumer(consumer_name, threadCount, batchSize,
                                                  data_selector, data_broker, targets);
        return consumer;
    }

    /* The next projection's number, or -1 behind the last. */
    int read(mofka::Consumer consumer)
    {
        auto event = consumer.pull().wait();
        event.acknowledge();
        if (event.metadata().json()["Type"].get<std::string>() == "FIN")
            return -1;
        add(event);
        return vmeta.back()["projection"].get<int>();
    }

    double sum() const
    {
        double sum = 0;
        for (const auto &projection : window)
            for (const float value : projection)
                sum += static_cast<double>(value);
        return sum;
    }

    /* As programs do it: buffers are let go of while nothing is known of the pushes. */
    void publish(json &meta, const std::vector<float> &image, mofka::Producer producer)
    {
        mofka::Metadata metadata{meta};
        float *copy = new float[image.size()];
        std::memcpy(copy, image.data(), image.size() * sizeof(float));
        buffer.push_back(copy);
        mofka::Data data = mofka::Data(buffer[buffer.size() - 1], image.size() * sizeof(float));
        auto f = producer.push(metadata, data);
        futures.push(std::move(f));
        if (buffer.size() == 3)
            letGo();
    }

    void letGo()
    {
        for (float *ptr : buffer) {
            std::memset(ptr, 0xff, sizeof(float));
            delete[] ptr;
        }
        buffer.clear();
        while (!futures.empty())
            futures.pop();
    }
};

/* The topics, as scripts around such programs make them, and what is streamed. */
void create(const std::string &group_file)
{
    mofka::MofkaDriver driver{group_file};
    for (const char *name : {"handshake_up", "handshake_down", "projections", "images"}) {
        CHECK(!driver.topicExists(name));
        driver.createTopic(name);
        CHECK(driver.topicExists(name));
        CHECK_THROWS(driver.createTopic(name), mofka::Exception);
        const auto metadata = driver.addDefaultMetadataProvider(0);
        const auto data = driver.addDefaultDataProvider(0);
        for (int rank = 0; rank < ranks; rank++)
            driver.addDefaultPartition(name, 0, metadata, data);
    }
    auto down = driver.openTopic("handshake_down").producer("dist");
    for (int rank = 0; rank < ranks; rank++)
        down.push(mofka::Metadata{json{{"rays", rays}, {"for", rank}}});
    down.flush();
}

/* Normalised projections, in turn to each rank, by strict round robin. */
void distribute(const std::string &group_file)
{
    mofka::MofkaDriver driver{group_file, true};
    auto topic = driver.openTopic("projections");
    CHECK_EQUAL(topic.partitions().size(), static_cast<size_t>(ranks));
    auto producer = topic.producer("dist", mofka::BatchSize{8}, mofka::ThreadCount{1},
                                   mofka::Ordering::Strict);
    std::vector<std::vector<float>> lent;
    for (int projection = 0; projection < projections; projection++)
        for (int rank = 0; rank < ranks; rank++) {
            lent.emplace_back();
            for (size_t index = 0; index < rays; index++)
                lent.back().push_back(ray(rank, projection, index));
            producer.push(mofka::Metadata{json{{"Type", "DATA"}, {"projection", projection}}},
                          mofka::Data{lent.back().data(), rays * sizeof(float)});
        }
    float one = 1;
    for (int rank = 0; rank < ranks; rank++)
        producer.push(mofka::Metadata{json{{"Type", "FIN"}}},
                      mofka::Data{&one, sizeof(float)});
    producer.flush();
}

void reconstruct(const std::string &group_file, int rank, bool second)
{
    Stream stream(group_file, static_cast<size_t>(1 + 3 * rank), rank);
    stream.handshake(ranks);
    CHECK_EQUAL(stream.getInfo()["for"].get<int>(), rank);
    mofka::Producer producer = stream.getProducer("images", "sirt");
    mofka::Consumer consumer =
        stream.getConsumer("projections", "sirt", {static_cast<size_t>(rank)});
    int expected = second ? stop_after : 0;
    while (true) {
        const int projection = stream.read(consumer);
        if (projection < 0)
            break;
        CHECK_EQUAL(projection, expected);
        const int in_window = second ? std::max(stop_after, projection - 3) : 0;
        if (!second)
            CHECK(std::abs(stream.sum() - window_sum(rank, projection)) < 1e-3);
        std::vector<float> image(pixels);
        for (size_t index = 0; index < pixels; index++)
            image[index] = pixel(stream.sum(), index);
        json meta = {{"Type", "DATA"}, {"rank", rank}, {"projection", projection},
                     {"sum", stream.sum()}, {"from", in_window}};
        try {
            stream.publish(meta, image, producer);
        } catch (const mofka::Exception &ex) {
            std::cerr << ex.what() << std::endl;
            exit(-1);
        }
        expected++;
        if (!second && expected == stop_after)
            break;
    }
    producer.flush();
    stream.letGo();
    CHECK_EQUAL(expected, second ? projections : stop_after);
    if (second) {
        float d = 1;
        auto future =
            producer.push(mofka::Metadata{json{{"Type", "FIN"}}}, mofka::Data{&d, sizeof(float)},
                          static_cast<size_t>(rank));
        future.wait();
        CHECK(future.completed());
    }
}

/* Reads all images that there are by now, and looks at each of their pixels. */
void look(const std::string &group_file, const std::string &name, int images)
{
    Stream stream(group_file, 4, 0);
    mofka::Consumer consumer = stream.getConsumer("images", name, {});
    int seen = 0;
    int ends = 0;
    while (seen < images) {
        auto event = consumer.pull().wait();
        const json meta = event.metadata().json();
        if (meta["Type"] == "FIN") {
            ends++;
            continue;
        }
        auto data = event.data();
        CHECK_EQUAL(data.size(), pixels * sizeof(float));
        const float *found = static_cast<const float *>(data.segments()[0].ptr);
        for (size_t index = 0; index < pixels; index++)
            CHECK(found[index] == pixel(meta["sum"].get<double>(), index));
        delete[] found;
        seen++;
    }
    CHECK(ends <= ranks);
    std::cout << name << " saw " << seen << " images of " << pixels << " pixels" << std::endl;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::cerr << "usage: mofka_stream GROUP-FILE create | first | second" << std::endl;
        return 2;
    }
    const std::string group_file = argv[1];
    const std::string phase = argv[2];
    if (phase == "create") {
        create(group_file);
        distribute(group_file);
        return 0;
    }
    const bool second = phase == "second";
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; rank++)
        threads.emplace_back([&, rank] { reconstruct(group_file, rank, second); });
    for (std::thread &thread : threads)
        thread.join();
    look(group_file, "den-" + phase, ranks * (second ? projections : stop_after));
    return 0;
}
