"""Ctrl-C works in every wait.

The signal is sent by a second thread that gets the GIL only when the main
thread lets go of it: in the wait.
"""

from __future__ import annotations

from typing import Any

import pytest

PRELUDE = """
import os, signal, socket, sys, threading
import numpy, thalweg

# Whoever runs the tests in the background has it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
group_file, server = sys.argv[1], int(sys.argv[2])
begun = threading.Event()

def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)

def wait_in(call, *arguments, **options):
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    sys.setswitchinterval(1000)
    begun.set()
    try:
        call(*arguments, **options)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        os._exit(0)

def pause():
    os.kill(server, signal.SIGSTOP)
    while open(f"/proc/{server}/stat").read().rpartition(")")[2].split()[0] != "T":
        pass

def topic():
    global driver
    driver = thalweg.Driver(group_file, connect_timeout=60)
    return driver.create_topic("t", storage="memory", exist_ok=True)
"""

WAITS = {
    "connect": """
with socket.create_server(("127.0.0.1", 0)) as silent:
    address = "tcp://127.0.0.1:%d" % silent.getsockname()[1]
    wait_in(thalweg.Driver, address=address, token=bytes(32), connect_timeout=90)
""",
    "group_file": "wait_in(thalweg.Driver, group_file + '.absent', connect_timeout=90)",
    "call": "topic(); pause(); wait_in(driver.list_topics)",
    "open_producer": "t = topic(); pause(); wait_in(t.producer)",
    "open_consumer": "t = topic(); pause(); wait_in(t.consumer, 'c')",
    "pull": "c = topic().consumer('c', start='latest'); wait_in(c.pull)",
    "pull_batch": "c = topic().consumer('c', start='latest'); wait_in(c.pull_batch, 5)",
    "iterate": "c = topic().consumer('c', start='latest'); wait_in(next, c)",
    "result": "p = topic().producer(); pause(); wait_in(p.push({}).result)",
    "flush": "p = topic().producer(); pause(); p.push({}); wait_in(p.flush)",
    "close_producer": "p = topic().producer(); pause(); p.push({}); wait_in(p.close)",
    "close_driver": "p = topic().producer(); pause(); p.push({}); wait_in(driver.close)",
    "push": """
p = topic().producer(budget_bytes=1 << 20)
frame = numpy.zeros(1 << 20, 'u1')
pause()
p.push({}, frame)
wait_in(p.push, {}, frame)
""",
    "push_many": """
p = topic().producer(budget_bytes=1 << 20)
pause()
wait_in(p.push_many, data=numpy.zeros((3, 1 << 20), 'u1'))
""",
    "acknowledge": """
t = topic()
t.producer().push({}).result()
c = t.consumer('acks', start='beginning')
event = c.pull()
pause()
event.acknowledge()
wait_in(c.flush)
""",
}


@pytest.mark.parametrize("wait", WAITS)
def test_ctrl_c_ends_the_wait(server: Any, run_script: Any, wait: str) -> None:
    done = run_script(PRELUDE + WAITS[wait], server.group_file, server.pid)
    assert done.stdout == "interrupted\n", done.stderr


def test_ctrl_c_while_the_serializer_is_imported_raises(server: Any, run_script: Any) -> None:
    """Connecting imports orjson, which crashes if what it imports itself is interrupted."""
    pytest.importorskip("orjson")
    done = run_script(
        """
import os, signal, sys
import thalweg

signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    orjson_begun = False

    def find_spec(self, name, path=None, target=None):
        if name.startswith("orjson"):
            self.orjson_begun = True
        elif self.orjson_begun:
            self.orjson_begun = False
            os.kill(os.getpid(), signal.SIGINT)

assert "orjson" not in sys.modules, "imported with the package: how it is interrupted has to change"
sys.meta_path.insert(0, Interrupting())
try:
    thalweg.Driver(sys.argv[1], connect_timeout=60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
print(driver.create_topic("after", storage="memory").name)
""",
        server.group_file,
    )
    assert (done.stdout, done.returncode) == ("interrupted\nafter\n", 0), done.stderr


def test_ctrl_c_ends_the_closing_of_a_queues_consumer(server: Any, name: str, run_script: Any) -> None:
    """Whatever the session timeout is, up to which the consumer would wait for the server."""
    with server.connect() as driver:
        driver.create_topic(name, storage="memory")
    done = run_script(
        """
import os, signal, sys, threading
import thalweg

signal.signal(signal.SIGINT, signal.default_int_handler)
driver = thalweg.Driver(sys.argv[1], connect_timeout=60)
worker = driver.open_topic(sys.argv[2]).queue("workers", session_timeout=10_000)
os.kill(int(sys.argv[3]), signal.SIGSTOP)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    worker.close(None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os.kill(int(sys.argv[3]), signal.SIGCONT)
os._exit(0)
""",
        server.group_file,
        name,
        server.pid,
    )
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr
