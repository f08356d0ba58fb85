"""What the pool costs and gives beside the model in a process of one's own."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty
from statistics import median
from typing import Any

from rich.console import RenderableType

from pool import Client
from pool.bench.child import Child, Told
from pool.bench.fleet import Fleet
from pool.bench.job import BenchJob
from pool.bench.load import Load, Warmup
from pool.bench.point import INTERRUPTED, NotMeasured, percentiles
from pool.bench.sweep import progress_bar
from pool.errors import InvalidState, WorkerLost
from pool.terminal import count_of, new_table, numeric
from pool.wire.records import Slot, said_of

__all__ = ["Comparison", "Way", "compare", "environment", "usual_rows"]

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
        return min((len(way.rates) for way in self.ways), default=0)

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
            "model": self.job.model,
            "signature": self.job.signature,
            "rows": self.job.rows,
            "device": self.device,
            "slots": self.slots,
            "rounds": self.rounds,
            "seconds_a_turn": self.seconds,
            "ways": self.figures(),
            "ended_early": self.early or None,
        }

    def text(self) -> Iterator[RenderableType]:
        rows = f"{count_of(self.job.rows, 'row')} a job"
        early = f", {self.early}" if self.early else ""
        rounds = f"{count_of(self.rounds, 'round')} in turn, {self.seconds:g} s each"
        yield (
            f"{self.job.model} {self.job.signature}: {rows}, {rounds}{early}\n"
            f"the process on {self.device}, the pool on {count_of(self.slots, 'slot')}"
        )
        table = new_table(["WAY", ">JOBS/S", ">p50 ms", ">p99 ms", ">× JOBS/S", ">× p50"])
        for each in self.figures():
            figures = ("jobs_per_s", "p50_ms", "p99_ms", "jobs_per_s_ratio", "p50_ratio")
            table.add_row(each["way"], *(numeric(each[name]) for name in figures))
        yield table
        yield f"the ratios are to {self.ways[0].name}: one call at a time, with TensorFlow's default ConfigProto"


def compare(
    client: Client, fleet: Fleet, job: BenchJob, counts: Sequence[int], seconds: float, timeout_s: float | None
) -> Comparison:
    """With the pool at each of these `counts` of jobs in flight, rising; `seconds` of each way, over all rounds.

    Raises `PoolError` where the model cannot be run in a process of its own, or nothing was measured.
    """
    path, slots, most_rows = _place(client, job.model)
    turn_s = seconds / ROUNDS
    batch_rows: Counter[int] = Counter()

    def pool_turn(in_flight: int, taken_s: float, warmup_s: float) -> Turn:
        load = Load(in_flight=in_flight, duration_s=taken_s, warmup=Warmup(warmup_s), timeout_s=timeout_s)
        point = fleet.run(load, lambda *_: None)
        if point.early == INTERRUPTED:
            raise KeyboardInterrupt
        why = point.nothing(f"no job was answered within {taken_s:g} s; give a longer --duration")
        if point.early or why:
            raise NotMeasured(point.early or why)
        batch_rows.update(point.batch_rows)
        return point.elapsed_s, point.latencies_s

    with progress_bar() as show:
        show(f"{job.model}: loading it in a separate process", 0.0, 0.0)
        with _InProcess(job, path, slots[0].uuids) as inprocess:
            own = inprocess.ways(1)
            pool = [Way(f"pool, {n:,} in flight", partial(pool_turn, n), in_flight=n) for n in counts]
            found = Comparison(job, [*own, *pool], slots[0].device, len(slots), turn_s)
            try:
                # A turn that does not count: until the pool has run some, nobody knows how many rows it runs together.
                show("first turn of the pool", 0.0, 0.0)
                pool[-1].take(turn_s, 0.0)
                jobs_a_call = usual_rows(batch_rows, most_rows) // job.rows
                if jobs_a_call > 1 and all(inputs.rows for inputs in job.inputs):
                    found.ways[len(own) : len(own)] = inprocess.ways(jobs_a_call)
                turns = [(number, at) for number in range(ROUNDS) for at in range(len(found.ways))]
                for done, (number, at) in enumerate(turns):
                    way = found.ways[at]
                    rate = way.rates[-1] if way.rates else 0.0
                    show(f"round {number + 1} of {ROUNDS}, {way.name}", done / len(turns), rate)
                    way.add(way.take(turn_s, turn_s * WARMUP_PART))
            except KeyboardInterrupt:
                found.early = INTERRUPTED
    if not found.rounds:
        raise NotMeasured("interrupted before a whole round was measured")
    return found


class _InProcess(Child):
    """`workers.inprocess`, for a client never imports TensorFlow; it has loaded the model. Raises `PoolError`.

    `uuids`: of the GPUs that it sees, none for the CPU.
    """

    def __init__(self, job: BenchJob, path: str, uuids: Sequence[str]) -> None:
        self._told: Told = Told()
        self._rows = job.rows
        super().__init__(["workers.inprocess", str(os.getpid())], self._told, env=environment(os.environ, uuids))
        with ExitStack() as unless_loaded:
            unless_loaded.push(self)
            self._ways: Sequence[str] = self._ask({**job.packed(), "path": path, "gpus": len(uuids)}, LOAD_S)["ways"]
            unless_loaded.pop_all()

    def ways(self, jobs_a_call: int) -> list[Way]:
        """How it can run the model; each of their calls has the rows of so many jobs."""
        more = f", {self._rows * jobs_a_call} rows a call" if jobs_a_call > 1 else ""
        return [Way(_NAMES[way] + more, partial(self._turn, way, jobs_a_call), jobs_a_call) for way in self._ways]

    def _turn(self, way: str, jobs_a_call: int, seconds: float, warmup_s: float) -> Turn:
        order = {"way": way, "jobs_a_call": jobs_a_call, "seconds": seconds, "warmup_s": warmup_s}
        turn = self._ask(order, seconds + warmup_s + TURN_S)
        return turn["seconds"], turn["latencies_s"]

    def _ask(self, order: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        self.tell(order)
        try:
            _, answer = self._told.get(timeout=timeout_s)
        except Empty:
            raise NotMeasured(f"in its separate process, the model did not answer within {timeout_s:g} s") from None
        if answer is None:
            how, last = self.death()
            answer = {"failed": f"it died ({how}): {last or 'it printed nothing'}"}
        if "failed" in answer:
            raise NotMeasured(f"in its separate process: {answer['failed']}")
        return answer


def environment(environ: Mapping[str, str], uuids: Sequence[str]) -> dict[str, str]:
    """A copy in which CUDA shows these GPUs alone; the threads are left to TensorFlow, as in a program of one's own."""
    return {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        **environ,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
    }


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
    path = described.path
    if not path.startswith("stub:") and not Path(path).exists():
        raise InvalidState(f"a comparison loads the model here, but this machine has no {path}")
    slots = [slot for slot in client.status().slots if slot.slot in described.ready_slots]
    if not slots:
        raise WorkerLost(f"no slot serves model {model} now")
    return path, slots, described.scheduling.max_batch
