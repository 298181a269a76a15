"""One use of Flowcept, the same for every message queue of its.

    scenario.py capture WORKERS     a workflow here and one in each worker process
    scenario.py again               a second workflow, later
    scenario.py replay              reads all messages of the runs before

Each prints one line of JSON with what came of it. Where the message queue, the
keys and the database are, is in Flowcept's settings, `FLOWCEPT_SETTINGS_PATH`.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from typing import Any

BUNDLE = "the-bundle"
TASKS = 25


def work(worker: int) -> None:
    """What a worker does: a workflow of its own, whose messages others persist."""
    from flowcept import Flowcept, FlowceptTask

    with Flowcept(workflow_name=f"worker {worker}", bundle_exec_id=BUNDLE, start_persistence=False):
        for i in range(TASKS):
            with FlowceptTask(activity_id="simulate", used={"worker": worker, "i": i}) as task:
                task.end(generated={"result": worker * 1000 + i, "nested": {"list": [i, None, 0.5]}})


def capture(workers: int) -> dict[str, Any]:
    """Captures tasks here and in processes, and persists the messages of all."""
    from flowcept import Flowcept, flowcept_task

    @flowcept_task
    def square(x: int) -> dict[str, Any]:
        return {"y": x * x}

    @flowcept_task
    def fails(x: int) -> None:
        raise ValueError(f"not {x}")

    with Flowcept(workflow_name="main", bundle_exec_id=BUNDLE) as flow:
        workflow = flow.current_workflow_id
        context = multiprocessing.get_context("spawn")
        processes = [context.Process(target=work, args=(worker,)) for worker in range(workers)]
        for process in processes:
            process.start()
        for x in range(TASKS):
            square(x)
        try:
            fails(7)
        except ValueError:
            pass
        for process in processes:
            process.join()
    found = outcome()
    found["exit codes"] = [process.exitcode for process in processes]
    found["of this workflow"] = len(Flowcept.db.query(filter={"workflow_id": workflow}))
    return found


def again() -> dict[str, Any]:
    """A run like any other, on the same message queue."""
    from flowcept import Flowcept, flowcept_task

    @flowcept_task
    def later(x: int) -> dict[str, Any]:
        return {"y": x}

    with Flowcept(workflow_name="again", bundle_exec_id="another-bundle"):
        for x in range(3):
            later(x)
    return outcome()


def outcome() -> dict[str, Any]:
    """All that the database holds, without what differs from run to run."""
    from flowcept import Flowcept

    tasks = sorted(
        json.dumps([task["activity_id"], task.get("used"), task.get("generated"), task.get("status")], sort_keys=True)
        for task in Flowcept.db.query(filter={})
    )
    workflows = sorted(str(workflow.get("name")) for workflow in Flowcept.db.query(filter={}, collection="workflows"))
    return {"tasks": tasks, "workflows": workflows}


def replay() -> dict[str, Any]:
    """What a consumer gets that starts when all is over."""
    from flowcept.flowceptor.consumers.base_consumer import BaseConsumer

    class Replay(BaseConsumer):
        def __init__(self) -> None:
            super().__init__()
            self.messages: list[dict[str, Any]] = []

        def message_handler(self, msg_obj: dict[str, Any]) -> bool:
            self.messages.append(msg_obj)
            return msg_obj.get("info") != "stop_document_inserter"

    consumer = Replay()
    consumer.start(threaded=False)
    messages = consumer.messages
    control = [message["info"] for message in messages if message.get("type") == "flowcept_control"]
    return {
        "tasks": len({message["task_id"] for message in messages if message.get("type") == "task"}),
        "control": control,
    }


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    done = {"capture": lambda: capture(int(arguments[0])), "again": again, "replay": replay}[command]()
    print(json.dumps(done))
