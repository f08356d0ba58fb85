"""Jobs that come again: they were sent before, to a pool that never answered them, and may have started there.

sent again ─┬─ its pools have ended too often ─────────────────────────────────► WORKER_LOST
            ├─ its model keeps state, as a worker has told, now or when it loads ─► STATEFUL_WORKER_LOST
            └─ else it waits like any other; a worker's death with it alone may be its last
"""

from __future__ import annotations

from pool.core.actions import JobFailed
from pool.core.answers import Answers, with_story
from pool.core.backlog import Backlog
from pool.core.jobs import Job
from pool.core.models import Model
from pool.core.policy import Policy
from pool.core.slots import Slot
from pool.wire.faults import Fault

__all__ = ["Doubts"]

KEEPS_STATE = "the model keeps state and the job may have started, so it is not run again"


class Doubts:
    def __init__(self, policy: Policy, backlog: Backlog, answers: Answers) -> None:
        self._policy = policy
        self._backlog = backlog
        self._answers = answers

    def adopt(self, policy: Policy) -> None:
        self._policy = policy

    def refusal(self, model: Model, signature: str | None, attempts: int, in_doubt: bool) -> JobFailed | None:
        """Why a job of a model that is served here is not taken in again; None if it is."""
        most = self._policy.max_attempts
        if attempts >= most:
            text = f"the pool ended unexpectedly while it held the job, {attempts} times of {most} at most"
            return JobFailed(Fault.WORKER_LOST, f"{text} ([queue] max_attempts)")
        if in_doubt and model.keeps_state(signature):
            return JobFailed(Fault.STATEFUL_WORKER_LOST, f"{_whose(attempts)}; {KEEPS_STATE}")
        return None

    def taken_in(self, job: Job, attempts: int, in_doubt: bool, now: float) -> None:
        """Those ends of the pool may be another job's fault, but they are attempts."""
        job.in_doubt = in_doubt
        job.attempts = job.losses = max(0, attempts)
        if in_doubt:
            job.note(now, "came again: {}", _whose(attempts))

    def loaded(self, slot: Slot, now: float) -> None:
        """A worker is READY and has told which of its models keep state. It has no work yet."""
        stateful = {name for name, info in slot.loaded.items() if info.stateful}
        if not stateful:
            return
        for job in list(self._backlog.jobs.values()):
            if job.in_doubt and job.key.model in stateful:
                self._answers.fail(job, Fault.STATEFUL_WORKER_LOST, with_story(KEEPS_STATE, job), now)

    def abandon(self, job: Job, failed: JobFailed, now: float) -> None:
        """The pool stops before the job is done. Another may do it, unless that would be a second time."""
        if job.out and job.line.model.keeps_state(job.key.signature):
            text = with_story(f"{failed.text}; {KEEPS_STATE}", job)
            self._answers.fail(job, Fault.STATEFUL_WORKER_LOST, text, now)
        else:
            self._answers.fail(job, failed.fault, failed.text, now)


def _whose(attempts: int) -> str:
    times = "once" if attempts == 1 else f"{attempts} times"
    died = f"; the pool ended unexpectedly {times} while it held it" if attempts > 0 else ""
    return f"it was sent before and got no answer{died}"
