"""What becomes of a batch that its worker has answered: what it cost is learnt, each job has its answer.

What has no answer is the affair of `trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pool.core import events as told
from pool.core.dispatch import Dispatch
from pool.core.fleet import Slot
from pool.core.jobs import FINISHED, Batch, JobState, Part
from pool.core.queue import Answers, Chunks, Counts
from pool.core.trial import Trial, acquit

__all__ = ["Settlement"]

REMEMBERED_EVERY = 8  # batches of a key: the names of one that runs all the time are near the end anyway


class Settlement:
    def __init__(
        self, dispatch: Dispatch, trial: Trial, answers: Answers, chunks: Chunks, own: Callable[[object], object]
    ) -> None:
        """`own`: makes of a part's answer one that may be kept for long."""
        self._dispatch = dispatch
        self._trial = trial
        self._answers = answers
        self._chunks = chunks
        self._own = own

    def done(
        self,
        slot: Slot,
        batch: Batch,
        payloads: Sequence[object],
        failures: Mapping[int, told.Failure],
        run_s: float,
        fetch_s: float,
        now: float,
    ) -> None:
        """A payload a part, or in `failures` why there is none. The batch has ended, its slot is served afterwards."""
        worker = slot.worker
        first = not worker.proven
        worker.finished += 1
        slot.finished += 1
        if not failures:
            self._learn(batch, run_s, now)
        if batch.joined:
            failures = self._trial.trusted(batch, failures)
        tally, version = batch.key.line.model.tally, batch.version
        if now >= tally.due:
            tally.snap(now)
        counts = tally.versions[version] if version in tally.versions else tally.of(version)
        failed: list[tuple[Part, told.Failure]] = []
        given = 0  # answers
        for place, part in enumerate(batch.parts):
            job, payload = part.job, payloads[place]
            failure = failures.get(place) if failures else None
            job.out -= 1
            if part.round != job.round or job.state in FINISHED:
                job.came_back()
                if job.parting is not None:
                    self._chunks.came_back(job, now)
            elif failure is not None:
                failed.append((part, failure))
            else:
                if part.loss is not None:
                    acquit(part)
                if self._succeeded(slot, batch, part, payload, counts, run_s, fetch_s, now):
                    given += job.weight
        counts.batch(batch.rows, given, run_s)
        if batch.joined and given:
            batch.key.line.model.answered_joined(batch.key.signature, given)
        ended = given
        if failed:
            self._trial.failed(batch, failed, now)
            ended += len({part.job for part, _ in failed if part.job.state is JobState.FAILED and part.job.weight == 1})
        worker.jobs_done += ended
        slot.jobs_done += ended
        if first:
            slot.in_vain = 0
            self._dispatch.reruns.slot_came()

    def _learn(self, batch: Batch, run_s: float, now: float) -> None:
        """What it cost, as it did not fail: a failure says nothing about what a result takes."""
        key, cost, model = batch.key, batch.key.cost, batch.key.line.model
        microbatches = batch.microbatches if batch.padded > batch.microbatch else 1
        cost.learn(batch.microbatch, (now - batch.started) / microbatches, now)
        if batch.padded:
            cost.ran(batch.padded, run_s)
        if cost.batches % REMEMBERED_EVERY == 1:
            model.remember(key)
        if model.is_sized:
            model.fitted(key, batch.microbatch, now)

    def _succeeded(
        self,
        slot: Slot,
        batch: Batch,
        part: Part,
        payload: object,
        counts: Counts,
        run_s: float,
        fetch_s: float,
        now: float,
    ) -> bool:
        """Whether its job has its answer now."""
        job = part.job
        job.answered_rows += part.rows
        if part.rows == job.rows:
            payloads: tuple[object, ...] = (payload,)
        else:
            pieces = job.pieces = job.pieces or {}
            whole = job.answered_rows >= job.rows
            pieces[part.start] = payload if whole else self._own(payload)
            if not whole:
                job.came_back()
                return False
            payloads = tuple(pieces[start] for start in sorted(pieces))
        self._answers.done(job, payloads, batch, slot, counts, run_s, fetch_s, now)
        return True
