"""What has happened is heard, and each job that it concerns runs again or has its verdict; see `table`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet import Slot
from pool.core.jobs import FINISHED, Batch, Job, Part
from pool.core.orders import Orders
from pool.core.policy import Policy
from pool.core.queue import Answers, Backlog, Key, Line, Model, with_history
from pool.core.trial.blame import Loss, acquit, charge
from pool.core.trial.confinement import Confinement
from pool.core.trial.splits import may_fit
from pool.core.trial.table import KEEPS_STATE, NOTES, TABLE, VERDICTS, Cause, verdict
from pool.wire.faults import Fault
from pool.wire.unpacking import Unpacking

if TYPE_CHECKING:
    from pool.core.dispatch import Dispatch
    from pool.core.queue import Chunks

__all__ = ["Trial"]

RAN_ONCE = "it ran and would have to run again: {}"


class Trial:
    def __init__(
        self, policy: Policy, backlog: Backlog, dispatch: Dispatch, answers: Answers, chunks: Chunks, orders: Orders
    ) -> None:
        self.confinement = Confinement()
        self._policy = policy
        self._backlog = backlog
        self._dispatch = dispatch
        self._answers = answers
        self._chunks = chunks
        self._orders = orders

    def adopt(self, policy: Policy) -> None:
        self._policy = policy

    # --- the worker answered ------------------------------------------------------------------------------------

    def trusted(self, batch: Batch, failures: Mapping[int, told.Failure]) -> Mapping[int, told.Failure]:
        """Answers of joined rows are none if it was found out meanwhile that those depend on each other."""
        if not (why := batch.key.line.model.refuted(batch.key.signature)):
            return failures
        text = f"its rows depend on each other, as the pool has found out: {why}"
        return {number: failures.get(number) or told.RowsChanged(text) for number in range(len(batch.parts))}

    def failed(self, batch: Batch, failed: Sequence[tuple[Part, told.Failure]], now: float) -> None:
        """These parts of a batch that has ended have no answer."""
        unclear: dict[Cause, list[Part]] = {}
        text = ""
        for part, failure in failed:
            cause = _cause(batch, part, failure)
            if part.job.weight > 1 and (why := TABLE[cause].chunk) is not None:
                self._chunks.part(part.job, why, failure.text, now)
                self._remember(batch, cause, failure.text, now)
            elif cause is not Cause.OWN_ERROR:
                unclear.setdefault(cause, []).append(part)
                text = failure.text
            elif part.wanted:  # two may be of one job
                acquit(part)
                fault = Fault.MODEL_FAILED if isinstance(failure, told.RowsChanged) else failure.fault
                self._answers.fail(part.job, fault, failure.text, now)
        key = batch.key
        for cause, parts in unclear.items():
            if verdict(cause, self._kept_state(key, self._dispatch.slots[batch.slot])) is not None:
                for part in parts:
                    if part.wanted:
                        self._ends(cause, part.job, RAN_ONCE.format(text), now)
                continue
            self._remember(batch, cause, text, now)
            for part in parts:
                _note(batch, cause, part, text, now)
            self._again(batch, cause, parts, now)

    def _remember(self, batch: Batch, cause: Cause, text: str, now: float) -> None:
        """What it says of the signature: fewer rows run together from now on, or each job by itself."""
        key, model = batch.key, batch.key.line.model
        about = f"model {batch.model}, signature {key.signature or 'default'}"
        if cause is Cause.NO_MEMORY and (rows := model.ran_out(key, batch.microbatch, now)) is not None:
            self._orders.append(do.Notice(f"{about}: no memory for {batch.microbatch} rows; {rows} are tried next"))
        elif cause is Cause.ROWS_CHANGED and not model.refuted(key.signature) and model.run_alone(key.signature, text):
            self._orders.append(do.Notice(f"{about}: no longer batched: {text}"))
            self._dispatch.end_gathering(model, now)

    # --- the worker did not answer ------------------------------------------------------------------------------

    def unsent(self, batch: Batch, now: float) -> None:
        """The batch was never out, so this was no attempt."""
        self._again(batch, Cause.UNSENT, self._back(batch, Cause.UNSENT, "", now), now)

    def _again(self, batch: Batch, cause: Cause, parts: Sequence[Part], now: float) -> None:
        self._dispatch.reruns.place(batch.key.line, cause, parts, alone=batch.suspect)
        for job in [part.job for part in parts]:
            if job.parting is not None:  # one of its members was cancelled while all of it was out
                self._chunks.part(job, Unpacking.CANCELLED, job.parting.text, now)

    def lost(self, slot: Slot, batches: Sequence[Batch], death: str, now: float, gone: bool) -> None:
        """Its worker died, or was killed and is not seen to be `gone`.

        Deaths that may be another's fault never use up the last attempt, so no neighbour can end a job.
        """
        most = self._policy.max_attempts
        loss = Loss.of(slot)
        pieces = len(batches) > 1 and len({part.job for batch in batches for part in batch.parts}) == 1
        counted: set[Job] = set()  # two pieces of a job may be lost in one death
        for batch in batches:
            alone = batch.jobs == 1 and not batch.beside
            if batch.jobs == 1 and self._works(slot, batch.key.line):
                # Its client may have given it up long ago, and sends more of the kind.
                if batch.overran:
                    self._confine(Cause.OVERRAN, batch.parts[0].job, slot, now)
                elif alone and batch.parts[0].job.state in FINISHED:
                    self._confine(Cause.DIED_UNWANTED, batch.parts[0].job, slot, now)
            cause = Cause.DIED_ALONE if alone else Cause.DIED_SHARED
            again = []
            for part in batch.parts:
                if part.job not in counted and (part.wanted or part.job.parting is not None):
                    counted.add(part.job)
                    part.job.deaths += 1
                    if part.job.weight > 1:
                        part.job.died_in, part.job.loss = (*part.job.died_in, slot.number), loss
                        if not gone and part.job.state not in FINISHED:
                            self._ends(Cause.NOT_SEEN_GONE, part.job, death, now)
            for part in self._back(batch, cause, death, now):
                if part.job.weight > 1:
                    if not self._ends(Cause.DIED_SHARED, part.job, death, now, part.job.deaths, slot):
                        self._chunks.part(part.job, Unpacking.LOST, death, now)
                    continue
                charge(part, loss, alone or pieces)
                attempts = part.job.attempts + part.deaths
                if attempts < max(1, most - 1) or (alone and self._is_guilty(slot, part)):
                    part.deaths += 1
                    attempts += 1
                # A large job is judged by its pieces: each may be lost as often.
                why = cause if gone or attempts >= most else Cause.NOT_SEEN_GONE
                if not self._ends(why, part.job, death, now, attempts, slot):
                    again.append(part)
            self._dispatch.reruns.place(batch.key.line, cause, again)

    def _is_guilty(self, slot: Slot, part: Part) -> bool:
        """Whether the job is to blame for its deaths, the last of them alone in this slot, and not the slot."""
        return self._policy.max_attempts == 1 or len(set(part.died_alone_in)) > 1 or self._works(slot, part.job.line)

    def _works(self, slot: Slot, line: Line) -> bool:
        """Whether the slot has shown that it does, or is the only one that may still run the line's jobs."""
        return slot.worker.proven or not any(
            other is not slot and other.lasts for other in self._dispatch.holders(line)
        )

    # --- a pool did not answer, or does not any more --------------------------------------------------------------

    def refusal(self, model: Model, signature: str | None, attempts: int, in_doubt: bool) -> do.JobFailed | None:
        """Why a job of a model that is served here is not taken in again; None if it is."""
        spent = attempts >= self._policy.max_attempts
        cause = Cause.IN_DOUBT if in_doubt and not spent else Cause.POOLS_DIED
        fault = verdict(cause, model.keeps_state(signature), spent)
        return None if fault is None else do.JobFailed(fault, self._text(cause, fault, _sent(attempts), attempts))

    def came_again(self, job: Job, attempts: int, in_doubt: bool, now: float) -> None:
        """It is taken in. Those ends of the pool may be another job's fault, but they are attempts."""
        job.in_doubt = in_doubt
        job.attempts = max(0, attempts)
        if in_doubt:
            job.note(now, "came again: {}", _sent(attempts))

    def loaded(self, slot: Slot, now: float) -> None:
        """A worker is READY and has told which of its models keep state. It has no work yet."""
        if any(info.stateful for info in slot.worker.loaded.values()):
            for job in list(self._backlog.jobs.values()):
                if job.in_doubt:
                    self._ends(Cause.IN_DOUBT, job, _sent(job.attempts), now)

    def stopped(self, reason: str, now: float) -> None:
        """The pool stops before its jobs are done. Another may do them, unless that would be a second time."""
        for job in list(self._backlog.jobs.values()):
            cause = Cause.STOPPED_RUNNING if job.out else Cause.STOPPED_WAITING
            self._ends(cause, job, f"the pool stopped before the job was done: {reason}", now)

    def _back(self, batch: Batch, cause: Cause, why: str, now: float) -> list[Part]:
        """The parts of a batch that gives no answers, which are out no more; without those that nobody wants."""
        wanted = []
        for part in batch.parts:
            job = part.job
            job.out -= 1
            if part.wanted:
                _note(batch, cause, part, why, now)
                wanted.append(part)
            else:
                job.came_back()
                if job.parting is not None:
                    self._chunks.part(job, TABLE[cause].chunk or job.parting.cause, why or job.parting.text, now)
        return wanted

    # --- what the table says --------------------------------------------------------------------------------------

    def _ends(self, cause: Cause, job: Job, why: str, now: float, attempts: int = 0, slot: Slot | None = None) -> bool:
        """Whether it runs nowhere any more after this; then it has its verdict. `slot`: where its last attempt was."""
        fault = verdict(cause, self._kept_state(job.key, slot), attempts >= self._policy.max_attempts)
        if fault is None:
            return False
        if fault is Fault.QUARANTINED:
            history = "\n".join(job.told())
            key, client, rows = job.key, job.client.route, job.rows or None
            self._orders.append(
                do.KeepJob(
                    job.id, key.model, key.signature, key.outputs, rows, job.payload, history, client, job.number
                )
            )
        if slot is not None and fault is TABLE[cause].verdict:
            self._confine(cause, job, slot, now)
        self._answers.fail(job, fault, with_history(self._text(cause, fault, why, attempts), job), now)
        return True

    @staticmethod
    def _kept_state(key: Key, slot: Slot | None) -> bool:
        """Whether a run may have changed what later ones give; `slot`: where it was, if anywhere."""
        model = key.line.model
        info = None if slot is None else slot.worker.loaded.get(model.name)
        return model.keeps_state(key.signature, info)

    def _text(self, cause: Cause, fault: Fault, why: str, attempts: int) -> str:
        said = KEEPS_STATE if fault is TABLE[cause].stateful else VERDICTS[cause]
        return said.format(why, attempts, self._policy.max_attempts)

    def _confine(self, cause: Cause, job: Job, slot: Slot, now: float) -> None:
        if TABLE[cause].confines:
            self.confinement.confine(job.client.route, job.line.model.name, slot, now)


def _cause(batch: Batch, part: Part, failure: told.Failure) -> Cause:
    match failure:
        case told.RowsChanged() if batch.joined or not batch.key.line.model.refuted(batch.key.signature):
            return Cause.ROWS_CHANGED
        case told.Failed(Fault.OUT_OF_MEMORY) if may_fit(batch, part):
            return Cause.NO_MEMORY
        case told.Spoiled(fault) if len(batch.parts) > 1:
            return Cause.NO_MEMORY if fault is Fault.OUT_OF_MEMORY else Cause.SHARED_ERROR
    return Cause.OWN_ERROR


def _note(batch: Batch, cause: Cause, part: Part, why: str, now: float) -> None:
    if cause in NOTES:
        part.job.note(now, NOTES[cause], why, batch.number, batch.slot)


def _sent(attempts: int) -> str:
    times = "once" if attempts == 1 else f"{attempts} times"
    died = f"; the pool ended unexpectedly {times} while it held the job" if attempts > 0 else ""
    return f"it was sent before and got no answer{died}"
