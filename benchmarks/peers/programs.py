"""Cases that are about programs of users: in Python, and an instrument in C++."""

from pathlib import Path

from servers import SERVER_CORE, client, free_port

HERE = Path(__file__).parent


def python_case(size: int, events: int):
    """Dicts pushed from Python, on the clients' core."""

    def make(bench):
        count = bench.count(events)
        thalweg, kafka = bench.thalweg(), bench.kafka()
        program = [bench.options.python, HERE / "events.py"]

        def ours():
            name = thalweg.fresh_name()
            return client([*program, "thalweg", thalweg.group_file, name, count, size])

        def theirs(work):
            def run():
                topic = kafka.fresh_name()
                kafka.create(topic)
                return client([*program, work, kafka.broker, topic, count, size, *kafka.producer])

            return run

        return {
            "Thalweg, push(dict), written": (thalweg, ours),
            "confluent-kafka, json.dumps": (kafka, theirs("kafka-json")),
            "confluent-kafka, orjson.dumps": (kafka, theirs("kafka-orjson")),
        }

    return make


def blocked_case(events: int, interval_us: int):
    """An instrument that produces 25 MB at a time, every so often."""

    def make(bench):
        count, size = max(10, round(events * bench.options.scale)), 25_000_000
        tcp, near = bench.thalweg(), bench.thalweg("shm")
        program = bench.options.build / "bin" / "blocked"

        def ours(server, level):
            words = ["thalweg", server.group_file, count, size, interval_us, level]
            return lambda: client([program, *words])

        def theirs(how):
            def run():
                endpoint = f"tcp://127.0.0.1:{free_port()}"
                words = ["zeromq", endpoint, count, size, interval_us, how, SERVER_CORE]
                return client([program, *words])

            return run

        return {
            "Thalweg tcp, memory": (tcp, ours(tcp, "memory")),
            "Thalweg tcp, written": (tcp, ours(tcp, "written")),
            "Thalweg shm, memory": (near, ours(near, "memory")),
            "ZeroMQ tcp, copied": (None, theirs("copied")),
            "ZeroMQ tcp, memory lent": (None, theirs("lent")),
        }

    return make


# At 20 Hz 25 MB are 500 MB a second.
PROGRAMS = {
    "python-80": ("Pushing dicts of 80 B from Python", python_case(80, 500_000)),
    "python-800": ("Pushing dicts of 800 B from Python", python_case(800, 200_000)),
    "blocked-20hz": (
        "How long 25 MB hold up a program in C++, every 50 ms",
        blocked_case(200, 50_000),
    ),
    "blocked": (
        "How long 25 MB hold up a program in C++, as fast as it goes",
        blocked_case(100, 0),
    ),
}
