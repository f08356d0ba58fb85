"""What must hold of the jobs of a chaos run: each ended once, as it may, and ran no more often than it may."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from faults import chaos_client
from faults.chaos_client import BIG, NOT_DRAWN, TIMEOUT_S
from faults.chaos_crowd import Crowd, Member, Sent
from faults.chaos_pool import ATTEMPTS, LANES, MOST_ROWS, Configuration
from faults.chaos_report import Done

__all__ = ["check_jobs", "lost_state", "served"]

MANY_DEATHS = 50  # of workers; some had a job that was counted
# What a job may end in that lost one worker after the other; the stateful ones at their first.
LOST = ("Quarantined", "WorkerLost")
STATEFUL = ("add", "many add", "session", "private session")
TALLIED = ("tally", "many tally")
DOUBLED = ("double", "many double", "map")
ALLOWED = {
    **dict.fromkeys(chaos_client.KINDS, LOST),
    **dict.fromkeys(STATEFUL, ("WorkerLost",)),
    "map": (*LOST, NOT_DRAWN),
    "second": (*LOST, "ModelNotFound"),
}


def served(members: Iterable[Member]) -> Counter[str]:
    """How many jobs of each kind had an answer."""
    jobs = (job for member in members for job in member.jobs())
    return Counter(job.kind for job in jobs if job.ending is not None and job.error is None)


def lost_state(members: Iterable[Member]) -> bool:
    """Whether a worker has died with a job that may not run again. A private session is lost without one, too."""
    jobs = (job for member in members for job in member.jobs())
    return any(job.error == "WorkerLost" and job.kind in STATEFUL and job.kind != "private session" for job in jobs)


def check_jobs(crowd: Crowd, configuration: Configuration, done: Done, seed: int) -> None:
    """Each kind had answers, of clients over TCP too; what is checked of none of them would hold in vain."""
    assert served(crowd.members).keys() == {*chaos_client.KINDS}, seed
    assert served(member for member in crowd.members if member.remote), seed
    assert all(served([member]) for member in crowd.living()), (seed, "a client of which nothing is checked")
    jobs = [job for member in crowd.members for job in member.jobs()]
    check_answers([job for member in crowd.living() for job in member.jobs() if not is_late(member, job)], seed)
    check_counter(configuration.counter, jobs, seed)
    check_tally(configuration.tally, jobs, done, seed)
    assert lost_state(crowd.members), (seed, "no worker died with a job of a model that keeps state")


def is_late(member: Member, job: Sent) -> bool:
    """Whether its time was over, and half of it had gone by while its client was frozen: nobody else is to blame."""
    if job.error != "DeadlineExceeded" or member.slept_s(job) < TIMEOUT_S / 2:
        return False
    return job.answers == 1 and job.took_s >= TIMEOUT_S


def check_answers(jobs: Sequence[Sent], seed: int) -> None:
    for job in jobs:
        assert job.answers == 1, (seed, job)
        assert job.ending is not None
        if job.error is not None:
            assert job.error in ALLOWED[job.kind], (seed, job)
        elif job.kind in DOUBLED:
            assert job.ending["y"] == [2.0 * job.number, 2.0 * job.number, 1], (seed, job)
        elif job.kind == "big":
            assert job.ending["x"] == [job.number, job.number, BIG], (seed, job)
        elif job.kind == "second":
            assert job.ending["y"] == [chaos_client.SECOND, chaos_client.SECOND, 1], (seed, job)
        elif job.kind == "private session":
            assert job.ending["total"] == job.ending["expected"], (seed, job)
    # The second model is not always there, and what comes after a failed job of a map is not drawn.
    asked = [job for job in jobs if job.kind != "second" and job.error != NOT_DRAWN]
    answered = sum(job.error is None for job in asked)
    assert answered > 0.9 * len(asked), (seed, answered, len(asked))


def runs(ledger: Path, kinds: Sequence[str], jobs: Sequence[Sent], seed: int) -> Counter[int]:
    """How often each job ran, by the lines that the workers left before they answered. What was answered ran."""
    ran = Counter(int(line) for line in ledger.read_text().split())
    sent = {job.number: job for job in jobs if job.kind in kinds}
    assert ran.keys() <= sent.keys(), seed
    for number, job in sent.items():
        assert job.ending is None or job.error is not None or ran[number], (seed, job)
    return ran


def check_counter(ledger: Path, jobs: Sequence[Sent], seed: int) -> None:
    """What keeps state ran once if it was answered, and at most once if it was lost."""
    ran = runs(ledger, STATEFUL, jobs, seed)
    assert set(ran.values()) == {1}, (seed, [number for number, times in ran.items() if times > 1])


def check_tally(ledger: Path, jobs: Sequence[Sent], done: Done, seed: int) -> None:
    """The rest runs again only where a worker died with a batch in each lane, and as often as its attempts permit."""
    ran = runs(ledger, TALLIED, jobs, seed)
    assert max(ran.values()) <= ATTEMPTS, (seed, [number for number, times in ran.items() if times > ATTEMPTS])
    assert ran.total() > len(ran) or done.deaths < MANY_DEATHS, (seed, "none has run again, so nothing is shown")
    assert ran.total() - len(ran) <= done.deaths * LANES * MOST_ROWS, (seed, ran.total(), len(ran), done)
