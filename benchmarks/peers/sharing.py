"""Cases in which consumers share: queues, requests and their replies, broadcasts."""

CLIENTS = (1, 4, 16, 64)
KIB = 1024


def queue_case(bench):
    """A history of events, each acknowledged by itself."""
    count, size = bench.count(1_000_000), 1000
    few = max(100, count // 10)
    thalweg, near, redis, rabbit = bench.thalweg(), bench.thalweg("shm"), bench.redis(), bench.rabbit()
    redis.run("stream-produce", "s", count, size, 1000)

    def ours(server, prefetch):
        given = {"metadata_bytes": size, "events": count, "prefetch": prefetch}
        return lambda: server.bench("queue", **given, durability="written")

    def group(work):
        return lambda: redis.run(work, "s", count, size, 1000)

    def queue(prefetch):
        def run():
            rabbit.run("produce", "q", few, size)
            result = rabbit.run("consume", "q", few, size, prefetch)
            rabbit.delete("q")
            return result

        return run

    return {
        "Thalweg tcp, written, prefetch 256": (thalweg, ours(thalweg, 256)),
        # What Redis has under way: two reads of 1,000.
        "Thalweg tcp, written, prefetch 2,000": (thalweg, ours(thalweg, 2000)),
        "Thalweg tcp, written, prefetch 4,096": (thalweg, ours(thalweg, 4096)),
        "Thalweg shm, written, prefetch 256": (near, ours(near, 256)),
        "Thalweg shm, written, prefetch 4,096": (near, ours(near, 4096)),
        "Redis streams, XACK of 1,000 entries": (redis, group("group-consume")),
        "Redis streams, one XACK an entry": (redis, group("group-consume-singly")),
        "RabbitMQ, prefetch 256": (rabbit, queue(256)),
        "RabbitMQ, prefetch 4,096": (rabbit, queue(4096)),
    }


def shared_by_rabbit(rabbit, count: int, size: int, clients: int):
    def run():
        result = rabbit.run("share", "q", count, size, 256, clients)
        rabbit.delete("q")
        return result

    return run


def share_case(size: int, events: int):
    """As many producers as consumers, all at once; enough events that the memory
    into which each of 64 clients reads for the first time is not what is measured."""

    def make(bench):
        count = max(CLIENTS[-1], bench.count(events))
        thalweg, near, rabbit = bench.thalweg(), bench.thalweg("shm"), bench.rabbit()

        def ours(server, clients, **more):
            given = {"metadata_bytes": 16, "data_bytes": size, "events": count, "clients": clients}
            return lambda: server.bench("queue", **given, **more, live=True, durability="written")

        contenders = {}
        for clients in CLIENTS:
            contenders[f"Thalweg tcp, written, {clients} and {clients}"] = (
                thalweg,
                ours(thalweg, clients),
            )
            contenders[f"Thalweg shm, written, {clients} and {clients}"] = (
                near,
                ours(near, clients),
            )
            # As RabbitMQ does: what is settled goes.
            for name, server in (("tcp", thalweg), ("shm", near)):
                contenders[f"Thalweg {name}, written, unsettled kept, {clients} and {clients}"] = (
                    server,
                    ours(server, clients, keep_unsettled=True),
                )
            contenders[f"RabbitMQ, {clients} and {clients}"] = (rabbit, shared_by_rabbit(rabbit, count, size, clients))
        return contenders

    return make


def steady_case(size: int, events: int):
    """The same of a topic whose producers wait for the members: its files are written again
    and again, and what a machine takes to find fresh memory is not what is measured."""

    def make(bench):
        count = max(CLIENTS[-1], bench.count(events))
        thalweg, near, rabbit = bench.thalweg(), bench.thalweg("shm"), bench.rabbit()

        def ours(server, clients):
            given = {"metadata_bytes": 16, "data_bytes": size, "events": count, "clients": clients}
            given |= {"warmup": max(clients, count // 4), "backlog_bytes": 128 * KIB * KIB}
            return lambda: server.bench("queue", **given, live=True, durability="written")

        contenders = {}
        for clients in CLIENTS:
            for name, server in (("tcp", thalweg), ("shm", near)):
                contenders[f"Thalweg {name}, written, {clients} and {clients}"] = (
                    server,
                    ours(server, clients),
                )
            contenders[f"RabbitMQ, {clients} and {clients}"] = (rabbit, shared_by_rabbit(rabbit, count, size, clients))
        return contenders

    return make


def request_case(bench):
    """Requests of 128 B to one worker, and replies of as many."""
    count, size = bench.count(10_000), 128
    tcp, unix, near = bench.thalweg(), bench.thalweg("unix"), bench.thalweg("shm")
    sleeping = bench.thalweg(spin_us=0)
    redis, rabbit = bench.redis(), bench.rabbit()

    def ours(server, in_flight, storage="disk", level="written"):
        given = {"metadata_bytes": size, "events": count, "warmup": count // 10, "in_flight": in_flight}
        return lambda: server.bench("request", **given, storage=storage, durability=level)

    def lists(work, is_unix):
        def run():
            result = redis.run(work, "r", count, size, unix=is_unix)
            redis.delete("r.requests")
            redis.delete("r.replies")
            return result

        return run

    def queue(in_flight):
        def run():
            result = rabbit.run("request", "q", count, size, in_flight)
            rabbit.delete("q")
            return result

        return run

    return {
        "Thalweg tcp, written": (tcp, ours(tcp, 1)),
        "Thalweg tcp, written, the server does not spin": (sleeping, ours(sleeping, 1)),
        "Thalweg tcp, memory": (tcp, ours(tcp, 1, "memory", "memory")),
        "Thalweg unix, written": (unix, ours(unix, 1)),
        "Thalweg shm, written": (near, ours(near, 1)),
        "Redis lists, tcp": (redis, lists("request-plain", False)),
        "Redis lists, tcp, LPUSH with BRPOP": (redis, lists("request", False)),
        "Redis lists, unix": (redis, lists("request-plain", True)),
        "Redis lists, unix, LPUSH with BRPOP": (redis, lists("request", True)),
        "RabbitMQ": (rabbit, queue(1)),
        "Thalweg tcp, written, 64 in flight": (tcp, ours(tcp, 64)),
        "Thalweg tcp, written, the server does not spin, 64 in flight": (sleeping, ours(sleeping, 64)),
        "Thalweg shm, written, 64 in flight": (near, ours(near, 64)),
        "RabbitMQ, 64 in flight": (rabbit, queue(64)),
    }


def broadcast_case(bench):
    """4 MiB to 32 consumers, whose replies are gathered."""
    count, size = max(4, round(20 * bench.options.scale)), 4 * KIB * KIB
    servers = {name: bench.thalweg(name) for name in ("tcp", "unix", "shm")}

    def ours(server, in_flight):
        given = {"metadata_bytes": 16, "data_bytes": size, "events": count, "clients": 32}
        given |= {"in_flight": in_flight, "storage": "memory", "durability": "memory"}
        return lambda: server.bench("broadcast", limits=True, **given)

    return {
        f"Thalweg {name}, {in_flight} at once": (server, ours(server, in_flight))
        for name, server in servers.items()
        for in_flight in (1, 4)
    }


SHARING = {
    "queue-1k": ("Consuming events of 1,000 B through a queue, one acknowledgement each", queue_case),
    "share-16k": ("Sharing events of 16 KiB among 1 to 64 producers and consumers", share_case(16 * KIB, 64_000)),
    "share-1m": ("Sharing events of 1 MiB among 1 to 64 producers and consumers", share_case(KIB * KIB, 2_048)),
    "steady-16k": ("Sharing events of 16 KiB, 128 MiB unsettled at most", steady_case(16 * KIB, 256_000)),
    "steady-1m": ("Sharing events of 1 MiB, 128 MiB unsettled at most", steady_case(KIB * KIB, 8_192)),
    "request": ("Requests of 128 B and their replies, one at a time and 64", request_case),
    "broadcast": ("Broadcasting 4 MiB to 32 consumers", broadcast_case),
}
