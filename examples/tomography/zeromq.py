"""The same pipeline over ZeroMQ, to compare with: one program, a role each.

It makes the calls that streaming tomography at the Advanced Photon Source
made before it had a log: acquisition publishes pickled pairs of a stamp and a
flatbuffer (PUB and SUB, no high-water mark); distribution answers the requests
of each rank in turn (REP and REQ, one message ahead); ranks publish
flatbuffers (PUB with ZeroMQ's own high-water mark of 1,000). The numbers are
computed by the same functions as in the pipeline over Thalweg.

Where something is lost or a process is killed, nothing is done about it, as in
the original. Two things are added: a publisher waits until its subscribers are
there (XPUB is a PUB that is told of them), and messages say when they were
handed over.
"""

from __future__ import annotations

import argparse
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zmq

from component import Meter, report
from image_message import DARK, PROJECTION, WHITE, Image, ImageMessages, image_of
from scan import read_scan
from sirt import Window, denoised, normalised, rows_of_rank
from viewer import draw, reduced

END = b"end_data"
HEADER = struct.Struct("<QQQQffQIII")
"""Number of the message, type, size, projection, angle, centre, time, rows, columns, rank."""
DATA, FINISHED = 1, 2


class Meeting:
    """Where processes tell each other the addresses that they were given."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def bind(self, socket: zmq.Socket[bytes], name: str) -> None:
        socket.bind("tcp://127.0.0.1:*")
        new = self.directory / f"{name}.new"
        new.write_bytes(socket.getsockopt(zmq.LAST_ENDPOINT))
        new.rename(self.directory / name)

    def connect(self, socket: zmq.Socket[bytes], name: str) -> None:
        while not (self.directory / name).exists():
            time.sleep(0.005)
        socket.connect((self.directory / name).read_text().rstrip("\0"))


def subscribed(socket: zmq.Socket[bytes], count: int = 1) -> None:
    """Waits until so many have subscribed."""
    for _ in range(count):
        socket.recv()


def end(context: zmq.Context[zmq.Socket[bytes]], *sockets: zmq.Socket[bytes]) -> Callable[[], None]:
    """What waits until everything that was sent is on its way."""

    def close() -> None:
        for socket in sockets:
            socket.close()
        context.term()

    return close


def go() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def acquisition(options: argparse.Namespace, meeting: Meeting) -> None:
    scan = read_scan(options.scan, options.projections, options.center)
    context = zmq.Context()
    publisher = context.socket(zmq.XPUB)
    publisher.set_hwm(0)
    meeting.bind(publisher, "acquisition")
    subscribed(publisher)
    messages, meter = ImageMessages(), Meter()
    kinds = {"white": WHITE, "dark": DARK}

    def send(frame: np.ndarray, kind: int, index: int, angle: float) -> None:
        handed_over = time.time_ns()
        message = messages.message(frame[None], kind, index, angle, scan.center, handed_over)
        publisher.send_pyobj(([index, handed_over, len(message)], message), copy=False)

    go()
    for index, (metadata, frame) in enumerate(scan.events()):
        if frame is None:
            continue
        if options.pace:
            time.sleep(options.pace)
        kind = kinds.get(metadata.get("field", ""), PROJECTION)
        number = metadata.get("projection", index)
        meter.push(send, frame, kind, number, metadata.get("angle", 0.0))
    publisher.send_pyobj(([-1, time.time_ns(), len(END)], END), copy=False)
    meter.wait(end(context, publisher))
    report(options, produce=meter)


def distribution(options: argparse.Namespace, meeting: Meeting) -> None:
    context = zmq.Context(io_threads=8)
    workers = [context.socket(zmq.REP) for _ in range(options.ranks)]
    for rank, worker in enumerate(workers):
        meeting.bind(worker, f"distribution-{rank}")
    subscriber = context.socket(zmq.SUB)
    subscriber.set_hwm(0)
    meeting.connect(subscriber, "acquisition")
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    consume, produce = Meter(), Meter()
    fields: dict[int, list[np.ndarray]] = {WHITE: [], DARK: []}
    white = dark = None
    number = 0

    def to_ranks(lines: np.ndarray, image: Image) -> None:
        handed_over = time.time_ns()
        made = []
        for rank in range(options.ranks):
            rows = rows_of_rank(rank, options.ranks, len(lines))
            data = lines[rows.start : rows.stop]
            header = HEADER.pack(
                number, DATA, HEADER.size + data.nbytes, image.number, image.rotation, image.center,
                handed_over, len(rows), data.shape[1], rank,
            )
            made.append(b"".join((header, memoryview(data).cast("B"))))
        for worker, message in zip(workers, made):
            worker.recv()
            worker.send(message)

    go()
    while True:
        begun = time.time_ns()
        (_index, handed_over, _size), message = subscriber.recv_pyobj()
        if message == END:
            break
        image = image_of(message)
        consume.pulled(begun, handed_over)
        frame = image.pixels[0]
        if image.kind in fields:
            fields[image.kind].append(frame)
            continue
        if white is None or dark is None:
            white, dark = np.mean(fields[WHITE], 0), np.mean(fields[DARK], 0)
        produce_each(produce, options.ranks, to_ranks, normalised(frame, white, dark), image)
        number += 1

    def finish() -> None:
        for worker in workers:
            worker.recv()
            worker.send(HEADER.pack(number, FINISHED, HEADER.size, 0, 0, 0, 0, 0, 0, 0))
        for worker in workers:
            worker.recv()
        end(context, subscriber, *workers)()

    produce.wait(finish)
    report(options, consume=consume, produce=produce)


def produce_each(meter: Meter, ranks: int, call: Callable[..., None], *arguments: object) -> None:
    """One call sends an event to every rank: it is counted as so many equal ones."""
    begun = time.time_ns()
    call(*arguments)
    took = (time.time_ns() - begun) // ranks
    meter.calls += [took] * ranks
    meter.held += [took] * ranks


def reconstruction(options: argparse.Namespace, meeting: Meeting) -> None:
    context = zmq.Context()
    server = context.socket(zmq.REQ)
    meeting.connect(server, f"distribution-{options.rank}")
    publisher = context.socket(zmq.XPUB)
    meeting.bind(publisher, f"reconstruction-{options.rank}")
    subscribed(publisher)
    messages, consume, produce = ImageMessages(), Meter(), Meter()
    window = None
    used = published = 0

    def publish(slices: np.ndarray) -> None:
        # A copy into a vector, one into the builder, one into the message.
        publisher.send(messages.message(slices, PROJECTION, used, 0, 0, time.time_ns(), as_view=True))

    go()
    server.send(b"")
    while True:
        begun = time.time_ns()
        message = server.recv()
        fields = HEADER.unpack_from(message)
        server.send(b"")
        over = fields[1] == FINISHED
        if not over:
            angle, center, handed_over, rows, columns = fields[4:9]
            data = np.frombuffer(message, np.float32, offset=HEADER.size).reshape(rows, columns)
            consume.pulled(begun, handed_over)
            if window is None:
                window = Window(columns, center, rows, options.window, options.iterations)
            window.add(angle, data)
            used += 1
        if used > published and (over or used % options.step == 0):
            assert window is not None
            slices = window.reconstruct()
            published = used
            produce.push(publish, slices)
        if over:
            break
    publisher.send(END)
    produce.wait(end(context, server, publisher))
    if options.last is not None and window is not None:
        np.save(options.last, window.slices)
    report(options, consume=consume, produce=produce)


def denoising(options: argparse.Namespace, meeting: Meeting) -> None:
    context = zmq.Context(io_threads=8)
    publisher = context.socket(zmq.XPUB)
    meeting.bind(publisher, "denoising")
    subscribers = {}
    for rank in range(options.ranks):
        subscribers[rank] = context.socket(zmq.SUB)
        meeting.connect(subscribers[rank], f"reconstruction-{rank}")
        subscribers[rank].setsockopt(zmq.SUBSCRIBE, b"")
    subscribed(publisher)
    messages, consume, produce = ImageMessages(), Meter(), Meter()

    def publish(picture: np.ndarray, number: int, rank: int) -> None:
        message = messages.message(picture, PROJECTION, number, rank, 0, time.time_ns(), as_view=True)
        publisher.send(message)

    go()
    while subscribers:
        for rank, subscriber in list(subscribers.items()):
            begun = time.time_ns()
            message = subscriber.recv()
            if message == END:
                subscribers.pop(rank).close()
                continue
            image = image_of(message)
            consume.pulled(begun, image.time)
            picture, _low, _high = denoised(image.pixels)
            produce.push(publish, picture, image.number, rank)
    publisher.send(END)
    produce.wait(end(context, publisher))
    report(options, consume=consume, produce=produce)


def viewer(options: argparse.Namespace, meeting: Meeting) -> None:
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    meeting.connect(subscriber, "denoising")
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    meter = Meter()
    newest: dict[int, tuple[dict[str, int], np.ndarray]] = {}
    drawn = 0.0
    go()
    while True:
        begun = time.time_ns()
        message = subscriber.recv()
        if message == END:
            break
        image = image_of(message, np.uint8)
        meter.pulled(begun, image.time)
        about = {"projections": image.number, "step": -(-image.number // options.step)}
        newest[int(image.rotation)] = about, reduced(image.pixels)
        if time.monotonic() - drawn >= 0.5:
            draw(newest, options.output, over=False)
            drawn = time.monotonic()
    draw(newest, options.output, over=True)
    meter.wait(end(context, subscriber))
    report(options, consume=meter)


ROLES = {role.__name__: role for role in (acquisition, distribution, reconstruction, denoising, viewer)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--meeting", type=Path, required=True, help="a directory where addresses are told")
    parser.add_argument("--report", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--scan", type=Path)
    parser.add_argument("--projections", type=int)
    parser.add_argument("--center", type=float)
    parser.add_argument("--pace", type=float, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--step", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=1)
    parser.add_argument("--last", type=Path, help="a file for the last slices")
    options = parser.parse_args()
    ROLES[options.role](options, Meeting(options.meeting))


if __name__ == "__main__":
    main()
