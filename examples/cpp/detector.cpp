// Frames of a detector, of which a viewer reads a window.
//
//   detector GROUP_FILE      with the server that wrote the group file
//   detector DIRECTORY       with a server in this process, on that directory
//
// The producer pushes arrays that lie in its own memory. The viewer's selector
// looks at the metadata and asks for a window of every other frame; its
// allocator says where the window goes; only those bytes travel.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <thalweg/thalweg.hpp>

using namespace thalweg;
using namespace std::chrono_literals;

constexpr size_t FRAMES = 20;
constexpr size_t HEIGHT = 256, WIDTH = 384;
// The window: rows from TOP on, columns from LEFT on.
constexpr size_t TOP = 32, LEFT = 64, ROWS = 16, COLUMNS = 128;

static void require(bool holds, const char *what)
{
    if (!holds)
        throw std::runtime_error(what);
}

static uint16_t pixel(size_t frame, size_t row, size_t column)
{
    return static_cast<uint16_t>(frame * 7 + row * WIDTH + column);
}

// Returns the offset of the first frame: 0, or what an earlier run left behind.
static uint64_t produce(const TopicHandle &topic)
{
    // What is lent stands before the producer, whose end may still send it.
    std::vector<std::vector<uint16_t>> frames;
    auto producer = topic.producer(BatchSize::Adaptive(), MaxNumBatches{4}, Ordering::Strict);
    std::vector<Future<EventID>> futures;
    for (size_t frame = 0; frame < FRAMES; frame++) {
        std::vector<uint16_t> pixels(HEIGHT * WIDTH);
        for (size_t row = 0; row < HEIGHT; row++)
            for (size_t column = 0; column < WIDTH; column++)
                pixels[row * WIDTH + column] = pixel(frame, row, column);
        frames.push_back(std::move(pixels));
        const auto metadata = "{\"frame\": " + std::to_string(frame) + ", \"shape\": [256, 384]}";
        // Not copied: `frames` outlives the flush below, unchanged.
        futures.push_back(producer.push(metadata, DataView(frames.back()).borrow()));
    }
    producer.flush().get();
    const uint64_t first = futures[0].get().offset;
    for (size_t frame = 0; frame < FRAMES; frame++)
        require(futures[frame].get().offset == first + frame, "frames are in their order");

    // What is handed over needs no waiting. The topic's schema is checked here.
    producer.push("{\"frame\": 1000}", DataView::Owning(std::vector<uint16_t>(HEIGHT * WIDTH)));
    try {
        producer.push("{\"frame\": \"twelve\"}");
        require(false, "the schema was not checked");
    } catch (const InvalidArgument &refusal) {
        std::cout << "refused: " << refusal.what() << "\n";
    }
    return first;
}

static size_t number(const Metadata &metadata)
{
    // A JSON library would do: metadata.json<nlohmann::json>()["frame"].
    return std::stoul(metadata.string().substr(std::string("{\"frame\": ").size()));
}

static void view(const TopicHandle &topic, uint64_t first)
{
    size_t allocated = 0;
    const DataSelector select = [](const Metadata &metadata, const DataDescriptor &all) {
        if (number(metadata) % 2 == 1)
            return DataDescriptor::Null();
        constexpr size_t size = sizeof(uint16_t);
        // Some rows, and a block of columns within these rows.
        return all.makeSubView(TOP * WIDTH * size, ROWS * WIDTH * size)
            .makeStridedView(LEFT * size, ROWS, COLUMNS * size, (WIDTH - COLUMNS) * size);
    };
    const DataAllocator allocate = [&](const Metadata &, const DataDescriptor &wanted) {
        allocated++;
        return DataView::Owning(std::vector<uint16_t>(wanted.size() / sizeof(uint16_t)));
    };
    auto viewer = topic.consumer("viewer", Start::At(first), select, allocate);
    for (size_t frame = 0; frame < FRAMES; frame++) {
        const Event event = viewer.pull().get();
        require(number(event.metadata()) == frame, "frames come in their order");
        require(event.dataSize() == HEIGHT * WIDTH * sizeof(uint16_t), "the whole has its length");
        const DataView data = event.data();
        if (frame % 2 == 1) {
            require(data.empty(), "nothing of odd frames was asked for");
            continue;
        }
        require(data.size() == ROWS * COLUMNS * sizeof(uint16_t), "the window has its size");
        const uint16_t *window = data.as<uint16_t>();
        for (size_t row = 0; row < ROWS; row++)
            for (size_t column = 0; column < COLUMNS; column++)
                require(window[row * COLUMNS + column] == pixel(frame, TOP + row, LEFT + column),
                        "the window has its pixels");
        event.acknowledge();
    }
    viewer.flush();
    std::cout << allocated << " windows of " << FRAMES << " frames\n";
}

// What a callback throws is thrown by the pull; nothing is lost by it.
static void stumble(const TopicHandle &topic, uint64_t first)
{
    bool stumbled = false;
    auto consumer = topic.consumer(
        "stumbler", Targets{{0}}, Start::At(first),
        [&](const Metadata &, const DataDescriptor &all) {
            if (!std::exchange(stumbled, true))
                throw std::logic_error("a selector that stumbles once");
            return all.makeUnstructuredView({{2, 2}, {0, 2}});
        });
    try {
        consumer.pull(10s);
        require(false, "the exception was lost");
    } catch (const std::logic_error &) {
    }
    const auto event = consumer.pull(10s);
    require(event && event->id().offset == first, "the event comes again");
    const DataView data = event->data();
    require(data.as<uint16_t>()[0] == pixel(0, 0, 1) && data.as<uint16_t>()[1] == pixel(0, 0, 0),
            "parts come in the order asked for");
}

int main(int argc, char **argv)
try {
    if (argc != 2) {
        std::cerr << "usage: " << argv[0] << " GROUP_FILE | DIRECTORY\n";
        return 2;
    }
    auto driver = std::filesystem::is_directory(argv[1]) ? Driver::embedded(argv[1])
                                                         : Driver(argv[1]);
    auto topic = driver.createTopic("detector-frames", ExistOk(), Partitions{1}, Storage::Disk(),
                                    Durability::Written, PartitionSelector::RoundRobin(),
                                    Serializer::Json(), Validator::Schema(R"({
                                        "type": "object",
                                        "required": ["frame"],
                                        "properties": {"frame": {"type": "integer"}}
                                    })"));
    const uint64_t first = produce(topic);
    view(topic, first);
    stumble(topic, first);
    driver.close();
    return 0;
} catch (const Error &error) {
    std::cerr << error.name() << ": " << error.what() << "\n";
    return 1;
} catch (const std::exception &error) {
    std::cerr << error.what() << "\n";
    return 1;
}
