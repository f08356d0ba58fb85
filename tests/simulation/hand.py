"""A test's own hand on the core: workers come up at once, and a batch ends when and as the test says."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool.core.policy import ModelPolicy, Policy
from simulation.body import Body, Worker
from simulation.plans import model_info, slot_plan
from simulation.words import Answered, JobDone, JobFailed, Outcome

__all__ = ["Hand", "Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """A batch that was sent."""

    worker: Worker
    batch: int
    parts: tuple[tuple[int, int, int], ...]  # serial, start, stop

    @property
    def rows(self) -> int:
        return sum(stop - start for _, start, stop in self.parts)


class Hand(Body):
    """Of `client`, whose jobs are numbered from 1; the ledger and the core's books are checked all the while."""

    def __init__(
        self,
        *placement: Sequence[str],
        models: Mapping[str, ModelPolicy] | None = None,
        seed: int = 0,
        validates: bool = True,
        **policy: Any,
    ) -> None:
        plans = [slot_plan(number, names) for number, names in enumerate(placement)]
        infos = {name: model_info(name) for names in placement for name in names}
        super().__init__(Policy(models=models or {}, **policy), plans, infos, random.Random(seed), validates)
        self.runs: list[Run] = []
        """All, in the order in which they were sent."""
        self.answers: dict[int, Answered] = {}

    def serve(self, lanes: int = 1) -> Hand:
        """Started, with every slot READY."""
        self.core.start()
        for worker in list(self.workers.values()):
            self.hello(worker)
            self.say_ready(worker, lanes)
        return self

    def ask(self, *, rows: int | None, timeout_s: float | None = None) -> int:
        number = self.ledger.arrived + 1
        self.submit(b"client", number, "m", rows=rows, timeout_s=timeout_s)
        return number

    def end(self, run: Run, outcomes: Sequence[Outcome] | None = None) -> None:
        """Each part with its own answer, unless told otherwise."""
        self.answer(run.worker, run.batch, outcomes)

    def run_of(self, number: int) -> Run:
        """Where the job was sent the last time."""
        return next(run for run in reversed(self.runs) if number - 1 in [serial for serial, _, _ in run.parts])

    def done(self, number: int) -> JobDone:
        answer = self.answers[number]
        assert isinstance(answer, JobDone), answer
        return answer

    def failed(self, number: int) -> JobFailed:
        answer = self.answers[number]
        assert isinstance(answer, JobFailed), answer
        return answer

    # --- what the core did --------------------------------------------------------------------------------------

    def answered(self, answer: Answered) -> None:
        assert answer.job not in self.answers, f"job {answer.job} is answered twice"
        self.answers[answer.job] = answer

    def sent(self, worker: Worker, batch: int) -> None:
        self.runs.append(Run(worker, batch, worker.running[batch].parts))
