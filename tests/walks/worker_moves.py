"""What workers do to the core: as they should be, and as they are."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from pool.wire.faults import Fault
from pool.wire.independence import RowsCompared
from pool.wire.signatures import DEFAULT_SIGNATURE
from pool.wire.worker_messages import Phase
from simulation.body import HOPELESS, SIGSEGV, STOPPED, Worker
from simulation.words import Failed, RowsChanged, Spoiled, Succeeded
from walks.outside import Outside
from walks.setting import INFOS

__all__ = ["WorkerMoves"]

OUTCOMES = (
    Succeeded("not to be used"),
    Failed(Fault.MODEL_FAILED, "of the model"),
    Failed(Fault.OUT_OF_MEMORY, "no memory for one"),
    Failed(Fault.INVALID_INPUT, "a feed has another dtype"),
    Spoiled(Fault.MODEL_FAILED, "somebody's"),
    Spoiled(Fault.OUT_OF_MEMORY, "no memory for all"),
)


class WorkerMoves(Outside):
    # --- workers as they should be --------------------------------------------------------------------------------

    def all_come_up(self, lanes: int) -> None:
        """Whoever stands by does so, or loads if it is to take a seat."""
        while (worker := self.worker(0, helloed=False, killed=False)) is not None:
            self.body.hello(worker)
        while (worker := self.worker(0, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes)

    def the_dead_are_followed(self, seconds: float, lanes: int) -> None:
        """Who was told to go goes, the pauses pass, and new workers come up."""
        for worker in list(self.body.workers.values()):
            if worker.killed or worker.told_to_stop:
                self.body.exit(worker, STOPPED)
        self.body.pass_time(seconds)
        self.all_come_up(lanes)

    def says_hello(self, pick: int) -> None:
        if (worker := self.worker(pick, helloed=False)) is not None:
            self.body.hello(worker)

    def says_ready(self, pick: int, lanes: int) -> None:
        if (worker := self.worker(pick, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes)

    def beats(self, pick: int, phase: Phase) -> None:
        if (worker := self.worker(pick, helloed=True)) is not None:
            self.core.beat(worker.slot, worker.incarnation, phase, "m")

    def stands_by(self, pick: int) -> None:
        if (worker := self.worker(pick, held=True)) is not None:
            self.core.beat(worker.slot, worker.incarnation, Phase.STANDING_BY)

    def answers(self, pick: int) -> None:
        """A poisonous job kills its worker instead, a guilty one makes its run fail."""
        if (found := self.running(pick)) is not None:
            worker, batch = found
            if worker.running[batch].kills:
                self.body.exit(worker, SIGSEGV)
            elif worker.running[batch].guilty:
                self.the_run_fails(pick, Fault.MODEL_FAILED)
            else:
                self.body.answer(worker, batch, times_s=(1e-7 * (pick % 3), 0.0))

    def answers_many(self, count: int, seconds: float) -> None:
        """In any order, after so long each; without a pause two come in one burst."""
        if seconds:
            for _ in range(count):
                self.body.pass_time(seconds)
                self.answers(self.rng.randrange(100))
            return
        for first in range(0, count, 2):
            with self.core.burst():
                for _ in range(min(2, count - first)):
                    self.answers(self.rng.randrange(100))

    def does_as_it_was_told(self, pick: int) -> None:
        """A kill takes effect, or a worker that was told to stop has stopped."""
        if (worker := self.worker(pick, killed=True) or self.worker(pick, told_to_stop=True)) is not None:
            self.body.exit(worker, STOPPED)

    def rows_are_compared(self, pick: int, count: int, differs: bool) -> None:
        """Jobs of the model whose rows are to be proven independent have run both ways."""
        able = [worker for worker in self.body.workers.values() if worker.ready and "padded" in worker.models]
        if able:
            worker = able[pick % len(able)]
            compared = RowsCompared("padded", "", DEFAULT_SIGNATURE, ("y",), "", True)
            for _ in range(count):
                self.core.compared(worker.slot, worker.incarnation, compared)
            if differs:
                differing = replace(compared, differs="apart")
                self.core.compared(worker.slot, worker.incarnation, differing)

    # --- runs that go wrong ---------------------------------------------------------------------------------------

    def the_run_fails(self, pick: int, fault: Fault) -> None:
        """A lone part by its own fault; of several, nobody knows whose it is."""
        if (found := self.running(pick)) is not None:
            worker, batch = found
            parts = len(worker.running[batch].parts)
            kind = Failed if parts == 1 else Spoiled
            self.body.answer(worker, batch, (kind(fault, "of the run"),) * parts)

    def rows_differ(self, pick: int) -> None:
        if (found := self.running(pick)) is not None and found[0].running[found[1]].by_rows:
            worker, batch = found
            self.body.answer(worker, batch, (RowsChanged("3 rows of 5"),) * len(worker.running[batch].parts))

    def each_part_ends_in_its_own_way(self, pick: int, seed: int) -> None:
        if (found := self.running(pick)) is not None:
            worker, batch = found
            parts = worker.running[batch].parts
            outcomes = random.Random(seed).choices(OUTCOMES, k=len(parts))
            self.body.answer(
                worker,
                batch,
                [
                    Succeeded(part) if isinstance(outcome, Succeeded) else outcome
                    for part, outcome in zip(parts, outcomes, strict=True)
                ],
            )

    def answers_a_wrong_number_of_parts(self, pick: int, more: int) -> None:
        if (found := self.running(pick)) is not None:
            worker, batch = found
            parts = max(0, len(worker.running[batch].parts) + more)
            self.body.answer(worker, batch, (Succeeded(-1),) * parts)

    # --- workers as they are --------------------------------------------------------------------------------------

    def dies(self, pick: int) -> None:
        if (worker := self.worker(pick)) is not None:
            self.body.exit(worker, SIGSEGV)

    def dies_while_it_runs(self, pick: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.exit(found[0], SIGSEGV)

    def dies_for_good(self, pick: int) -> None:
        if (worker := self.worker(pick)) is not None:
            self.body.exit(worker, HOPELESS)

    def cannot_be_reached(self, pick: int) -> None:
        if (found := self.running(pick)) is not None:
            self.body.cannot_reach(*found)

    def is_stuck_in_the_kernel(self, pick: int) -> None:
        """It lies about one batch while it runs others, and SIGKILL does not end it."""
        if (found := self.running(pick)) is not None:
            worker, batch = found
            lane = worker.running[batch].lane
            self.core.done(worker.slot, worker.incarnation, lane, batch, ())
            self.body.pass_time(self.core.policy.kill_timeout_s)

    def says_ready_without_its_models(self, pick: int) -> None:
        if (worker := self.worker(pick, welcomed=True, ready=False)) is not None:
            self.body.say_ready(worker, lanes=2, models=0)

    def spawning_fails(self, fails: bool) -> None:
        self.body.spawn_fails = fails

    # --- words that must not count --------------------------------------------------------------------------------

    def says_it_again(self, pick: int) -> None:
        """The answer of a batch that is over."""
        if self.body.said:
            self.body.say(*self.body.said[pick % len(self.body.said)])

    def answers_too_late(self, pick: int) -> None:
        """What a dead incarnation ran."""
        if self.body.unsaid:
            self.body.say(*self.body.unsaid[pick % len(self.body.unsaid)])

    def answers_for_another(self, pick: int, before: int) -> None:
        """The right answer, with the incarnation of one that was there before, or is to come."""
        if (found := self.running(pick)) is not None:
            worker, batch = found
            another = Worker(worker.slot, worker.incarnation - before)
            if (another.slot, another.incarnation) not in self.body.workers:
                self.body.say(another, batch, worker.running[batch])

    def answers_what_it_does_not_have(self, pick: int, batch: int) -> None:
        worker = self.worker(pick)
        if worker is not None and batch not in worker.running:
            self.core.done(worker.slot, worker.incarnation, 0, batch, (Succeeded(-1),))

    def somebody_else_speaks(self, slot: int, incarnation: int, batch: int, which: int) -> None:
        """An incarnation that is gone, was never spawned, or has no seat at all."""
        if (slot, incarnation) in self.body.workers:
            return
        core = self.core
        says: tuple[Callable[[], object], ...] = (
            lambda: core.held_up(slot, incarnation, "waiting for gpu:0"),
            lambda: core.refused(slot, incarnation, "gpu:0 has no room for two"),
            lambda: core.beat(slot, incarnation, Phase.AWAITING_DEVICE, "gpu:0"),
            lambda: core.beat(slot, incarnation, Phase.STANDING_BY),
            lambda: core.spawned(slot, incarnation, 1),
            lambda: core.hello(slot, incarnation),
            lambda: core.beat(slot, incarnation, Phase.LOADING),
            lambda: core.ready(slot, incarnation, 2, (INFOS["pure"],)),
            lambda: core.done(slot, incarnation, 0, batch, (Succeeded(-1),)),
            lambda: core.unsent(slot, incarnation, batch),
            lambda: core.died(slot, incarnation, SIGSEGV),
        )
        says[which]()
