"""What clients of the pool do, each in a process of its own; `Session.run` likewise. Some answers are checked."""

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.models import IMAGE, TINY, Array, Graph, check, rows_of
from pool import Client, Result

IN_FLIGHT = 256
CHECKED = 61  # one answer of so many

ROWS = {model: rows_of(model) for model in (TINY, IMAGE)}
client: Client
graph: Graph


def start(endpoint: str, saved: Path) -> None:
    global client, graph
    client, graph = Client(endpoint), Graph(saved)


def instants(model: str, results: Iterable[Mapping[str, Array]], seconds: float) -> list[float]:
    """When each result came, of what gives them for the rows in turn."""
    came = [time.perf_counter()]
    for number, result in enumerate(results):
        came.append(time.perf_counter())
        if number % CHECKED == 0:
            check(model, ROWS[model][number % len(ROWS[model])], result["y"])
        if came[-1] > came[0] + seconds:
            break
    return came


def rate(came: list[float]) -> float:
    return (len(came) - 1) / (came[-1] - came[0])


def runs() -> Iterator[Result]:
    return (client.run(TINY, {"x": row}) for row in itertools.cycle(ROWS[TINY]))


def lone(is_session: bool, seconds: float) -> float:
    """The median time of a `Client.run`, or of a `Session.run`, in microseconds."""
    sessions = ({"y": graph.run(row)} for row in itertools.cycle(ROWS[TINY]))
    return float(np.median(np.diff(instants(TINY, sessions if is_session else runs(), seconds)))) * 1e6


def submitted(model: str, in_flight: int) -> Iterator[Result]:
    futures: deque[Future[Result]] = deque()
    for row in itertools.cycle(ROWS[model]):
        futures.append(client.submit(model, {"x": row}))
        if len(futures) == in_flight:
            yield futures.popleft().result()


def submit(model: str, in_flight: int, seconds: float) -> float:
    return rate(instants(model, submitted(model, in_flight), seconds))


def map_arrays(seconds: float) -> float:
    x = np.concatenate(ROWS[TINY] * 8192)
    results = (result for _ in itertools.count() for result in client.map(TINY, {"x": x}))
    return rate(instants(TINY, results, seconds))


def map_inputs(seconds: float) -> float:
    inputs = ({"x": row} for row in itertools.cycle(ROWS[TINY]))
    return rate(instants(TINY, client.map(TINY, inputs, in_flight=IN_FLIGHT), seconds))


def threads(number: int, seconds: float) -> float:
    """Results a second of so many threads with one job each."""
    with ThreadPoolExecutor(number) as executor:
        return sum(executor.map(lambda _: rate(instants(TINY, runs(), seconds)), range(number)))
