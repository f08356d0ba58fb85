"""The outside of the core, of which each method is one thing that can happen to it; the fake body obeys the core.

`ClientMoves` and `WorkerMoves` are what they say. Here are the pool, time, and what is checked after each move.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pool.core.policy import Policy, SlotPlan
from pool.wire.signatures import ModelInfo
from simulation.body import STOPPED, Body, Running, Worker
from simulation.plans import slot_plan
from simulation.words import Death, Outcome, Seen, Succeeded
from walks.setting import INFOS, PLACEMENTS, POLICIES

__all__ = ["Outside"]

SLACK_S = 1e-6
LATE = 20  # batches of dead incarnations of which answers may still come


class Remembering(Body):
    """It can say again what was said, and what it was too late for."""

    def __init__(
        self,
        policy: Policy,
        plans: Sequence[SlotPlan],
        infos: Mapping[str, ModelInfo],
        rng: random.Random,
        validates: bool,
        watch: Callable[[Seen], None],
    ) -> None:
        super().__init__(policy, plans, infos, rng, validates)
        self._watch = watch
        self.said: deque[tuple[Worker, int, Running]] = deque(maxlen=LATE)
        self.unsaid: deque[tuple[Worker, int, Running]] = deque(maxlen=LATE)

    def _obey(self, seen: Seen) -> None:
        self._watch(seen)
        super()._obey(seen)

    def answer(
        self,
        worker: Worker,
        batch: int,
        outcomes: Sequence[Outcome] | None = None,
        times_s: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self.said.append((worker, batch, worker.running[batch]))
        super().answer(worker, batch, outcomes, times_s)

    def exit(self, worker: Worker, death: Death) -> None:
        self.unsaid += [(worker, batch, running) for batch, running in worker.running.items()]
        super().exit(worker, death)

    def say(self, worker: Worker, batch: int, running: Running) -> None:
        """The worker gives the right answer, whether anybody still waits for it or not."""
        outcomes = [Succeeded(part) for part in running.parts]
        self.core.done(worker.slot, worker.incarnation, running.lane, batch, outcomes)


class Outside:
    """A pool from its start to its end. REQUIRES `end` at last, which asserts what has to be true then."""

    def __init__(
        self, placement: int, policy: int, seed: int, *, validates: bool, watch: Callable[[Seen], None]
    ) -> None:
        """By their numbers in `setting`. `watch` is told of each thing that the core does, in order."""
        self.rng = random.Random(seed)
        self.placement = PLACEMENTS[placement]
        plans = [slot_plan(number, models, {"pure": 1, "counter": 1}) for number, models in enumerate(self.placement)]
        self.body = Remembering(POLICIES[policy], plans, INFOS, self.rng, validates, watch)
        self.core = self.body.core
        self.numbers = 0
        self.slept_s = 0.0
        self.ends_at: float | None = None
        self.core.start()

    def worker(self, pick: int, **marks: bool) -> Worker | None:
        """One of the workers whose fields are so."""
        fitting = [
            worker
            for worker in self.body.workers.values()
            if all(getattr(worker, name) is value for name, value in marks.items())
        ]
        return fitting[pick % len(fitting)] if fitting else None

    def running(self, pick: int) -> tuple[Worker, int] | None:
        pairs = [(worker, batch) for worker in self.body.workers.values() for batch in worker.running]
        return pairs[pick % len(pairs)] if pairs else None

    # --- the pool -------------------------------------------------------------------------------------------------

    def a_slot_is_to_have_other_models(self, pick: int, models: tuple[str, ...]) -> None:
        self.body.plan(pick % len(self.body.planned), models)

    def another_version_is_to_be_served(self, model: str, version: int) -> None:
        """By who is welcomed from now on; who serves already has what it has."""
        self.body.versions[model] = version

    def a_restart_is_asked(self, slot: int, sparing: bool) -> None:
        self.core.restart(slot, sparing)

    def a_drain_is_asked(self, slot: int) -> None:
        self.core.drain(slot)

    def all_that_is_down_is_restarted(self) -> None:
        """Somebody looks after the pool; what SIGKILL did not end is gone at last."""
        for worker in list(self.body.workers.values()):
            if worker.killed:
                self.body.exit(worker, STOPPED)
        served = {worker.slot for worker in self.body.workers.values()}
        for slot in range(len(self.placement)):
            if slot not in served:
                self.core.restart(slot)

    def devices_have_room_for_two(self, has_room: bool) -> None:
        self.body.has_room = has_room

    def memory_is_measured(self, slot: int, incarnation: int, resident_bytes: int) -> None:
        self.core.measured(slot, incarnation, resident_bytes)

    def the_policy_changes(self, other: dict[str, object]) -> None:
        self.core.policy_changed(replace(self.core.policy, **other))  # type: ignore[arg-type]

    def a_stop_is_asked(self) -> None:
        if self.ends_at is None:
            self.ends_at = self.body.now - self.slept_s + self.core.policy.longest_stop_s
        self.core.stop("the program asked")

    # --- time -----------------------------------------------------------------------------------------------------

    def time_passes(self, seconds: float) -> None:
        self.body.pass_time(seconds)

    def the_pool_sleeps(self, seconds: float) -> None:
        """SIGSTOP or a suspended machine: many deadlines are behind when the next event comes."""
        self.body.now += seconds
        self.slept_s += seconds
        self.core.tick()

    # --- promises -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What holds after each move, beside what the ledger has checked on the way."""
        ledger = self.body.ledger
        assert self.core.held() == ledger.open.keys(), "the core holds other jobs than are open"
        assert self.core.answered.total() == ledger.answered + ledger.cancelled + ledger.refused
        assert ledger.retained() == [], "payloads of jobs that have ended are held"
        self._check_counts()
        self._check_stop()

    def _check_counts(self) -> None:
        """Those by model and version are of the same jobs as those of all, and each result is in each histogram."""
        counted = self.core.answered_nameless.copy()
        for _, versions in self.core.counts_snapshot():
            for counts in versions:
                counted.update(counts["jobs"])
                for stage in ("total", "queue", "batch_wait", "run"):
                    assert sum(counts[stage]["counts"]) == counts["jobs"]["done"], (stage, counts)
        assert +counted == +self.core.answered

    def _check_stop(self) -> None:
        if self.ends_at is not None and self.body.ledger.stopped is None:
            assert self.body.now - self.slept_s <= self.ends_at + SLACK_S, "the pool does not stop in time"

    def end(self) -> None:
        """With workers of which some obey, some must be killed, and some are stuck in the kernel."""
        ledger = self.body.ledger
        if self.ends_at is None:
            self.a_stop_is_asked()
        stuck = {seat for seat in self.body.workers if self.rng.random() < 0.1}
        deaf = {seat for seat in self.body.workers if self.rng.random() < 0.2}
        while ledger.stopped is None:
            self.body.pass_time(0.5)
            for seat, worker in list(self.body.workers.items()):
                if (worker.killed and seat not in stuck) or (worker.told_to_stop and seat not in stuck | deaf):
                    self.body.exit(worker, STOPPED)
                elif worker.running and self.rng.random() < 0.5:
                    self.body.answer(worker, next(iter(worker.running)))
            self._check_stop()
        for worker in list(self.body.workers.values()):
            self.body.exit(worker, STOPPED)  # gone at last, and nobody follows
        assert not self.body.workers
        assert ledger.arrived == ledger.answered + ledger.cancelled + ledger.unpacked, "a job without an answer"
        assert ledger.retained() == []
        self.body.pass_time(max(self.core.policy.longest_stop_s, ledger.remembers_until() - self.body.now))
        assert self.core.next_deadline() is None, "the core waits for something though all is over"
