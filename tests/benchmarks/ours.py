"""The pool that is measured, and the ways through its client."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.aims import ARRAY, LENT, MANY, MAP, SUBMIT
from benchmarks.cases import Array, Case
from benchmarks.line_process import LineProcess, python_module
from benchmarks.turns import Pending, Turns
from pool import Client, start

__all__ = ["IN_FLIGHT", "ClientProcess", "Ours", "config", "serving"]

IN_FLIGHT = {"mlp": 256, "cnn": 256, "guesslang": 256, "image": 64}
ARRAY_IN_FLIGHT = {"mlp": 4096, "cnn": 256, "image": 64}
ARRAY_BYTES = 16 << 20
MAX_IN_FLIGHT_BYTES = "2GiB"
ANSWER_S = 60.0


def config(cases: Sequence[Case], workers: int, **pool: object) -> dict[str, object]:
    """Each model on every worker; everything else at its default, as a user finds it."""
    models = [{"name": case.name, "path": case.path, "devices": "all", "max_batch": case.max_batch} for case in cases]
    return {"pool": {"devices": ["cpu"] * workers, **pool}, "model": models}


def serving(cases: Sequence[Case], workers: int, **pool: object) -> Any:
    """A pool of this process; for a `with` block."""
    return start(config(cases, workers, **pool))


class Ours:
    """The ways of a client to have a case run."""

    def __init__(self, client: Client, turns: Turns) -> None:
        self._client: Any = client
        self._turns = turns
        case = turns.case
        self._options = {"signature": case.signature, "outputs": [case.output]}
        self.in_flight = IN_FLIGHT.get(case.name, 1)

    def run(self, row: Array) -> Array:
        answer: Array = self._client.run(self._turns.case.name, row, **self._options)[self._turns.case.output]
        return answer

    def submit(self, row: Array) -> Pending:
        pending: Pending = self._client.submit(self._turns.case.name, row, **self._options)
        return pending

    def alone(self, seconds: float) -> float:
        return self._turns.alone(self.run, seconds)

    def flow(self, seconds: float) -> float:
        """`submit`, and so many futures at once."""
        return self._turns.window(self.submit, self.in_flight, seconds)

    def map(self, seconds: float) -> float:
        def mapped(end: float) -> Iterator[dict[str, Array]]:
            answers: Iterator[dict[str, Array]] = self._client.map(
                self._turns.case.name, self._turns.until(end), in_flight=self.in_flight, **self._options
            )
            return answers

        return self._turns.stream(mapped, seconds)

    def map_array(self, seconds: float) -> float:
        """`map` over one array that has all rows many times."""
        repeats = max(1, ARRAY_BYTES // sum(row.nbytes for row in self._turns.rows))
        array = np.concatenate([np.stack(self._turns.rows)] * repeats)
        in_flight = ARRAY_IN_FLIGHT[self._turns.case.name]

        def mapped(end: float) -> Iterator[dict[str, Array]]:
            while time.perf_counter() < end:
                yield from self._client.map(self._turns.case.name, array, in_flight=in_flight, **self._options)

        return self._turns.stream(mapped, seconds)

    def many(self, seconds: float) -> float:
        """`submit_many` of all rows, as often at once as makes `in_flight` rows."""

        def submit(rows: Sequence[Array]) -> Sequence[Pending]:
            pending: Sequence[Pending] = self._client.submit_many(self._turns.case.name, rows, **self._options)
            return pending

        return self._turns.groups(submit, max(2, self.in_flight // len(self._turns.rows)), seconds)

    def lent(self, seconds: float) -> float:
        """`submit` of arrays that `client.empty` gave and that hold the rows already."""
        rows = []
        for row in self._turns.rows:
            array = self._client.empty(row.shape, row.dtype)
            array[...] = row
            rows.append(array)
        return Turns(self._turns.case, rows, self._turns.expected).window(self.submit, self.in_flight, seconds)

    def flows(self) -> dict[str, Callable[[float], float]]:
        """Rows a second, by the names that the table of aims chooses from."""
        ways: dict[str, Callable[[float], float]] = {SUBMIT: self.flow, MAP: self.map, MANY: self.many}
        if self._turns.case.dtype != "string":
            ways[LENT] = self.lent
        if self._turns.case.name in ARRAY_IN_FLIGHT:
            ways[ARRAY] = self.map_array
        return ways


class ClientProcess:
    """A client in a process of its own."""

    def __init__(self, endpoint: str, case_file: Path, expected_file: Path, in_flight: int, log: Path) -> None:
        argv = python_module("benchmarks.client_process", endpoint, str(case_file), str(expected_file), str(in_flight))
        self._process = LineProcess(argv, log)

    def ready(self) -> None:
        self._process.answer(ANSWER_S)

    def begin(self, seconds: float) -> None:
        self._process.send({"seconds": seconds})

    def rate(self, seconds: float) -> float:
        return float(self._process.answer(seconds + ANSWER_S)["rate"])

    def end(self) -> None:
        self._process.end()


def together(clients: Sequence[ClientProcess], seconds: float) -> float:
    """Rows a second of all at once."""
    for client in clients:
        client.begin(seconds)
    return sum([client.rate(seconds) for client in clients])
