"""Runs the tests of other people's AMQP clients on a server, and programs of ours for RabbitMQ, and compares with the exceptions that are named.

``suites.py --home DIRECTORY [--against thalweg|rabbitmq] [--all] [SUITE ...]``

A test that fails and is no exception, and an exception that passes, make the exit status 1. Each suite's output is kept in the directory.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
SCENARIOS = HERE / "scenarios"
# For a suite, in seconds: what takes longer hangs.
LONG = 2400
# For one test of a suite.
TEST = 120
# For a program of ours, or one load.
PROGRAM = 300

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True, help="where the clients and their sources are")
    parser.add_argument("--against", choices=["thalweg", "rabbitmq"], default="thalweg")
    parser.add_argument("--all", action="store_true", help="also what takes minutes")
    parser.add_argument("suites", nargs="*", choices=[[], *SUITES], help="which; all of them if none is named")
    arguments = parser.parse_args()
    home = arguments.home.resolve()
    start = {"thalweg": thalweg, "rabbitmq": rabbitmq}[arguments.against]
    bad = 0
    by_default = [name for name in SUITES if arguments.all or name not in LONG_ONES]
    for name in arguments.suites or by_default:
        missing = [one for one in NEEDS.get(name, []) if shutil.which(one) is None]
        if missing:
            print(f"{name}: SKIPPED: there is no {missing[0]}")
            continue
        # A server for each, so that none finds what another has left.
        directory = home / "runs" / f"{arguments.against}-{name}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with start(directory) as port:
            outcomes = SUITES[name](home, directory, port, arguments.all)
        exceptions = excepted(name, arguments.all) if arguments.against == "thalweg" else {}
        bad += report(name, outcomes, exceptions, directory)
    return 1 if bad else 0


def excepted(suite: str, everything: bool) -> dict[str, bool]:
    """The tests of a suite that are known to fail: always, or now and then."""
    known = tomllib.loads((HERE / "exceptions.toml").read_text()).get("exception", [])
    known = [one for one in known if one["suite"] == suite and (everything or not one.get("all", False))]
    return {one["test"]: not one.get("sometimes", False) for one in known}


def report(name: str, outcomes: dict[str, str], exceptions: dict[str, bool], directory: Path) -> int:
    """Prints what came of a suite; how many outcomes are not as they should be."""
    failed = {test for test, outcome in outcomes.items() if outcome == FAILED}
    # By name, and what came of it with each of its parameters.
    known: dict[str, list[str]] = {test: [] for test in exceptions}
    for test in outcomes:
        if (base := test.partition("[")[0]) in known:
            known[base].append(test)
    expected = {test for tests in known.values() for test in tests}
    always = {test for base, tests in known.items() if exceptions[base] for test in tests}
    count = {kind: sum(outcome == kind for outcome in outcomes.values()) for kind in (PASSED, FAILED, SKIPPED)}
    print(
        f"{name}: {count[PASSED]} passed, {count[FAILED]} failed, {count[SKIPPED]} skipped; "
        f"{len(failed & expected)} of the failures are exceptions"
    )
    bad = [f"{test} fails: {directory}/output" for test in sorted(failed - expected)]
    bad += [f"{test} is an exception and passes" for test in sorted(always) if outcomes[test] == PASSED]
    bad += [f"{test} is an exception and no test" for test in sorted(known) if not known[test]]
    if count[PASSED] == 0:
        bad.append(f"no test passed: {directory}/output")
    for line in bad:
        print(f"  {line}")
    return len(bad)


# ---- servers


@contextlib.contextmanager
def thalweg(directory: Path) -> Iterator[int]:
    """A server of ours; gives its AMQP port."""
    group_file = directory / "group.json"
    port = free_port()
    command = [os.environ["THALWEG"], "serve", "--directory", directory / "data", "--group-file", group_file]
    with running([*command, "--amqp", f"tcp://127.0.0.1:{port}", "--amqp-guest"], directory, os.environ):
        wait_for(port)
        yield port


@contextlib.contextmanager
def rabbitmq(directory: Path) -> Iterator[int]:
    """Debian's RabbitMQ; gives its port."""
    port, other = free_port(), free_port()
    (directory / "plugins").write_text("[].\n")
    (directory / "cookie").mkdir()
    environment = os.environ | {
        "HOME": str(directory / "cookie"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_NODENAME": f"thalweg-{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(other),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        # Its own name server, which ends with it.
        "ERL_EPMD_PORT": str(free_port()),
    }
    epmd = shutil.which("epmd")
    server = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    if epmd is None or not server.exists():
        sys.exit(
            "amqp: RabbitMQ is not installed here: apt-get install --no-install-recommends rabbitmq-server "
            "(a server of our own is started, the system's is not needed)"
        )
    with (
        running([epmd, "-port", environment["ERL_EPMD_PORT"]], directory, environment, "epmd"),
        running([server], directory, environment),
    ):
        wait_for(port)
        yield port


@contextlib.contextmanager
def running(
    command: list[str | Path], directory: Path, environment: os._Environ[str] | dict[str, str], name: str = "server"
) -> Iterator[None]:
    """A process, which is ended with all that it started."""
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=dict(environment), stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
                break


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def wait_for(port: int) -> None:
    """Until a server says what AMQP it speaks."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as one:
            one.sendall(b"AMQP\x00\x00\x09\x01")
            if one.recv(1):
                return
        time.sleep(0.1)
    sys.exit("the server does not answer")


# ---- suites


def pytest_suite(
    home: Path, directory: Path, port: int, source: str, arguments: list[str], more: dict[str, str] | None = None
) -> dict[str, str]:
    """The tests of a source distribution that pytest runs; outcomes by name."""
    found = directory / "junit.xml"
    command = [home / "venv/bin/python", "-m", "pytest", "-q", f"--junitxml={found}", f"--timeout={TEST}", *arguments]
    environment = os.environ | {"RABBITMQ_HOST": "localhost", "RABBITMQ_5672_TCP": str(port)} | (more or {})
    with (directory / "output").open("wb") as output:
        subprocess.run(command, cwd=home / source, env=environment, stdout=output, stderr=output, timeout=LONG)
    outcomes = {}
    for case in ElementTree.parse(found).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = FAILED if kinds & {"failure", "error"} else SKIPPED if "skipped" in kinds else PASSED
        name = ".".join([*case.get("classname", "").split(".")[-2:], case.get("name", "")])
        # A test that failed and whose end failed too is there twice.
        outcomes[name] = FAILED if outcomes.get(name) == FAILED else outcome
    return outcomes


def py_amqp(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    # Its tests of TLS need certificates that are not in the distribution.
    return pytest_suite(home, directory, port, "amqp", ["t/integration", "-k", "not tls"])


def kombu(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    return pytest_suite(home, directory, port, "kombu", ["t/integration/test_py_amqp.py"])


def aio_pika(home: Path, directory: Path, port: int, everything: bool) -> dict[str, str]:
    # test_amqps wants TLS at port 5671 of the host, whatever the port of its container is; three tests run commands in theirs.
    tests = ["tests", "--ignore=tests/test_amqps.py", "-k", "not stop_app and not kill and not broker_restart"]
    tests = tests if everything else ["tests/test_amqp.py"]
    more = {"PYTHONPATH": str(HERE)}
    return pytest_suite(home, directory, port, "aio_pika", ["-p", "containers", *tests], more)


def amqp091_go(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    """The tests of the Go client, which come with its module."""
    command = ["go", "test", "-count=1", "-tags", "integration", "-json", f"-timeout={LONG}s"]
    environment = go_environment(home) | {"AMQP_URL": url(port)}
    with (directory / "output").open("wb") as output:
        subprocess.run(
            [*command, "github.com/rabbitmq/amqp091-go"],
            cwd=HERE / "go",
            env=environment,
            stdout=output,
            stderr=output,
            timeout=LONG + 60,
        )
    said = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
    outcomes = {}
    for line in (directory / "output").read_text(errors="replace").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if event.get("Test") and event.get("Action") in said:
                outcomes[event["Test"]] = said[event["Action"]]
            elif event.get("Test") and event.get("Action") == "run":
                # One that hangs, or ends the process, has no end.
                outcomes[event["Test"]] = FAILED
    return outcomes


# ---- programs of ours, which say the same on every server


def url(port: int) -> str:
    return f"amqp://guest:guest@127.0.0.1:{port}/%2F"


def go_environment(home: Path) -> dict[str, str]:
    own = {"GOPATH": str(home / "go"), "GOCACHE": str(home / "go-cache"), "GOFLAGS": "-mod=readonly -modcacherw"}
    own["GOTOOLCHAIN"] = "local"
    return dict(os.environ) | own


def program(
    directory: Path, command: list[str | Path], expected: str, cwd: Path = SCENARIOS, environment: dict[str, str] | None = None
) -> dict[str, str]:
    """The lines of a program, each `name: what was seen`, against those of RabbitMQ; outcomes by name."""
    output, errors = directory / "output", directory / "errors"
    # What it has not said by then fails.
    with output.open("wb") as out, errors.open("wb") as err, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(command, cwd=cwd, env=environment, stdout=out, stderr=err, timeout=PROGRAM)

    def lines(path: Path) -> dict[str, str]:
        return dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)

    wanted, seen = lines(SCENARIOS / expected), lines(output)
    differ = [name for name in wanted.keys() | seen.keys() if wanted.get(name) != seen.get(name)]
    with errors.open("a") as err:
        for name in differ:
            err.write(f"{name}: {wanted.get(name)} was expected, {seen.get(name)} was seen\n")
    return {name: FAILED if name in differ else PASSED for name in wanted.keys() | seen.keys()}


def scenarios_python(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    return program(directory, [home / "venv/bin/python", "scenarios.py", url(port)], "outcomes.txt")


def scenarios_go(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    command: list[str | Path] = ["go", "run", ".", url(port)]
    return program(directory, command, "outcomes.txt", SCENARIOS / "go", go_environment(home))


def scenarios_java(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    command: list[str | Path] = [
        "java",
        "-Dlogback.configurationFile=java/logback.xml",
        *("-cp", f"{home}/java/jars/*"),
        *("java/Scenarios.java", url(port)),
    ]
    return program(directory, command, "outcomes.txt")


def celery(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    # In Celery the default virtual host is an empty path.
    at = f"amqp://guest:guest@127.0.0.1:{port}//"
    return program(directory, [home / "venv/bin/python", "celery_tasks.py", at], "celery.txt")


def perf_test(home: Path, directory: Path, port: int, _: bool) -> dict[str, str]:
    """RabbitMQ's own load: each of these ends by itself, with every message that it sent received.

    No two consumers share a queue: PerfTest counts for each, and how many of a queue's messages each gets is nobody's promise.
    """
    outcomes = {}
    for name, arguments in PERF_TESTS.items():
        command = ["java", "-cp", f"{home}/java/jars/*", "com.rabbitmq.perf.PerfTest", "-h", url(port), *arguments.split()]
        outcomes[name] = FAILED
        with (directory / "output").open("ab") as output, contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, stdout=output, stderr=output, timeout=PROGRAM)
            outcomes[name] = FAILED if done.returncode else PASSED
    return outcomes


PERF_TESTS = {
    "confirmed, persistent": "-x 2 -y 1 -u perf -C 2000 -D 4000 -c 64 -q 100 -s 1000 -f persistent",
    "transient, acknowledged by 10": "-x 1 -y 1 -u transient -ad false -C 5000 -D 5000 -A 10 -q 100 -s 100",
    "without acknowledgements": "-x 1 -y 1 -C 5000 -D 5000 -a -s 100",
    "fanout": "-x 1 -y 4 -t fanout -e spread -C 500 -D 500 -s 10000 -c 16",
    "polled": "-x 1 -y 1 -u polled -C 500 -D 500 --polling --polling-interval 1",
    "bodies of 4 MB": "-x 1 -y 1 -u large -C 20 -D 20 -s 4000000 -c 4 -q 2",
    "64 producers": "-x 64 -y 1 -u many -C 50 -D 3200 -c 16 -q 16 -s 1000",
    "64 consumers": "-x 1 -y 64 -t fanout -e many -C 50 -D 50 -c 16 -q 16 -s 1000",
}

SUITES = {
    "py-amqp": py_amqp,
    "kombu": kombu,
    "aio-pika": aio_pika,
    "amqp091-go": amqp091_go,
    "scenarios-python": scenarios_python,
    "scenarios-go": scenarios_go,
    "scenarios-java": scenarios_java,
    "celery": celery,
    "perf-test": perf_test,
}

# Those that are run if they are named, or all are.
LONG_ONES = {"scenarios-java", "perf-test"}
# Commands without which a suite is skipped, which is said.
NEEDS = {"amqp091-go": ["go"], "scenarios-go": ["go"], "scenarios-java": ["java", "mvn"], "perf-test": ["java", "mvn"]}

if __name__ == "__main__":
    sys.exit(main())
