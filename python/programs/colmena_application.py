"""An application of Colmena's: colmena_application.py redis PORT | thalweg GROUP_FILE

A thinker steers simulations and an analysis that a task server runs on Parsl's
workers. What came of it goes to standard output, as JSON: the same for all queues.
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

import numpy as np
from colmena.models.methods import PythonGeneratorMethod
from colmena.queue.redis import RedisQueues
from colmena.task_server.parsl import ParslTaskServer
from colmena.thinker import BaseThinker, agent, result_processor
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider

ROUNDS = 3
WIDTH = 4


def simulate(seed, frame):
    """What takes large inputs and gives small values."""
    return seed, float(frame.sum())


def grow(seed):
    """What takes small inputs and gives large values."""
    import numpy

    return numpy.full((200, 1000), seed)


def steps(count):
    """What sends values while it runs."""
    for step in range(count):
        yield step * step
    return "done"


def fail(why):
    raise ValueError(why)


class Thinker(BaseThinker):
    def __init__(self, queues):
        super().__init__(queues)
        self.outcome = []
        self.simulated = []
        self.finished = {topic: Event() for topic in ("simulate", "grow", "stream", "fail")}

    def note(self, result):
        value = result.value
        if isinstance(value, np.ndarray):
            value = hashlib.sha256(value.tobytes()).hexdigest()
        failure = result.failure_info and result.failure_info.exception.split(" Options")[0]
        sizes = sorted(result.message_sizes.items())
        noted = (result.topic, result.method, result.success, result.complete, value, failure)
        self.outcome.append((*noted, result.retries, sizes, len(result.args)))

    @agent(startup=True)
    def plan(self):
        for seed in range(WIDTH):
            self.queues.send_inputs(seed, np.full(100_000, seed), method="simulate", topic="simulate")
        for seed in range(WIDTH):
            self.queues.send_inputs(seed, method="grow", topic="grow", keep_inputs=False)
        self.queues.send_inputs(5, method="steps", topic="stream")
        self.queues.send_inputs("no", method="fail", topic="fail", max_retries=1)
        self.queues.send_inputs(method="unknown", topic="fail")

    @result_processor(topic="simulate")
    def steer(self, result):
        self.note(result)
        seed, total = result.value
        # Whoever comes first: each seed takes its own steps.
        self.simulated.append(seed)
        if self.simulated.count(seed) < ROUNDS:
            frame = np.full(100_000, total / 100_000 + 1)
            self.queues.send_inputs(seed, frame, method="simulate", topic="simulate")
        if len(self.simulated) == ROUNDS * WIDTH:
            self.finished["simulate"].set()

    @agent
    def gather_grown(self):
        for _ in range(WIDTH):
            self.note(self.queues.get_result("grow"))
        self.finished["grow"].set()

    @agent
    def gather_stream(self):
        result = None
        while result is None or not result.complete:
            result = self.queues.get_result("stream")
            self.note(result)
        self.finished["stream"].set()

    @agent
    def gather_failures(self):
        for _ in range(2):
            self.note(self.queues.get_result("fail"))
        self.finished["fail"].set()

    @agent
    def end(self):
        for finished in self.finished.values():
            finished.wait()
        self.done.set()


def main(backend, place):
    topics = ["simulate", "grow", "stream", "fail"]
    if backend == "redis":
        queues = RedisQueues(topics, port=int(place))
    else:
        from thalweg.integrations.colmena import ThalwegQueues

        queues = ThalwegQueues(topics, place)
    with TemporaryDirectory() as directory:
        workers = HighThroughputExecutor(
            label="workers",
            address="127.0.0.1",
            max_workers_per_node=2,
            cpu_affinity="none",
            provider=LocalProvider(init_blocks=1, max_blocks=1),
        )
        config = Config(executors=[workers], run_dir=str(Path(directory) / "runs"))
        streams = PythonGeneratorMethod(steps, streaming_queue=queues, store_return_value=True)
        server = ParslTaskServer([simulate, grow, fail, streams], queues, config)
        server.start()
        thinker = Thinker(queues)
        thinker.start()
        # Without a task server the thinker would wait for ever.
        while thinker.is_alive():
            thinker.join(1)
            if not server.is_alive():
                sys.stderr.flush()
                os._exit(1)
        queues.send_kill_signal()
        server.join()
    print(json.dumps(sorted(thinker.outcome, key=json.dumps)))


if __name__ == "__main__":
    main(*sys.argv[1:])
