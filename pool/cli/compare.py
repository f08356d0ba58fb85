"""`pool bench --compare-inprocess`: what the pool costs and gives beside the model in a process of one's own."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from pool.cli.bench_job import BenchJob
from pool.cli.bench_options import BenchOptions
from pool.cli.bench_progress import progress_bar
from pool.cli.bench_runner import Runner
from pool.cli.inprocess import InProcess, Turn
from pool.cli.measured import INTERRUPTED
from pool.cli.meter import Show
from pool.cli.percentile import percentile
from pool.cli.steadiness import Course, Warmup
from pool.client.client import Client
from pool.errors import PoolError
from pool.wire.entries import said_of

__all__ = ["Comparison", "Way", "compare", "usual_rows"]

ROUNDS = 5
WARMUP_PART = 0.1  # of a turn, for what the others' turns have cooled down
_NAMES = {"session": "Session.run in a process", "callable": "prepared callable in a process"}

Take = Callable[[float, float, Show], Turn]


@dataclass(slots=True)
class Way:
    """`jobs_a_call`: of which one call has the rows. `rates`: jobs a second, of each round."""

    name: str
    take: Take
    jobs_a_call: int = 1
    in_flight: int | None = None
    rates: list[float] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        self.rates.append(len(turn.latencies_s) * self.jobs_a_call / turn.seconds)
        self.latencies_s.extend(turn.latencies_s)


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
        found = []
        base = self.ways[0]
        base_p50_s = percentile(sorted(base.latencies_s), 50)
        for way in self.ways:
            ordered = sorted(way.latencies_s)
            ratios = [own / first for own, first in zip(way.rates, base.rates, strict=False)]
            rate = median(way.rates)
            found.append(
                {
                    "way": way.name,
                    "in_flight": way.in_flight,
                    "rows_a_call": self.job.rows * way.jobs_a_call,
                    "jobs_per_s": rate,
                    "rows_per_s": rate * self.job.rows,
                    "p50_ms": percentile(ordered, 50) * 1000,
                    "p99_ms": percentile(ordered, 99) * 1000,
                    "jobs_per_s_ratio": median(ratios),
                    "p50_ratio": percentile(ordered, 50) / base_p50_s,
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


def compare(client: Client, runner: Runner, job: BenchJob, options: BenchOptions) -> Comparison:
    """Raises `PoolError` where the model cannot be run in a process of its own, or nothing was measured."""
    path, slots, most_rows = _place(client, job.model)
    seconds = options.duration / ROUNDS
    batch_rows: Counter[int] = Counter()

    def pool_way(in_flight: int) -> Way:
        def take(turn_s: float, warmup_s: float, show: Show) -> Turn:
            measured = runner.closed(in_flight, Course(turn_s, Warmup(warmup_s)), options.timeout, show)
            batch_rows.update(measured.batch_rows)
            if measured.early == INTERRUPTED:
                raise KeyboardInterrupt
            if measured.early or not measured.latencies_s:
                failed = f"every job failed ({', '.join(measured.errors)})" if measured.errors else ""
                late = f"no job was answered within {turn_s:g} s; give a longer --duration"
                raise PoolError(measured.early or failed or late)
            return Turn(measured.elapsed_s, measured.latencies_s)

        return Way(f"pool, {in_flight:,} in flight", take, in_flight=in_flight)

    with ExitStack() as stack:
        bar = stack.enter_context(progress_bar())
        bar("")(f"{job.model}: loading it in a process of its own", 0.0, 0.0)
        child = stack.enter_context(InProcess(job, path, slots[0]["uuids"]))

        def child_way(way: str, jobs_a_call: int) -> Way:
            rows = f", {job.rows * jobs_a_call} rows a call" if jobs_a_call > 1 else ""

            def take(turn_s: float, warmup_s: float, _: Show) -> Turn:
                return child.turn(way, jobs_a_call, turn_s, warmup_s)

            return Way(_NAMES[way] + rows, take, jobs_a_call)

        in_flight = int(options.steps.values[0])
        counts = sorted({options.clients, in_flight})
        found = Comparison(job, [child_way(way, 1) for way in child.ways], slots[0]["device"], len(slots), seconds)
        found.ways += [pool_way(count) for count in counts]
        try:
            # A turn that does not count: until the pool has run some, nobody knows how many rows it runs together.
            found.ways[-1].take(seconds, 0.0, bar("first turn of the pool"))
            jobs_a_call = usual_rows(batch_rows, most_rows) // job.rows
            if jobs_a_call > 1 and all(inputs.rows for inputs in job.inputs):
                found.ways[len(child.ways) : len(child.ways)] = [child_way(way, jobs_a_call) for way in child.ways]
            for number in range(ROUNDS):
                for way in found.ways:
                    show = bar(f"round {number + 1} of {ROUNDS}, {way.name}")
                    show("", 0.0, 0.0)
                    way.add(way.take(seconds, seconds * WARMUP_PART, show))
        except KeyboardInterrupt:
            found.early = INTERRUPTED
    if not found.rounds:
        raise PoolError("interrupted before a whole round was measured")
    return found


def usual_rows(batch_rows: Counter[int], most_rows: int) -> int:
    """The rows with which the median job was run; 0 where that is not known.

    A lane may be given more than `most_rows`, its `max_batch`, which it runs one batch after the other.
    """
    return min(most_rows, int(percentile(sorted(batch_rows.elements()), 50))) if batch_rows else 0


def _place(client: Client, model: str) -> tuple[str, list[dict[str, Any]], int]:
    """Where the model lies, the slots that serve it, and its `max_batch`. Raises `PoolError`."""
    described = said_of(client.models(), model)
    if described is None or described["path"] is None:
        raise PoolError(f"model {model} changed while it was looked up")
    path = described["path"]
    if not path.startswith("stub:") and not Path(path).exists():
        raise PoolError(f"--compare-inprocess loads the model here, and there is no {path} on this machine")
    slots = [slot for slot in client.status()["slots"] if slot["slot"] in described["ready_slots"]]
    if not slots:
        raise PoolError(f"no slot serves model {model} now")
    return path, slots, described["scheduling"]["max_batch"]
