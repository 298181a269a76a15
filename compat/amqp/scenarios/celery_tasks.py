"""Tasks of Celery with its default settings, and what comes of them: one line each, the same on every server.

``celery_tasks.py URL`` starts a worker of this module, sends tasks and prints.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from celery import Celery, chain, group
from celery.exceptions import TaskRevokedError

URL = os.environ.get("AMQP_URL", "")
app = Celery("celery_tasks", broker=URL, backend="rpc://")


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task
def size(text: str) -> int:
    return len(text)


@app.task
def fails() -> None:
    raise ValueError("it does")


@app.task(bind=True, max_retries=3, default_retry_delay=0.1)
def works_at_the_third(self: object) -> int:
    retries: int = self.request.retries  # type: ignore[attr-defined]
    if retries < 2:
        raise self.retry()  # type: ignore[attr-defined]
    return retries


@app.task(bind=True, acks_late=True, reject_on_worker_lost=True)
def dies_once(self: object, mark: str) -> bool:
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return bool(self.request.delivery_info["redelivered"])  # type: ignore[attr-defined]
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def outcomes(directory: Path) -> None:
    def say(name: str, what: object) -> None:
        print(f"{name}: {what}", flush=True)

    ping = None
    while not ping:
        ping = app.control.inspect(timeout=2).ping()
    say("a worker answers", *[one["ok"] for one in ping.values()])
    queues = app.control.inspect(timeout=5).active_queues()
    say("a worker says its queues", *[one["name"] for one in next(iter(queues.values()))])
    results = group(add.s(number, number) for number in range(300)).apply_async()
    say("300 tasks have their results", sum(results.get(timeout=120)))
    say("a chain", chain(add.s(1, 2), add.s(3), add.s(4)).apply_async().get(timeout=60))
    say("an argument of 4 MB", size.delay("x" * 4_000_000).get(timeout=60))
    try:
        fails.delay().get(timeout=60)
    except ValueError as error:
        say("an error comes back", error)
    say("a task is tried again", works_at_the_third.delay().get(timeout=60))
    say("a task that is due later", add.apply_async((1, 1), countdown=0.5).get(timeout=60))
    say("a task that expired is not run", expired())
    revoked = add.apply_async((1, 1), countdown=5)
    revoked.revoke()
    try:
        say("a task that is revoked", revoked.get(timeout=60))
    except TaskRevokedError:
        say("a task that is revoked", "not run")
    mark = str(directory / "mark")
    say("a task whose process dies comes again", dies_once.delay(mark).get(timeout=120))
    seen = set()

    def event(one: dict[str, str]) -> None:
        seen.add(one["type"])
        if "worker-heartbeat" in seen:
            receiver.should_stop = True

    with app.connection() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": event})
        receiver.capture(limit=None, timeout=60, wakeup=True)
    say("a worker tells of itself", "worker-heartbeat" in seen)


def expired() -> str:
    try:
        return str(add.apply_async((1, 1), countdown=0.5, expires=0.1).get(timeout=60))
    except TaskRevokedError:
        return "expired"


def main() -> None:
    environment = os.environ | {"AMQP_URL": sys.argv[1], "PYTHONPATH": str(Path(__file__).parent)}
    if os.environ.get("AMQP_URL") != sys.argv[1]:
        # The tasks know their broker when this module is imported.
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--concurrency", "2", "-l", "info"]
        with (directory / "worker.log").open("wb") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=directory)
        try:
            outcomes(directory)
        except BaseException:
            sys.stderr.write((directory / "worker.log").read_text())
            raise
        finally:
            worker.terminate()
            print(f"the worker ends: {worker.wait(60)}", flush=True)


if __name__ == "__main__":
    main()
