"""Workers as the pool meets them: they take their time, make mistakes, crash, hang, start slowly, as a seed wants."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pool.wire.faults import Fault
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from simulation.at_scale.books import BrokenPromise, Job
from simulation.words import (
    Death,
    Failed,
    Killed,
    Outcome,
    Piece,
    RowsChanged,
    Sent,
    Spawned,
    Spoiled,
    Stopped,
    Succeeded,
    Welcomed,
)

if TYPE_CHECKING:
    from simulation.at_scale.world import World

__all__ = ["CALM", "Truth", "Weather", "Worker", "Workers"]

SIGSEGV = Death("SIGSEGV")
STOPPED = Death("exit code 0")
MODEL_ERROR = "a row that the model cannot compute"
NO_MEMORY = "no memory for so many rows"


@dataclass(frozen=True, slots=True)
class Truth:
    """What a model's batches really take, which the pool has to find out: `base_s` and `row_s` for each row fed.

    `noise` is the spread of a run's time, as a share of it; one run in `outliers` takes ten times as long. `fits`: how
    many rows a device has memory for at an instant. With `loses_rows` a joined batch comes back with other rows.
    """

    base_s: float = 0.01
    row_s: float = 0.001
    noise: float = 0.05
    outliers: int = 0
    rows: bool = True
    stateful: bool = False
    loses_rows: bool = False
    fits: Callable[[float], float] = lambda _now: math.inf

    def mean_s(self, rows: int) -> float:
        return self.base_s + self.row_s * max(1, rows)

    def seconds(self, rows: int, rng: random.Random) -> float:
        seconds = self.mean_s(rows)
        if self.noise:
            seconds *= max(0.5, 1.0 + self.noise * rng.gauss(0.0, 1.0))
        return seconds * 10 if self.outliers and not rng.randrange(self.outliers) else seconds

    def info(self, name: str) -> ModelInfo:
        spec = TensorSpec("float32", (-1, 4) if self.rows else (4,))
        return ModelInfo(name, f"stub:{name}", {"serving_default": Signature({"x": spec}, {"y": spec})}, self.stateful)


@dataclass(frozen=True, slots=True)
class Weather:
    """What goes wrong by itself: `crash`, `stall` and `unsent` are chances a batch, `stillborn` is one a start."""

    crash: float = 0.0
    stall: float = 0.0
    unsent: float = 0.0
    stillborn: float = 0.0
    boot_s: tuple[float, float] = (0.0, 0.0)
    slow_start: float = 0.0  # the chance that a start takes ten times as long
    unseen_s: float = 0.0  # so long at most until a death is seen
    late_answers: float = 0.0  # the chance that a dead worker's answers come after its exit was seen


CALM = Weather()


@dataclass(slots=True, eq=False)
class Worker:
    """`running` by batch. `dead`: it will say nothing more, though its exit may not have been seen yet."""

    slot: int
    incarnation: int
    lanes: int = 0
    dead: bool = False
    running: dict[int, Sent] = field(default_factory=dict)
    busy: set[int] = field(default_factory=set)


class Workers:
    """The processes of a world: one a slot at most."""

    def __init__(
        self, world: "World", truths: Mapping[str, Truth], weather: Weather, lanes: int, rng: random.Random
    ) -> None:
        self.alive: dict[int, Worker] = {}
        """By slot, until the exit is seen."""
        self.mishaps: Counter[str] = Counter()
        self.batches = 0
        self.rows = 0
        self.device_s: defaultdict[str, float] = defaultdict(float)
        self.truths = truths
        self._infos = {name: truth.info(name) for name, truth in truths.items()}
        self._world = world
        self._weather = weather
        self._lanes = lanes
        self._rng = rng

    # --- up -----------------------------------------------------------------------------------------------------

    def spawn(self, spawned: Spawned) -> None:
        if spawned.slot in self.alive:
            raise BrokenPromise(f"a second worker in the seat of {self.alive[spawned.slot]}")
        worker = self.alive[spawned.slot] = Worker(spawned.slot, spawned.incarnation)
        boot_s = self._rng.uniform(*self._weather.boot_s)
        if self._happens(self._weather.slow_start):
            self.mishaps["slow start"] += 1
            boot_s *= 10
        if self._happens(self._weather.stillborn):
            self.mishaps["stillborn"] += 1
            self._world.later(boot_s, self._exit, worker, SIGSEGV)
        else:
            self._world.later(boot_s / 2, self._hello, worker)

    def _hello(self, worker: Worker) -> None:
        if not worker.dead:
            self._world.core.hello(worker.slot, worker.incarnation)

    def welcome(self, welcomed: Welcomed) -> None:
        self._world.later(self._rng.uniform(*self._weather.boot_s) / 2, self._ready, self.alive[welcomed.slot])

    def _ready(self, worker: Worker) -> None:
        if not worker.dead:
            worker.lanes = self._lanes
            models = tuple(self._infos[name] for name in self._world.placement[worker.slot])
            self._world.core.ready(worker.slot, worker.incarnation, self._lanes, models)

    # --- work ---------------------------------------------------------------------------------------------------

    def run(self, run: Sent) -> None:
        worker = self.alive.get(run.slot)
        if worker is None or worker.incarnation != run.incarnation:
            raise BrokenPromise(f"leased to a dead incarnation: {run}")
        if not 0 <= run.lane < worker.lanes or run.lane in worker.busy:
            raise BrokenPromise(f"the lane has no credit: {run}")
        truth = self.truths[run.model]
        rows = sum([part.stop - part.start for part in run.parts])
        if run.pad_to < rows or (len(run.parts) > 1 and not (truth.rows and run.by_rows)):
            raise BrokenPromise(f"cannot run together: {run}")
        self._world.books.leased(run.parts, self._world.now, truth.loses_rows)
        worker.running[run.batch] = run
        worker.busy.add(run.lane)
        self.batches += 1
        self.rows += rows
        if worker.dead:
            return
        microbatch = run.microbatch or run.pad_to
        seconds = (-(-run.pad_to // microbatch) if microbatch else 1) * truth.seconds(microbatch, self._rng)
        luck = self._rng.random() if self._weather is not CALM else 1.0
        weather = self._weather
        if any(part.payload.poison for part in run.parts):  # type: ignore[attr-defined]  # a Job
            self._world.later(seconds / 2, self._die, worker)
        elif luck < weather.crash:
            self.mishaps["crash"] += 1
            self._world.later(seconds / 2, self._die, worker)
        elif luck < weather.crash + weather.stall:
            self.mishaps["stall"] += 1  # ended by the pool's own budget, and by its kill
        elif luck < weather.crash + weather.stall + weather.unsent:
            self.mishaps["unsent"] += 1
            self._world.later(0.0, self._unsent, worker, run)
        else:
            self._world.later(seconds, self._finish, worker, run, self._outcomes(truth, run), seconds)

    def _outcomes(self, truth: Truth, run: Sent) -> tuple[Outcome, ...]:
        parts = run.parts
        if run.pad_to > 0 and (run.microbatch or run.pad_to) > truth.fits(self._world.now):
            self.mishaps["out of memory"] += 1
            return _error(Fault.OUT_OF_MEMORY, NO_MEMORY, len(parts))
        if any(_is_guilty(part) for part in parts):
            self.mishaps["model error"] += 1
            return _error(Fault.MODEL_FAILED, MODEL_ERROR, len(parts))
        if truth.loses_rows and run.by_rows:
            self.mishaps["rows lost"] += 1
            return (RowsChanged("3 rows came back"),) * len(parts)
        return tuple([Succeeded((part.payload, part.start, part.stop)) for part in parts])

    def _finish(self, worker: Worker, run: Sent, outcomes: tuple[Outcome, ...], seconds: float) -> None:
        if worker.dead:
            if self._happens(self._weather.late_answers):
                self.mishaps["late answer"] += 1
                self._over(worker, run, False)
                self._done(worker, run, outcomes, seconds)  # the pool may have seen the exit, or not yet
            return
        self.device_s[run.model] += seconds
        self._over(worker, run, False)
        self._done(worker, run, outcomes, seconds)

    def _done(self, worker: Worker, run: Sent, outcomes: tuple[Outcome, ...], seconds: float) -> None:
        self._world.core.done(worker.slot, worker.incarnation, run.lane, run.batch, outcomes, seconds)

    def _unsent(self, worker: Worker, run: Sent) -> None:
        if not worker.dead:
            self._over(worker, run, False)
            self._world.core.unsent(worker.slot, worker.incarnation, run.batch)

    def _over(self, worker: Worker, run: Sent, died: bool) -> None:
        if worker.running.pop(run.batch, None) is not None:
            worker.busy.discard(run.lane)
            self._world.books.returned(run.parts, died)

    # --- down ---------------------------------------------------------------------------------------------------

    def kill(self, killed: Killed) -> None:
        self.mishaps["killed"] += 1
        self._die(self.alive[killed.slot])

    def stop(self, stopped: Stopped) -> None:
        worker = self.alive[stopped.slot]
        if not worker.dead:
            worker.dead = True
            self._world.later(0.0, self._exit, worker, STOPPED)

    def _die(self, worker: Worker) -> None:
        if not worker.dead:
            worker.dead = True
            self._world.later(self._rng.uniform(0.0, self._weather.unseen_s), self._exit, worker, SIGSEGV)

    def _exit(self, worker: Worker, death: Death) -> None:
        """The exit is seen."""
        worker.dead = True
        if self.alive.get(worker.slot) is not worker:
            return
        del self.alive[worker.slot]
        for run in list(worker.running.values()):
            self._over(worker, run, True)
        self._world.core.died(worker.slot, worker.incarnation, death)

    def _happens(self, chance: float) -> bool:
        return chance > 0.0 and self._rng.random() < chance


def _is_guilty(part: Piece) -> bool:
    job = part.payload
    assert isinstance(job, Job)
    return job.guilty >= 0 and (part.start <= job.guilty < part.stop or part.start == part.stop)


def _error(fault: Fault, text: str, parts: int) -> tuple[Outcome, ...]:
    """As the wire has it: a run with one part fails by that part's own fault."""
    return (Failed(fault, text),) if parts == 1 else (Spoiled(fault, text),) * parts
