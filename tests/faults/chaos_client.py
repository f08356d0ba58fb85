"""A client of the chaos run: a program that keeps some jobs in flight until its standard input ends, then ends itself.

    python chaos_client.py ENDPOINT REPORT NUMBER SEED

REPORT gets a line of JSON before each job and one when it ends, so that it outlives the client's SIGKILL. Jobs that are
submitted are told of in their done-callbacks. `map` and sessions keep their caller waiting, so a thread of their own
uses them.
"""

import contextlib
import itertools
import json
import os
import random
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from pool import Client, RemoteSession
from pool.errors import PoolError

BIG = 1 << 18  # elements of a large tensor: 1 MiB
IN_FLIGHT = 24
JOBS = 200_000  # of one client at most: its jobs' numbers are its own
LONGEST_S = 90.0  # no job is out for as long
TIMEOUT_S = 60.0
MEMBERS = 8  # of one submit_many
MAPPED = 24  # inputs of one map
PRIVATE_RUNS = 20  # of one private session; then another is opened
REMOTE = "tcp://"
SECOND = 7.0  # what the model says that comes and goes
NOT_DRAWN = "NotDrawn"  # what came after the job of a map that failed
# How often each is chosen. Those whose name begins with "many" are MEMBERS jobs of one submit_many.
CHOICE = {
    "double": 12,
    "sleep": 4,
    "add": 4,
    "tally": 4,
    "big": 1,
    "second": 2,
    "many double": 1,
    "many tally": 1,
    "many add": 1,
}
WAITED = ("map", "session", "private session")
KINDS = (*CHOICE, *WAITED)

Ending = dict[str, Any]


def submit(client: Client, kind: str, numbers: Sequence[int]) -> "Sequence[Future[Any]]":
    number = numbers[0]
    row = np.array([number], np.float32)
    rows = [np.array([each], np.float32) for each in numbers]
    match kind:
        case "double":
            return [client.submit("rows", row, signature="double", timeout=TIMEOUT_S)]
        case "sleep":
            return [client.submit("rows", np.zeros(1), signature="sleep", timeout=TIMEOUT_S)]
        case "add":
            return [client.submit("counter", number, signature="add", timeout=TIMEOUT_S)]
        case "tally":
            return [client.submit("tally", number, signature="add", timeout=TIMEOUT_S)]
        case "second":
            return [client.submit("second", row, timeout=TIMEOUT_S)]
        case "many double":
            return client.submit_many("rows", rows, signature="double", timeout=TIMEOUT_S)
        case "many tally":  # each row is a line of the ledger, and a chunk may be cut anywhere
            counted = [np.array([each]) for each in numbers]
            return client.submit_many("tally", counted, signature="gated", timeout=TIMEOUT_S)
        case "many add":
            return client.submit_many("counter", numbers, signature="add", timeout=TIMEOUT_S)
        case _:
            return [client.submit("echo", np.full(BIG, number, np.float32), timeout=TIMEOUT_S)]


def failed(error: BaseException) -> Ending:
    return {"error": type(error).__name__, "text": str(error)}


def answered(answer: "Mapping[str, np.ndarray[Any, Any]]") -> Ending:
    """As JSON has it; of a tensor the least element, the greatest and how many there are."""
    (name, value), *_ = sorted(answer.items(), reverse=True)  # y, and not batch
    return {name: [float(value.min()), float(value.max()), value.size]}


def ending(job: Any) -> Ending:
    """What came of a future."""
    if (error := job.exception()) is not None:
        return failed(error)
    return {**answered(job.result()), "slot": job.timeline.slot}


class Report:
    """The file, and the numbers of the jobs in it."""

    def __init__(self, path: str, client_number: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = itertools.count(client_number * JOBS)
        self._end = (client_number + 1) * JOBS
        assert 2 * self._end < 1 << 24, "a float32 has all of them, and their doubles"

    def begin(self, kind: str, jobs: int = 1) -> list[int]:
        """The numbers of so many jobs, which are about to begin."""
        numbers = [next(self._numbers) for _ in range(jobs)]
        assert numbers[-1] < self._end, "this client has no numbers left"
        for number in numbers:
            self._write(job=number, kind=kind)
        return numbers

    def end(self, number: int, ending: Ending) -> None:
        self._write(job=number, **ending)

    def _write(self, **line: object) -> None:
        os.write(self._file, json.dumps({**line, "at": time.monotonic()}).encode() + b"\n")


class Waiter(threading.Thread):
    """Whoever maps inputs and uses sessions, one after the other; a remote client may only map."""

    def __init__(self, client: Client, report: Report, rng: random.Random, remote: bool) -> None:
        super().__init__(name="waiter", daemon=True)
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._client = client
        self._report = report
        self._rng = rng
        self._kinds = [self._map] if remote else [self._map, self._share, self._own]

    def run(self) -> None:
        try:
            while not self.over.wait(self._rng.uniform(0.0, 0.02)):
                self._rng.choice(self._kinds)()
        except BaseException as error:
            self.error = error
            raise

    def _map(self) -> None:
        numbers = self._report.begin("map", MAPPED)
        rows = np.array(numbers, np.float32)[:, None] if self._rng.random() < 0.5 else map(_row, numbers)
        ends: Iterator[int] = iter(numbers)
        try:
            for result in self._client.map("rows", rows, signature="double", timeout=TIMEOUT_S, in_flight=16):
                self._report.end(next(ends), answered(result))
        except PoolError as error:
            self._report.end(next(ends), failed(error))
            for number in ends:
                self._report.end(number, {"error": NOT_DRAWN})

    def _share(self) -> None:
        session = self._client.session("counter", timeout=TIMEOUT_S)
        (number,) = self._report.begin("session")
        self._add(session, number)

    def _own(self) -> None:
        """Nobody else writes what it writes: each total is the sum of all that was added before."""
        with contextlib.closing(self._client.session("counter", private=True, timeout=TIMEOUT_S)) as session:
            total = 0
            for _ in range(PRIVATE_RUNS):
                (number,) = self._report.begin("private session")
                total += number
                if self._add(session, number, total) or self.over.is_set():
                    return

    def _add(self, session: RemoteSession, number: int, expected: int | None = None) -> bool:
        """Whether it failed."""
        try:
            total = int(session.run("add/total:0", {"add/n:0": number}))
        except PoolError as error:
            self._report.end(number, failed(error))
            return True
        self._report.end(number, {"total": total, "expected": expected})
        return False


def _row(number: int) -> "np.ndarray[Any, Any]":
    return np.array([number], np.float32)


def main(endpoint: str, path: str, client_number: int, seed: str) -> None:
    rng = random.Random(f"{seed}/{client_number}")
    report = Report(path, client_number)
    room = threading.Semaphore(IN_FLIGHT)

    def done(number: int) -> "Callable[[Future[Any]], None]":
        def tell(job: "Future[Any]") -> None:
            report.end(number, ending(job))
            room.release()

        return tell

    with Client(endpoint, connect_timeout=30) as client:
        waiter = Waiter(client, report, random.Random(f"{seed}/{client_number}/waiter"), endpoint.startswith(REMOTE))
        waiter.start()
        while not select.select([sys.stdin], [], [], rng.uniform(0.0, 0.004))[0]:
            assert waiter.error is None
            kind = rng.choices([*CHOICE], [*CHOICE.values()])[0]
            jobs = MEMBERS if kind.startswith("many") else 1
            for _ in range(jobs):
                assert room.acquire(timeout=LONGEST_S), "no job ended in all that time"
            numbers = report.begin(kind, jobs)
            for number, job in zip(numbers, submit(client, kind, numbers), strict=True):
                job.add_done_callback(done(number))
        for _ in range(IN_FLIGHT):
            assert room.acquire(timeout=LONGEST_S), "a job has not ended in all that time"
        waiter.over.set()
        waiter.join(LONGEST_S)
        assert not waiter.is_alive(), "a map or a session has not ended in all that time"
        assert waiter.error is None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
