"""A client of the chaos run: a program that keeps some jobs in flight until its standard input ends, then ends itself.

    python chaos_client.py ENDPOINT REPORT NUMBER SEED

REPORT gets a line of JSON before each `submit` and one in each done-callback, so that it outlives the client's SIGKILL.
"""

import itertools
import json
import os
import random
import select
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from pool import Client

IN_FLIGHT = 24
JOBS = 50_000  # of one client at most: its jobs' numbers are its own, and all of them exact in a float32
BIG = 1 << 18  # elements of a large tensor: 1 MiB
LONGEST_S = 90.0  # no job is out for as long
CHOICE = {"double": 12, "sleep": 4, "add": 4, "tally": 4, "big": 1}


def submit(client: Client, kind: str, number: int) -> "Future[Any]":
    match kind:
        case "double":
            return client.submit("rows", np.array([number], np.float32), signature="double", timeout=60)
        case "sleep":
            return client.submit("rows", np.zeros(1), signature="sleep", timeout=60)
        case "add":
            return client.submit("counter", number, signature="add", timeout=60)
        case "tally":
            return client.submit("tally", number, signature="add", timeout=60)
        case _:
            return client.submit("echo", np.full(BIG, number, np.float32), timeout=60)


def ending(job: Any) -> dict[str, Any]:
    """What came of it, as JSON has it; of a tensor the least element, the greatest and how many there are."""
    if (error := job.exception()) is not None:
        return {"error": type(error).__name__, "text": str(error)}
    (name, value), *_ = sorted(job.result().items(), reverse=True)  # y, and not batch
    return {name: [float(value.min()), float(value.max()), value.size], "slot": job.timeline.slot}


def write(report: int, **line: object) -> None:
    os.write(report, json.dumps({**line, "at": time.monotonic()}).encode() + b"\n")


def main(endpoint: str, path: str, client_number: int, seed: str) -> None:
    rng = random.Random(f"{seed}/{client_number}")
    report = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    room = threading.Semaphore(IN_FLIGHT)

    def done(number: int) -> "Callable[[Future[Any]], None]":
        def tell(job: "Future[Any]") -> None:
            write(report, job=number, **ending(job))
            room.release()

        return tell

    with Client(endpoint, connect_timeout=30) as client:
        for number in itertools.count(client_number * JOBS):
            assert number < (client_number + 1) * JOBS, "this client has no numbers left"
            assert room.acquire(timeout=LONGEST_S), "no job ended in all that time"
            kind = rng.choices([*CHOICE], [*CHOICE.values()])[0]
            write(report, job=number, kind=kind)
            submit(client, kind, number).add_done_callback(done(number))
            if select.select([sys.stdin], [], [], rng.uniform(0.0, 0.004))[0]:
                break
        for _ in range(IN_FLIGHT):
            assert room.acquire(timeout=LONGEST_S), "a job has not ended in all that time"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
