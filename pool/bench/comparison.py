"""What the pool costs and gives beside the model in a process of one's own."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from rich.console import RenderableType

from pool import Client
from pool.bench.child import Child, Told
from pool.bench.fleet import Run, progress_bar
from pool.bench.load import BenchJob, Load
from pool.bench.point import INTERRUPTED, NotMeasured, percentiles
from pool.bench.report import LoadReport
from pool.errors import InvalidState, WorkerLost
from pool.processes import environ_with
from pool.terminal import count_of, new_table, numeric
from pool.wire.records import Slot, said_of

__all__ = ["Comparison", "Way", "compare", "usual_rows"]

ROUNDS = 5
WARMUP_PART = 0.1  # of a turn, for what the others' turns have cooled down
LOAD_S = 300.0  # TensorFlow's import, and a large model
TURN_S = 60.0  # beyond its own time; one call may be slow
_NAMES = {"session": "Session.run in a process", "callable": "prepared callable in a process"}

Turn = tuple[float, Sequence[float]]  # its seconds, and those of each call


@dataclass(slots=True)
class Way:
    """`take`: a turn of so many seconds after so many of warm-up. `rates`: jobs a second, of each round.

    `jobs_a_call`: of which one call has the rows.
    """

    name: str
    take: Callable[[float, float], Turn]
    jobs_a_call: int = 1
    in_flight: int | None = None
    rates: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        seconds, latencies_s = turn
        self.rates.append(len(latencies_s) * self.jobs_a_call / seconds)
        self.latencies_s.extend(latencies_s)


@dataclass(slots=True)
class Comparison:
    """The ways take turns, A B A B, so that a machine that becomes slower does so for all of them.

    The ratios are to the first way: of the jobs a second the median over the rounds, each within its round.
    """

    job: BenchJob
    ways: list[Way]
    device: str
    slots: int
    seconds: float
    early: str = ""

    @property
    def rounds(self) -> int:
        return min(len(way.rates) for way in self.ways)

    def figures(self) -> list[dict[str, Any]]:
        """Of each way, over the whole rounds."""
        found: list[dict[str, Any]] = []
        for way in self.ways:
            p50_ms, p99_ms = (seconds * 1000 for seconds in percentiles(way.latencies_s, 50, 99))
            ratios = [own / first for own, first in zip(way.rates, self.ways[0].rates, strict=False)]
            found.append(
                {
                    "way": way.name,
                    "in_flight": way.in_flight,
                    "rows_a_call": self.job.rows * way.jobs_a_call,
                    "jobs_per_s": median(way.rates),
                    "rows_per_s": median(way.rates) * self.job.rows,
                    "p50_ms": p50_ms,
                    "p99_ms": p99_ms,
                    "jobs_per_s_ratio": median(ratios),
                    "p50_ratio": p50_ms / (found[0]["p50_ms"] if found else p50_ms),
                }
            )
        return found

    def values(self) -> dict[str, Any]:
        return {
            **self.job.named(),
            "device": self.device,
            "slots": self.slots,
            "rounds": self.rounds,
            "seconds_a_turn": self.seconds,
            "ways": self.figures(),
            "ended_early": self.early or None,
        }

    def text(self) -> Iterator[RenderableType]:
        yield (
            f"{self.job}: {count_of(self.job.rows, 'row')} a job, {count_of(self.rounds, 'round')} in turn,"
            f" {self.seconds:g} s each{self.early and f', {self.early}'}\n"
            f"the process on {self.device}, the pool on {count_of(self.slots, 'slot')}"
        )
        table = new_table(["WAY", ">JOBS/S", ">p50 ms", ">p99 ms", ">× JOBS/S", ">× p50"])
        for each in self.figures():
            figures = ("jobs_per_s", "p50_ms", "p99_ms", "jobs_per_s_ratio", "p50_ratio")
            table.add_row(each["way"], *(numeric(each[name]) for name in figures))
        yield table
        yield f"the ratios are to {self.ways[0].name}: one call at a time, with TensorFlow's default ConfigProto"


def compare(
    client: Client, run: Run, job: BenchJob, counts: Sequence[int], seconds: float, timeout_s: float | None
) -> Comparison:
    """With the pool at each of these `counts` of jobs in flight, rising; `seconds` of each way, over all rounds.

    Raises `PoolError` where the model cannot be run in a process of its own, or nothing was measured.
    """
    path, slots, most_rows = _place(client, job.model)
    turn_s = seconds / ROUNDS
    batch_rows: Counter[int] = Counter()

    def in_pool(in_flight: int) -> Way:
        def take(taken_s: float, warmup_s: float) -> Turn:
            load = Load(in_flight=in_flight, duration_s=taken_s, warmup_s=warmup_s, timeout_s=timeout_s)
            report, point = LoadReport(job, 1, [load]), run(load, lambda *_: None)
            report.add(point)
            if point.early == INTERRUPTED:
                raise KeyboardInterrupt
            if why := point.early or report.nothing():
                raise NotMeasured(why)
            batch_rows.update(point.batch_rows)
            return point.elapsed_s, point.latencies_s

        return Way(f"pool, {in_flight:,} in flight", take, in_flight=in_flight)

    # A process of its own, for a client never imports TensorFlow; it sees the GPUs of a slot, none for the CPU.
    program, env = ["workers.inprocess", str(os.getpid())], environ_with(slots[0].uuids, os.environ)
    with progress_bar() as show, Child("the separate process", program, Told(), env) as process:

        def alone(way: str, jobs_a_call: int) -> Way:
            def take(taken_s: float, warmup_s: float) -> Turn:
                order = {"way": way, "jobs_a_call": jobs_a_call, "seconds": taken_s, "warmup_s": warmup_s}
                turn = process.ask(order, taken_s + warmup_s + TURN_S)
                return turn["seconds"], turn["latencies_s"]

            more = f", {job.rows * jobs_a_call} rows a call" if jobs_a_call > 1 else ""
            return Way(_NAMES[way] + more, take, jobs_a_call)

        show(job.model, " is loaded in a separate process", 0.0, 0.0)
        names = process.ask({**job.packed(), "path": path, "gpus": len(slots[0].uuids)}, LOAD_S)["ways"]
        own, pool = [alone(name, 1) for name in names], [in_pool(count) for count in counts]
        found = Comparison(job, [*own, *pool], slots[0].device, len(slots), turn_s)
        try:
            # A turn that does not count: until the pool has run some, nobody knows how many rows it runs together.
            show("first turn of the pool", "", 0.0, 0.0)
            pool[-1].take(turn_s, 0.0)
            jobs_a_call = usual_rows(batch_rows, most_rows) // job.rows
            heights = [{array.shape[:1] for array in feeds.values()} for feeds in job.inputs]
            if jobs_a_call > 1 and all(len(each) == 1 and () not in each for each in heights):
                found.ways = [*own, *(alone(name, jobs_a_call) for name in names), *pool]
            turns = [(number, way) for number in range(ROUNDS) for way in found.ways]
            for done, (number, way) in enumerate(turns):
                rate = way.rates[-1] if way.rates else 0.0
                show(f"round {number + 1} of {ROUNDS}, ", way.name, done / len(turns), rate)
                way.add(way.take(turn_s, turn_s * WARMUP_PART))
        except KeyboardInterrupt:
            found.early = INTERRUPTED
    if not found.rounds:
        raise NotMeasured("interrupted before a whole round was measured")
    return found


def usual_rows(batch_rows: Counter[int], most_rows: int) -> int:
    """The rows with which the median job was run; 0 where that is not known.

    A lane may be given more than `most_rows`, its `max_batch`, which it runs one batch after the other.
    """
    return min(most_rows, int(percentiles(list(batch_rows.elements()), 50)[0])) if batch_rows else 0


def _place(client: Client, model: str) -> tuple[str, list[Slot], int]:
    """Where the model lies, the slots that serve it, and its `max_batch`. Raises `InvalidState` or `WorkerLost`."""
    described = said_of(client.models(), model)
    if described is None or described.path is None:
        raise InvalidState(f"model {model} changed while the bench looked it up; run it again")
    slots = [slot for slot in client.status().slots if slot.slot in described.ready_slots]
    if not slots:
        raise WorkerLost(f"no slot serves model {model} now")
    return described.path, slots, described.scheduling.max_batch
