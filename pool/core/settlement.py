"""What becomes of the parts of a batch that is over.

done                 ─► the job's answer, once all its rows have theirs
failed, alone        ─► the job's error
failed, shared       ─► taken apart (`isolation`) and run again
out of memory        ─► run again in halves; the error once a single row does not fit
the worker died      ─► suspects: run again, each alone in a worker; the error after `max_attempts` deaths
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat

from pool.core import actions as do
from pool.core import events as told
from pool.core.answers import Answers, with_story
from pool.core.blame import Loss, acquit, charge
from pool.core.cells import Cells
from pool.core.dispatch import Dispatch
from pool.core.isolation import Group, bisected, halved, may_fit, singly, whole_again
from pool.core.jobs import FINISHED, Batch, Job, JobState, Part
from pool.core.line import Line
from pool.core.orders import Orders
from pool.core.packs import Again, Packs
from pool.core.policy import Policy
from pool.core.slots import Slot
from pool.wire.faults import Fault

__all__ = ["Settlement"]

RAN_ONCE = "it ran, and would have to run again: {}; the model keeps state, so it does not"
REMEMBERED_EVERY = 8  # batches of a key: the names of one that runs all the time are near the end anyway
WRONG_SHARE = 0.1  # the clients' charges are corrected where the guess was further off; among so many, less evens out


class Settlement:
    def __init__(
        self,
        policy: Policy,
        dispatch: Dispatch,
        answers: Answers,
        packs: Packs,
        cells: Cells,
        orders: Orders,
        own: Callable[[object], object],
    ) -> None:
        """`own`: makes of a part's answer one that may be kept for long."""
        self._own = own
        self._policy = policy
        self._dispatch = dispatch
        self._answers = answers
        self._packs = packs
        self._cells = cells
        self._orders = orders

    def adopt(self, policy: Policy) -> None:
        self._policy = policy

    # --- the worker answered ------------------------------------------------------------------------------------

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
        first = slot.jobs_done == slot.jobs_done_before
        jobs = batch.jobs
        slot.jobs_done += jobs
        slot.in_vain = 0
        self._charge(batch, now)
        if not failures:
            self._learn(batch, run_s, now)
        spoiled: list[Part] = []
        fault, text = Fault.MODEL_FAILED, ""
        unjoined: list[Part] = []
        returned: list[Part] = []
        given = 0  # answers
        if batch.joined:
            failures = _trusted(batch, failures)
        heard: Iterable[tuple[Part, told.Failure | Again | None, object]]
        if batch.packed:
            heard = self._packs.heard(batch, payloads, failures, now)
        else:
            why = map(failures.get, range(len(payloads))) if failures else repeat(None)
            heard = zip(batch.parts, why, payloads, strict=False)
        for part, failure, payload in heard:
            job = part.job
            if (part.round != job.round or job.state in FINISHED or part.heirs) and not part.wanted:
                _let_go(job)
                continue
            job.out -= 1
            match failure:
                case None:
                    if part.loss is not None:
                        acquit(part)
                    if self._succeeded(slot, batch, part, payload, run_s, fetch_s, now):
                        given += len(job.members) if job.members else 1
                case told.Failed(Fault.OUT_OF_MEMORY, text) if may_fit(batch, part):
                    spoiled.append(part)
                    fault = Fault.OUT_OF_MEMORY
                case told.Failed(own_fault, own_text):
                    acquit(part)
                    self._answers.fail(job, own_fault, own_text, now)
                case told.Spoiled(own_fault, own_text) if jobs == 1:
                    acquit(part)
                    self._answers.fail(job, own_fault, own_text, now)  # there is nobody else to blame
                case told.Spoiled(fault, text):
                    spoiled.append(part)
                case told.RowsChanged(text):
                    unjoined.append(part)
                case Again():
                    returned.append(part)
        if batch.joined and given:
            batch.key.line.model.answered_joined(batch.key.signature, given)
        if (spoiled or unjoined or returned) and batch.key.line.model.keeps_state(batch.key.signature):
            for part in (*spoiled, *unjoined, *returned):
                if part.wanted:  # two may be of one job
                    said = RAN_ONCE.format(text or "others with it did not end well")
                    self._answers.fail(part.job, Fault.STATEFUL_WORKER_LOST, with_story(said, part.job), now)
            spoiled, unjoined, returned = [], [], []
        if spoiled:
            self._take_apart(batch, spoiled, fault, text, now)
        if unjoined:
            self._run_whole(batch, unjoined, text, now)
        if returned or (batch.packed and any(part.heirs for part in batch.parts)):
            self._again(batch, [tuple(returned)])
        if first:
            self._dispatch.suspects.slot_came()

    def _learn(self, batch: Batch, run_s: float, now: float) -> None:
        """What it cost, as it did not fail: a failure says nothing about what a result takes."""
        key, cost, model = batch.key, batch.key.cost, batch.key.line.model
        strides = batch.strides if batch.padded > batch.stride else 1
        cost.learn(batch.stride, (now - batch.started) / strides, now)
        if batch.padded:
            cost.ran(batch.padded, run_s)
        if cost.batches % REMEMBERED_EVERY == 1:
            model.remember(key)
        if model.is_sized:
            model.fitted(key, batch.stride, now)

    def _charge(self, batch: Batch, now: float) -> None:
        """Model and clients pay for the time that the batch took, whatever came of it, instead of what was guessed."""
        key, seconds = batch.key, now - batch.started
        line = key.line
        line.model.charge(seconds - batch.cost_s)
        if seconds < batch.cost_s and (line.model.common.by_age or line.model.common.retries):
            self._dispatch.charged_less(line.model)
        row_s = seconds / (batch.rows or 1)
        for part in batch.parts:
            wrong_s = row_s * (part.rows or 1) - part.charged_s
            most_s = WRONG_SHARE * part.charged_s
            if not -most_s <= wrong_s <= most_s:
                line.charge(part.job.client, wrong_s)
            part.charged_s = 0.0  # if it runs again, that is paid for too

    def _succeeded(
        self, slot: Slot, batch: Batch, part: Part, payload: object, run_s: float, fetch_s: float, now: float
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
                if not job.out:
                    job.become(JobState.QUEUED)
                return False
            payloads = tuple(pieces[start] for start in sorted(pieces))
        self._answers.done(job, payloads, batch, slot.device, run_s, fetch_s, now)
        return True

    # --- the run failed -----------------------------------------------------------------------------------------

    def _take_apart(self, batch: Batch, parts: Sequence[Part], fault: Fault, text: str, now: float) -> None:
        """A shared run failed: smaller ones find out by whom, or fit."""
        groups: list[Group]
        if fault is Fault.OUT_OF_MEMORY:
            groups = halved(parts)
            if (rows := batch.key.line.model.ran_out(batch.key, batch.stride, now)) is not None:
                name = batch.key.signature or "default"
                tried = f"no memory for {batch.stride} rows, {rows} are tried now"
                self._orders.append(do.Notice(f"model {batch.model}, signature {name}: {tried}"))
        else:
            groups = bisected(parts)
        for part in parts:
            part.job.note(now, "batch {} failed, and is taken apart: {}", batch.number, text)
        self._again(batch, groups)

    def _run_whole(self, batch: Batch, parts: Sequence[Part], text: str, now: float) -> None:
        """The rows of this signature do not come back as they were fed: from now on each job runs by itself."""
        model = batch.key.line.model
        if not model.refuted(batch.key.signature) and model.run_alone(batch.key.signature, text):
            name = batch.key.signature or "default"
            self._orders.append(do.Notice(f"model {batch.model}, signature {name}: not batched any more: {text}"))
            self._dispatch.end_gathering(model, now)
        whole: list[Part] = []
        for part in parts:
            part.job.note(now, "batch {} is run again job by job: {}", batch.number, text)
            whole.append(whole_again(part))
        self._again(batch, singly(whole))

    def _again(self, batch: Batch, groups: Sequence[Group]) -> None:
        """What killed a worker once stays by itself, whatever else comes of it."""
        suspects: list[Part] = []
        others: list[Group] = []
        for group in groups:
            if batch.suspect or (len(group) == 1 and group[0].is_suspect):
                suspects += group
            else:
                others.append(group)
        if suspects:
            self._dispatch.suspect(batch.key.line, suspects)
        self._dispatch.again(batch.key.line, others)

    # --- the worker did not answer ------------------------------------------------------------------------------

    def recalled(self, slot: Slot, batch: Batch, now: float) -> None:
        """LEASED → QUEUED: it stays here, so nobody pays for it."""
        self._charge(batch, now)
        self.unsent(slot, batch, now)

    def unsent(self, slot: Slot, batch: Batch, now: float) -> None:
        """LEASED → QUEUED: the batch was never out, so this was no attempt."""
        parts = []
        for part in batch.claims():
            if not part.wanted:
                _let_go(part.job)
                continue
            part.job.out -= 1
            part.job.note(now, "never reached slot {}", slot.number)
            parts.append(part)
        self._again(batch, [tuple(parts)])

    def lost(self, slot: Slot, batches: Sequence[Batch], death: str, now: float, gone: bool) -> None:
        """LEASED → QUEUED, or the reason why a job must not run again; `gone`: the exit of its worker was seen.

        Deaths that may be another's fault never use up the last attempt, so no neighbour can end a job.
        """
        most = self._policy.max_attempts
        loss = Loss.of(slot)
        counted: set[Job] = set()  # two pieces of a job may be lost in one death
        for batch in batches:
            self._charge(batch, now)
        shaken = self._packs.lost(batches, now)
        for batch in batches:
            jobs = batch.jobs
            alone = jobs == 1 and not batch.beside
            suspects = []
            if batch.overran and jobs == 1 and (slot.proven or not self._elsewhere(slot, batch.key.line)):
                # Its client may have given it up long ago, and sends more of the kind.
                self._cells.confine(batch.parts[0].job.client.route, batch.model, slot, now)
            for part in batch.claims():
                if not part.wanted:
                    _let_go(part.job)
                    continue
                part.job.out -= 1
                part.job.note(now, "lost: {}", death)
                if part.job not in counted:
                    counted.add(part.job)
                    part.job.losses += 1
                charge(part, loss)
                if part.losses < max(1, most - 1) or (alone and self._is_guilty(slot, part)):
                    part.losses += 1
                if self._may_run_again(slot, part, death, alone, gone, now):
                    suspects.append(part)
            if suspects:
                self._dispatch.suspect(batch.key.line, suspects)
        for line in shaken:
            self._dispatch.offer(line)

    def _may_run_again(self, slot: Slot, part: Part, death: str, alone: bool, gone: bool, now: float) -> bool:
        """If not, the job gets its answer here. A large job is judged by its pieces: each may be lost as often."""
        most, job = self._policy.max_attempts, part.job
        if job.line.model.keeps_state(job.key.signature):
            text = f"{death}; the model keeps state and the job may have started, so it is not run again"
            fault = Fault.STATEFUL_WORKER_LOST
        elif part.losses >= most and alone:
            text = f"{part.losses} of {most} attempts ended with their worker, the last with this job alone in it"
            fault = Fault.QUARANTINED
            self._keep(job)
            self._cells.confine(job.client.route, job.line.model.name, slot, now)
        elif part.losses >= most:
            text = f"{part.losses} of {most} attempts ended with their worker"
            fault = Fault.WORKER_LOST
        elif not gone:
            text = "its worker is not seen to be gone, so the job is not run elsewhere"
            fault = Fault.WORKER_LOST
        else:
            return True
        self._answers.fail(job, fault, with_story(text, job), now)
        return False

    def _is_guilty(self, slot: Slot, part: Part) -> bool:
        """Whether the job is to blame for its deaths, the last of them alone in this slot, and not the slot."""
        if self._policy.max_attempts == 1 or len(set(part.died_in)) > 1:
            return True
        return slot.proven or not self._elsewhere(slot, part.job.line)

    def _elsewhere(self, slot: Slot, line: Line) -> bool:
        """Whether another slot may still run the line's jobs."""
        return any(other is not slot and other.lasts for other in self._dispatch.holders(line))

    def _keep(self, job: Job) -> None:
        story = "\n".join(job.told())
        key = job.key
        self._orders.append(
            do.KeepJob(job.id, key.model, key.signature, key.outputs, job.rows or None, job.payload, story, job.base)
        )


def _trusted(batch: Batch, failures: Mapping[int, told.Failure]) -> Mapping[int, told.Failure]:
    """Answers of joined rows are none if it was found out meanwhile that those depend on each other."""
    if not (why := batch.key.line.model.refuted(batch.key.signature)):
        return failures
    text = f"its rows depend on each other, as was found out meanwhile: {why}"
    return {number: failures.get(number) or told.RowsChanged(text) for number in range(len(batch.parts))}


def _let_go(job: Job) -> None:
    """A part that nobody wants is back; its job may have ended, or have started over."""
    job.out -= 1
    if not job.out and job.state is JobState.LEASED:
        job.become(JobState.QUEUED)
