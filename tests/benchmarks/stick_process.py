"""The bare path, as the measuring stick outside of this repository has it: `FOLDER lone|many`.

Asked `{"seconds": 2}` it answers as `crowd_process` does, of its own client or of two processes of 16 clients; with
what the process in the middle, and the lane, have spent on each job. The stick checks no answers and its rows are
zeros: it is what the machine allows, and nobody's rival.
"""

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.processor import Spent, spent, spent_here

__all__: list[str] = []

CLIENTS, PROCESSES = 16, 2
WARM = 500
TIMEOUT_S = 60.0
Turn = Callable[[float], dict[str, float]]


def _begun(target: Callable[..., None], *arguments: Any) -> int:
    """The pid of a child that goes with this process group."""
    child = multiprocessing.Process(target=target, args=arguments, daemon=True)
    child.start()
    assert child.pid is not None
    return child.pid


def _told(jobs: int, rate: float, p50: float, client: Spent, middle: Spent, lane: Spent) -> dict[str, float]:
    told = {"rate": rate, "jobs": jobs, "p50": p50}
    for name, cost in (("", client), ("middle_", middle), ("lane_", lane)):
        told[f"{name}processor_s"], told[f"{name}wake_ups"] = cost.each(jobs)
    return told


def lone() -> Turn:
    """`straight.py`'s pool and lane, and a client as it has one."""
    import straight  # type: ignore[import-not-found]  # it is outside of this repository
    import zmq

    queue: Any = multiprocessing.Queue()
    middle, lane = _begun(straight.pool, queue), _begun(straight.lane, queue)
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(straight.FRONT)
    header, submit = straight.H, straight.KIND_SUBMIT
    row = np.zeros((1, 64), np.float32)
    sent = 0

    def run() -> dict[str, Any]:
        nonlocal sent
        sent += 1
        socket.send(header.pack(submit, 1, row.shape[0], row.nbytes, sent, TIMEOUT_S) + row.tobytes())
        while True:
            body = socket.recv()
            _, _, rows, _, job, _ = header.unpack_from(body)
            if job == sent:
                return {"y": np.frombuffer(body, np.float32, offset=header.size).reshape(rows, 10)}

    def turn(seconds: float) -> dict[str, float]:
        before = spent_here(), spent(middle), spent(lane)
        taken = []
        start = time.perf_counter()
        while (began := time.perf_counter()) < start + seconds:
            run()
            taken.append(time.perf_counter() - began)
        lasted = time.perf_counter() - start
        after = spent_here(), spent(middle), spent(lane)
        costs = [end.since(begin) for begin, end in zip(before, after, strict=True)]
        return _told(len(taken), len(taken) / lasted, statistics.median(taken), *costs)

    for _ in range(WARM):
        run()
    return turn


def many() -> Turn:
    """`many.py`'s middle and lane, and its processes of clients. Of those only what they have done is known."""
    import many as stick  # type: ignore[import-not-found]  # it is outside of this repository

    address = stick.FRONT + ".many"
    results: Any = multiprocessing.Queue()
    middle = _begun(stick.pool, address, results)
    lane = _begun(stick.lane, address)

    def turn(seconds: float, clients: int = CLIENTS) -> dict[str, float]:
        before = spent(middle), spent(lane)
        done: Any = multiprocessing.Queue()
        children = [
            multiprocessing.Process(target=stick.clients, args=(address, clients, seconds, done), daemon=True)
            for _ in range(PROCESSES)
        ]
        for child in children:
            child.start()
        jobs = sum(done.get() for _ in children)
        for child in children:
            child.join()
        costs = [end.since(begin) for begin, end in zip(before, (spent(middle), spent(lane)), strict=True)]
        rate = jobs / seconds
        return _told(jobs, rate, PROCESSES * clients / rate, Spent(0.0, 0), *costs)

    turn(0.2, 1)
    return turn


def main(folder: str, what: str) -> None:
    sys.path.insert(0, folder)
    turn = {"lone": lone, "many": many}[what]()
    _say({"ready": True})
    for line in sys.stdin:
        _say(turn(float(json.loads(line)["seconds"])))


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
