"""In whose threads a graph is quicker: tried out, since a graph does not show it.

In the lane's own thread a run is not handed over, which costs 20 to 100 µs; in TensorFlow's, ops that do not need each
other run side by side, if there are cores to spare. Two lanes share those cores, so both are tried alone and in pairs.
"""

import math
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

__all__ = ["Measure", "Verdict", "Way", "ratio", "timed", "try_out"]

Way = Callable[[], object]
"""One run."""

Measure = Callable[[Way, int, int], float]
"""Takes a way, how many runs a thread, and how many threads at once; gives the seconds a run."""

_TOO_QUICK_S = 200e-6  # side by side, such ops would gain less than their hand-over costs
_BLOCK_S = 3e-3  # what is timed at a stretch
_ROUNDS = 7
_LEAST_ROUNDS = 3
_RUNS_A_ROUND = 6  # each way alone, then each by two threads, which may take twice as long
_MUCH_QUICKER = 0.8  # timings on shared machines drift by less than this within a round
_NO_SLOWER = 1.05


@dataclass(frozen=True, slots=True)
class Verdict:
    own_threads: bool
    """True: TensorFlow's."""
    why: str


def timed(way: Way, runs: int, threads: int) -> float:
    """A `Measure`. Raises what a run raises."""

    def work() -> None:
        for _ in range(runs):
            way()

    began = time.perf_counter()
    if threads == 1:
        work()
    else:
        with ThreadPoolExecutor(threads) as together:
            for done in [together.submit(work) for _ in range(threads)]:
                done.result()
    return (time.perf_counter() - began) / (runs * threads)


def try_out(lane: Way, make_pool: Callable[[], Way], budget_s: float, measure: Measure = timed) -> Verdict:
    """Whether the runs belong into TensorFlow's threads: where they are much quicker alone, and no slower in pairs.

    `lane` has run before; `make_pool` is not called for graphs that are too small, nor for those that take too long to
    be tried within `budget_s`. Raises what a run raises.
    """
    lane_s = measure(lane, 1, 1)
    if lane_s * _RUNS_A_ROUND * _LEAST_ROUNDS > budget_s:
        return Verdict(False, f"a run takes {lane_s * 1e3:.1f} ms, too long for a trial")
    lane_s = min(lane_s, measure(lane, 1, 1), measure(lane, 1, 1))
    if lane_s < _TOO_QUICK_S:
        return Verdict(False, f"a run takes {lane_s * 1e6:.0f} µs")
    pool = make_pool()
    pool()  # the first run prepares
    runs = max(1, int(_BLOCK_S / lane_s))
    rounds = max(_LEAST_ROUNDS, min(_ROUNDS, int(budget_s / (runs * lane_s * _RUNS_A_ROUND))))
    alone = ratio(lane, pool, runs, 1, rounds, budget_s / 2, measure)
    if alone > _MUCH_QUICKER:
        how_long = "far too long" if math.isinf(alone) else f"{alone:.2f} times as long"
        return Verdict(False, f"TensorFlow's own take {how_long}")
    pairs = ratio(lane, pool, runs, 2, rounds, budget_s / 2, measure)
    return Verdict(pairs <= _NO_SLOWER, f"TensorFlow's own take {alone:.2f} times as long alone, {pairs:.2f} in pairs")


def ratio(lane: Way, pool: Way, runs: int, threads: int, rounds: int, budget_s: float, measure: Measure) -> float:
    """How many times as long `pool` takes: the median of rounds in which both take their turn.

    Of fewer, if they take far longer than was to be expected; infinity where those are too few.
    """
    each = []
    spent_s = 0.0
    for _ in range(rounds):
        lane_s = measure(lane, runs, threads)
        pool_s = measure(pool, runs, threads)
        each.append(pool_s / lane_s)
        spent_s += (lane_s + pool_s) * runs * threads
        if spent_s > budget_s:
            break
    return statistics.median(each) if len(each) >= _LEAST_ROUNDS else math.inf
