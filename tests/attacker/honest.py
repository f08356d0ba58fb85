"""An honest client: a program that keeps a few jobs out until its standard input ends, and judges each answer.

    python honest.py ENDPOINT REPORT SEED

REPORT gets a line of JSON for each job: what it was, when it began, how long it took, and what was wrong with it.
"""

import json
import random
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from itertools import count
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from pool import Client

__all__ = ["TIMEOUT_S"]

IN_FLIGHT = 4
TIMEOUT_S = 30.0
BIG = 1 << 18  # elements of a tensor that goes through lent memory: 1 MiB
PACE_S = 0.004


class Out:
    """A job, from its submission on."""

    def __init__(self, kind: str, submit: "Callable[[], Future[Any]]", output: str, expected: Any) -> None:
        self._kind = kind
        self._output, self._expected = output, expected
        self._began = time.monotonic()
        self._ended = 0.0
        self._job = submit()
        self._job.add_done_callback(self._end)

    def _end(self, _: "Future[Any]") -> None:
        self._ended = time.monotonic()

    def wait(self) -> "Out":
        """Until it has ended."""
        wait([self._job], 2 * TIMEOUT_S)
        return self

    def line(self) -> dict[str, Any]:
        """When it has ended."""
        wrong = None
        try:
            found = self._job.result(2 * TIMEOUT_S)[self._output]
            if found.shape != self._expected.shape or not (found == self._expected).all():
                wrong = f"another answer: {found!r:.300}"
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
        return {"kind": self._kind, "began": self._began, "took_s": self._ended - self._began, "wrong": wrong}


def jobs(client: Client, rng: random.Random) -> Iterator[list[Out]]:
    """One after the other; several of them where they are sent together."""

    def out(kind: str, model: str, inputs: Any, signature: str | None, output: str, expected: Any) -> list[Out]:
        options = {"signature": signature, "timeout": TIMEOUT_S, "block": True}  # a full queue makes it wait
        return [Out(kind, lambda: client.submit(model, inputs, **options), output, expected)]  # type: ignore[arg-type]

    total = 0
    for number in count(1):
        kind = rng.choices(("double", "text", "add", "big", "many"), (10, 3, 5, 1, 1))[0]
        rows = np.arange(number, number + rng.randint(1, 5)).astype(np.float32)
        if kind == "double":
            yield out(kind, "rows", rows, "double", "y", rows * 2)
        elif kind == "text":
            texts = np.array([b"%d" % number, b"", b"a\0b\xff"], object)
            yield out(kind, "rows", texts, "text", "length", np.array([len(text) for text in texts]))
        elif kind == "add":
            total += number
            yield [
                each.wait() for each in out(kind, "counter", number, "add", "total", np.array(total))
            ]  # one at a time
        elif kind == "big":
            array = np.full(BIG, number % (1 << 24), np.float32)
            yield out(kind, "echo", array, None, "x", array)
        else:
            sent = client.submit_many("rows", [rows] * 8, signature="double", timeout=TIMEOUT_S, block=True)
            yield [Out(kind, lambda job=job: job, "y", rows * 2) for job in sent]  # type: ignore[misc]


def main(endpoint: str, report: TextIO, seed: str) -> None:
    waiting: deque[Out] = deque()

    def tell(left: int) -> None:
        while len(waiting) > left:
            report.write(json.dumps(waiting.popleft().line()) + "\n")

    with Client(endpoint, connect_timeout=30) as client:
        for sent in jobs(client, random.Random(seed)):
            waiting.extend(sent)
            tell(IN_FLIGHT)
            if select.select([sys.stdin], [], [], PACE_S)[0]:
                break
        tell(0)


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w", buffering=1) as report:
        main(sys.argv[1], report, sys.argv[3])
