"""Measures the pool that this Python imports, and prints ratios. Start `python -m benchmarks` in the tests' folder.

It needs wrk (Debian: apt-get install wrk). Without mosec in the Python of --mosec, the rest is measured.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pool
from benchmarks import models, ours
from benchmarks.models import IMAGE, TINY
from benchmarks.peer import mosec, open_inference
from support.doors import start_door
from support.pools import RunningPool, pool_in

CONFIG = '[pool]\ndevices = ["cpu"]\n'
MODEL = '[[model]]\nname = "{name}"\npath = "{path}"\nbatching = "on"\nmax_batch = {batch}\n'
Way = Callable[[], float]


def process(first: Callable[..., None], *arguments: Any) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), first, arguments)


def pool_of(options: Any) -> AbstractContextManager[RunningPool]:
    """A pool of one CPU worker with both models."""
    config = CONFIG
    for name, batch in ((TINY, 64), (IMAGE, 16)):
        config += MODEL.format(name=name, path=options.folder / name, batch=batch)
    return pool_in(Path(tempfile.mkdtemp(dir=options.folder)), config)


def compare(options: Any, what: str, unit: str, ways: dict[str, tuple[Way, str]], *peer: Any) -> None:
    """Each way once a round, after a round that warms up. `peer`: mosec's model, and the connections of wrk."""
    print(f"\n{what}")
    with ExitStack() as stack:
        if peer:
            try:
                rate = stack.enter_context(mosec(options.mosec, options.folder, *peer))
                ways["mosec"] = partial(rate, options.seconds), ""
            except OSError as error:
                print(f"  without mosec: {error}")
        turns = [{name: way() for name, (way, _) in ways.items()} for _ in range(options.rounds + 1)][1:]
    samples = {name: [turn[name] for turn in turns] for name in ways}
    for name, (_, aim) in ways.items():
        line = f"  {name:<16}{spread(samples[name], unit)}"
        for other in [other for other in ways if aim and not ways[other][1]]:
            ratios = [one / two for one, two in zip(samples[name], samples[other], strict=True)]
            line += f"{spread(ratios, f'× {other}')}{judged(statistics.median(ratios), aim)}"
        print(line, flush=True)


def spread(figures: Sequence[float], unit: str) -> str:
    digits = 2 if max(figures) < 100 else 0
    middle, low, high = (f"{each:,.{digits}f}" for each in (statistics.median(figures), min(figures), max(figures)))
    return f"{f'{middle} ({low}–{high}) {unit}':<36}"


def judged(figure: float, aim: str) -> str:
    sign, bound = aim.split()[:2]
    return f"aim {aim}: {'met' if (figure >= float(bound)) == (sign == '≥') else 'MISSED'}"


def side_by_side(options: Any) -> None:
    with (
        pool_of(options) as running,
        process(ours.start, running.endpoint, options.folder / TINY) as one,
        process(ours.start, running.endpoint, options.folder / TINY) as two,
    ):

        def way(call: Callable[..., float], *arguments: Any, of: Sequence[ProcessPoolExecutor] = (one,)) -> Way:
            return lambda: sum([*map(Future.result, [side.submit(call, *arguments, options.seconds) for side in of])])

        ways = {"Client.run": (way(ours.lone, False), "≤ 2.0"), "Session.run": (way(ours.lone, True), "")}
        compare(options, "a lone tiny job", "µs", ways)
        ways = {"submit": (way(ours.submit, TINY, ours.IN_FLIGHT), "≥ 1.3")}
        ways |= {"map of arrays": (way(ours.map_arrays), "≥ 8"), "map of inputs": (way(ours.map_inputs), "≥ 2")}
        compare(options, "tiny jobs, 256 in flight", "/s", ways, TINY, ours.IN_FLIGHT)
        ways = {"run": (way(ours.threads, 16, of=(one, two)), "≥ 1.4")}
        compare(options, "2 processes of 16 threads, one job each", "/s", ways, TINY, 32)
        ways = {"submit": (way(ours.submit, IMAGE, 64), "≥ 6")}
        compare(options, "images of 602,112 bytes, 64 in flight", "/s", ways, IMAGE, 64)


def door(options: Any) -> None:
    """`Inference` in the door's own process, beside mosec, both under wrk."""
    with pool_of(options) as running, start_door(running) as listening:
        for model, connections, aim in ((TINY, 64, "≥ 0.7"), (IMAGE, 64, "≥ 1.5")):
            arguments = (listening.address, model, connections, options.seconds, options.folder)
            ways = {"door": (partial(open_inference, *arguments), aim)}
            compare(options, f"HTTP: {model}, {connections} connections", "/s", ways, model, connections)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each side in each round (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="after one that warms up (default: 5)")
    parser.add_argument("--mosec", default=sys.executable, metavar="PYTHON", help="a Python that has mosec")
    parser.add_argument("--door", action="store_true", help="measure the door alone")
    options = parser.parse_args()
    print(f"the pool of {Path(pool.__file__).parent}; {options.rounds} rounds of {options.seconds:g} s, median (range)")
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        process(models.save, options.folder).submit(int).result()
        if not options.door:
            side_by_side(options)
        door(options)


if __name__ == "__main__":
    main()
