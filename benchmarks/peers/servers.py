"""The servers that are measured beside each other: started here, on loopback
and on one core, and ended here, each by its own process id."""

import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

SERVER_CORE, CLIENT_CORE = 0, 1


def on_core(core: int, command: list) -> list[str]:
    return ["taskset", "-c", str(core), *map(str, command)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(ready, what: str, process: subprocess.Popen, seconds: float = 60.0) -> None:
    """Waits for a server that was just started, and not for one that ended."""
    end = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with status {process.returncode}")
        if time.monotonic() > end:
            raise RuntimeError(f"{what} is not ready after {seconds:.0f} s")
        time.sleep(0.05)


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return True
    except OSError:
        return False


def cpu_seconds(pid: int) -> float:
    """Time of all threads of a process on a core."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except OSError:
            pass  # It ended meanwhile.
    return total * 1e-9


def client(command: list) -> dict:
    """Runs a load program on the clients' core; returns the line that it prints."""
    done = subprocess.run(
        on_core(CLIENT_CORE, command), stdout=subprocess.PIPE, text=True, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def bytes_below(directory: Path) -> int:
    """What the files of a server that runs take; what it removes meanwhile counts as nothing."""
    total = 0
    for folder, _, files in os.walk(directory):
        for name in files:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


class Server:
    """One server with a directory of its own, which goes with it."""

    name = "server"
    # What a server keeps for itself, and space that it makes ahead.
    rest_bytes = 512 << 20

    def __init__(self, directory: Path):
        self.directory = directory
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.process: subprocess.Popen | None = None
        self.rounds = 0

    def spawn(self, command: list, **options) -> subprocess.Popen:
        with open(self.directory / "output.txt", "wb") as output:
            self.process = subprocess.Popen(
                on_core(SERVER_CORE, command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                **options,
            )
        return self.process

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def remove_topics(self) -> None:
        """Removes what a round has left behind, where that is on disk."""

    def clean(self) -> None:
        """Between two rounds: within one, nobody pays for another's removal."""
        self.remove_topics()
        end = time.monotonic() + 90
        while bytes_below(self.directory) > self.rest_bytes:
            if time.monotonic() > end:
                raise RuntimeError(f"{self.name} still holds what was deleted")
            time.sleep(0.1)

    def fresh_name(self) -> str:
        self.rounds += 1
        return f"measured-{self.rounds}"


class Thalweg(Server):
    name = "Thalweg"

    def __init__(
        self, directory: Path, program: Path, transport: str = "tcp", spin_us: int | None = None
    ):
        """`spin_us` is what is set for the server, or nothing."""
        super().__init__(directory)
        self.program, self.transport, self.spin_us = program, transport, spin_us
        self.group_file = directory / "thalweg.json"

    def start(self) -> None:
        # Shared memory is offered beside the unix socket.
        tcp, unix = "tcp://127.0.0.1:0", f"unix://{self.directory / 'socket'}"
        listen = tcp if self.transport == "tcp" else unix
        data = self.directory / "data"
        spin = [] if self.spin_us is None else ["--spin-us", str(self.spin_us)]
        process = self.spawn(
            [self.program, "serve", data, "--group-file", self.group_file, "--listen", listen, *spin]
        )
        wait_until(self.group_file.exists, "thalweg serve", process)
        group = json.loads(self.group_file.read_text())
        # Clients take the one way that is left to them.
        group["endpoints"] = [
            address for address in group["endpoints"] if address.startswith(self.transport)
        ]
        self.group_file.write_text(json.dumps(group))

    def remove_topics(self) -> None:
        common = ["--group-file", str(self.group_file), "--json"]
        topic = [str(self.program), "topic"]
        told = subprocess.run([*topic, "delete", "--help"], check=True, capture_output=True)
        # An older build, measured beside a newer one, does not ask.
        sure = ["--yes"] if b"--yes" in told.stdout else []
        listed = subprocess.run([*topic, "list", *common], check=True, capture_output=True)
        for line in listed.stdout.splitlines():
            name = json.loads(line)["name"]
            subprocess.run([*topic, "delete", *sure, name, *common], check=True, capture_output=True)

    def bench(self, work: str, limits: bool = False, **settings) -> dict:
        """One counted repetition of `thalweg bench`, whose topics stay where they
        lie on disk: removing them would disturb whoever comes next. (The benchmark
        places its processes itself.)"""
        words = []
        for key, value in settings.items():
            words.append(f"--{key.replace('_', '-')}")
            words += [] if value is True else [str(value)]
        if settings.get("storage") != "memory":
            words.append("--leave-topics")
        command = [self.program, "bench", work, *words, "--group-file", self.group_file]
        command += ["--repetitions", "1", "--count-first", "--json"]
        command += [] if limits else ["--no-limits"]
        done = subprocess.run(
            list(map(str, command)), check=True, capture_output=True, text=True, timeout=600
        )
        line = json.loads(done.stdout)
        result = {"events_per_s": line["events_per_s"]["median"]}
        result["mb_per_s"] = line["bytes_per_s"]["median"] / 1e6
        for name, spread in line["shares"].items():
            result[f"share_of_{name.removesuffix('_bytes_per_s')}"] = spread["median"]
        for name, spread in (line["delay_ns"] or {}).items():
            result[f"{name}_us"] = spread["median"] / 1000
        return result


class Kafka(Server):
    name = "Kafka"
    producer = [
        "acks=1",
        "linger.ms=5",
        "batch.size=1000000",
        "batch.num.messages=100000",
        "queue.buffering.max.messages=2000000",
        "queue.buffering.max.kbytes=1048576",
        "message.max.bytes=26214400",
        "socket.send.buffer.bytes=1048576",
        "compression.codec=none",
    ]
    consumer = [
        "fetch.message.max.bytes=8388608",
        "fetch.max.bytes=52428800",
        "receive.message.max.bytes=104857600",
        "queued.min.messages=1000000",
        "queued.max.messages.kbytes=262144",
        "fetch.wait.max.ms=10",
        "socket.receive.buffer.bytes=1048576",
    ]
    quick = ["acks=1", "linger.ms=0", "socket.nagle.disable=true"]

    def __init__(self, directory: Path, jars: Path, settings: Path, program: Path):
        super().__init__(directory)
        self.jars, self.settings, self.program = jars, settings, program
        self.topics: list[str] = []

    def start(self) -> None:
        port, controller = free_port(), free_port()
        self.broker = f"127.0.0.1:{port}"
        text = self.settings.read_text()
        for mark, value in [
            ("@DATA@", str(self.directory / "data")),
            ("@PORT@", str(port)),
            ("@CONTROLLER@", str(controller)),
        ]:
            text = text.replace(mark, value)
        settings = self.directory / "server.properties"
        settings.write_text(text)
        java = ["java", "-cp", f"{self.jars}/*"]
        tool = [*java, "kafka.tools.StorageTool"]
        made = subprocess.run([*tool, "random-uuid"], check=True, capture_output=True, text=True)
        subprocess.run(
            [*tool, "format", "-t", made.stdout.split()[-1], "-c", str(settings)],
            check=True,
            capture_output=True,
        )
        # Heap and collector of Kafka's own start script.
        heap = ["-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        heap += ["-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"]
        process = self.spawn([*java[:1], *heap, *java[1:], "kafka.Kafka", settings])
        wait_until(lambda: answers(port), "Kafka", process)

    def admin(self, what: str, topic: str) -> None:
        command = [str(self.program), what, self.broker, topic]
        subprocess.run(command, check=True, timeout=60)

    def create(self, topic: str) -> None:
        """Makes a topic that the end of the round removes."""
        self.admin("create", topic)
        self.topics.append(topic)

    def keep(self) -> None:
        """What was made so far stays, for every round to read."""
        self.topics.clear()
        self.rest_bytes += bytes_below(self.directory)

    def remove_topics(self) -> None:
        for topic in self.topics:
            self.admin("delete", topic)
        self.topics.clear()

    def run(self, work: str, topic: str, events: int, size: int, settings: list[str]) -> dict:
        return client([self.program, work, self.broker, topic, events, size, *settings])


class Rabbit(Server):
    name = "RabbitMQ"
    scripts = Path("/usr/lib/rabbitmq/bin")

    def __init__(self, directory: Path, program: Path):
        super().__init__(directory)
        self.program = program
        self.mapper: subprocess.Popen | None = None

    def start(self) -> None:
        """The node, and beside it Erlang's port mapper, which would otherwise
        be started as a daemon and left behind."""
        mapper, self.port, distribution = free_port(), free_port(), free_port()
        address = ["-address", "127.0.0.1", "-port", str(mapper)]
        self.mapper = subprocess.Popen(on_core(SERVER_CORE, ["epmd", *address]))
        wait_until(lambda: answers(mapper), "epmd", self.mapper)
        settings = self.directory / "rabbitmq.conf"
        # As much memory and disk as it likes: it is not to be throttled.
        settings.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "vm_memory_high_watermark.absolute = 8GB\n"
            "disk_free_limit.absolute = 1GB\n"
            "max_message_size = 134217728\n"
        )
        plugins = self.directory / "enabled_plugins"
        plugins.write_text("[].\n")
        environment = {
            **os.environ,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # Its script becomes the node then, in place of waiting for it.
            "RUNNING_UNDER_SYSTEMD": "true",
            "HOME": str(self.directory),
        }
        environment.pop("NOTIFY_SOCKET", None)
        process = self.spawn([self.scripts / "rabbitmq-server"], env=environment)
        wait_until(lambda: answers(self.port), "RabbitMQ", process, 120)

    def __exit__(self, *what):
        super().__exit__(*what)
        if self.mapper is not None:
            self.mapper.terminate()
            self.mapper.wait()

    def run(self, work: str, queue: str, *counts: int) -> dict:
        return client([self.program, work, self.port, queue, *counts])

    def delete(self, queue: str) -> None:
        command = [str(self.program), "delete", str(self.port), queue]
        subprocess.run(command, check=True, timeout=120)


class Redis(Server):
    name = "Redis"

    def __init__(self, directory: Path, program: Path):
        super().__init__(directory)
        self.program = program

    def start(self) -> None:
        self.port = free_port()
        self.socket = self.directory / "socket"
        process = self.spawn(
            ["redis-server", "--bind", "127.0.0.1", "--port", self.port]
            + ["--unixsocket", self.socket, "--dir", self.directory, "--daemonize", "no"]
            + ["--save", "", "--appendonly", "no"],
        )
        wait_until(lambda: answers(self.port), "redis-server", process)

    def run(self, work: str, key: str, *counts: int, unix: bool = False) -> dict:
        return client([self.program, work, self.socket if unix else self.port, key, *counts])

    def delete(self, key: str) -> None:
        command = [str(self.program), "delete", str(self.port), key]
        subprocess.run(command, check=True, timeout=60)
