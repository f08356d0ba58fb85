"""One turn of a way: for so many seconds, as fast as it goes, or one job at a time."""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.cases import Array, Case

__all__ = ["Lone", "Pending", "Turns"]

KEPT = 256
"""So many answers of a turn are kept, the last ones, and checked when it is over: a check takes longer than a job."""


class Pending(Protocol):
    """What `Client.submit` returns."""

    def result(self) -> dict[str, Array]: ...


@dataclass(frozen=True, slots=True)
class Lone:
    """One job after the other: the seconds each took, those of all, and the last answers with their rows' numbers."""

    taken: Sequence[float]
    seconds: float
    kept: Iterable[tuple[int, Array]]


class Turns:
    """Of one case. Each method runs for about `seconds`, raises `WrongAnswer`, and returns rows a second or seconds.

    `expected` has the answer to each row of `rows`, which take turns.
    """

    def __init__(self, case: Case, rows: Sequence[Array], expected: Sequence[Array]) -> None:
        self.case = case
        self.rows = rows
        self.expected = expected

    def alone(self, run: Callable[[Array], Array], seconds: float) -> float:
        """The median of single jobs, in seconds."""
        lone = self.lone(run, seconds)
        self.check(lone.kept)
        return statistics.median(lone.taken)

    def lone(self, run: Callable[[Array], Array], seconds: float, first: int = 0) -> "Lone":
        """Single jobs, beginning with that row. What it kept is still to be checked."""
        kept: deque[tuple[int, Array]] = deque(maxlen=KEPT)
        taken: list[float] = []
        start = time.perf_counter()
        while (began := time.perf_counter()) < start + seconds:
            row = (first + len(taken)) % len(self.rows)
            answer = run(self.rows[row])
            taken.append(time.perf_counter() - began)
            kept.append((row, answer))
        return Lone(taken, time.perf_counter() - start, kept)

    def loop(self, run: Callable[[Array], Array], seconds: float) -> float:
        """Rows a second, one after the other."""
        kept: deque[tuple[int, Array]] = deque(maxlen=KEPT)
        done = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            row = done % len(self.rows)
            kept.append((row, run(self.rows[row])))
            done += 1
        taken = time.perf_counter() - began
        self.check(kept)
        return done / taken

    def batches(self, run: Callable[[Array], Array], batches: Sequence[Array], seconds: float) -> float:
        """Rows a second in batches that are there already. Of each the first rows must be those of `rows`, in order."""
        done = rows = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            answer = run(batches[done % len(batches)])
            rows += len(answer)
            done += 1
        taken = time.perf_counter() - began
        first = (done - 1) % len(batches) * len(answer)
        self.check(((first + row) % len(self.rows), answer[row : row + 1]) for row in range(len(answer)))
        return rows / taken

    def window(self, submit: Callable[[Array], Pending], in_flight: int, seconds: float) -> float:
        """Rows a second with so many on the way; the next leaves when the oldest is answered."""
        kept: deque[tuple[int, Array]] = deque(maxlen=KEPT)
        waiting: deque[Pending] = deque()
        output = self.case.output
        sent = done = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            waiting.append(submit(self.rows[sent % len(self.rows)]))
            sent += 1
            if len(waiting) >= in_flight:
                kept.append((done % len(self.rows), waiting.popleft().result()[output]))
                done += 1
        for pending in waiting:
            kept.append((done % len(self.rows), pending.result()[output]))
            done += 1
        taken = time.perf_counter() - began
        self.check(kept)
        return done / taken

    def groups(self, submit: Callable[[Sequence[Array]], Sequence[Pending]], groups: int, seconds: float) -> float:
        """Rows a second, all of `rows` submitted together each time, and so many times on the way."""
        waiting: deque[Sequence[Pending]] = deque()
        last: list[Array] = []
        sent = done = 0
        began = time.perf_counter()
        while True:
            going = time.perf_counter() - began < seconds
            if going:
                waiting.append(submit(self.rows))
                sent += 1
            elif not waiting:
                break
            if len(waiting) >= groups or not going:
                last = [pending.result()[self.case.output] for pending in waiting.popleft()]
                done += len(last)
        taken = time.perf_counter() - began
        self.check(enumerate(last))
        return done / taken

    def stream(self, run: Callable[[float], Iterator[dict[str, Array]]], seconds: float) -> float:
        """Rows a second of an iterator that gives the answers in the order of the rows until so and so late."""
        kept: deque[tuple[int, Array]] = deque(maxlen=KEPT)
        done = 0
        began = time.perf_counter()
        for answer in run(began + seconds):
            kept.append((done % len(self.rows), answer[self.case.output]))
            done += 1
        taken = time.perf_counter() - began
        self.check(kept)
        return done / taken

    def until(self, end: float) -> Iterator[Array]:
        """The rows, again and again."""
        while time.perf_counter() < end:
            yield from self.rows

    def check(self, answers: Iterable[tuple[int, Array]]) -> None:
        """Each with the number of its row. Raises `WrongAnswer`."""
        for row, answer in answers:
            self.case.check(answer, self.expected[row])
