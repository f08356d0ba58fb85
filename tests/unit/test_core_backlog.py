"""The backlog and its lines: who is next, who runs together, and books that agree."""

import pytest

from pool.core.jobs import FINISHED, IllegalStep, Job, JobState
from pool.core.policy import ModelPolicy, Policy
from pool.core.queue.backlog import Backlog


class Books:
    """A backlog that is filled by hand: jobs are numbered from 1 and wait at once."""

    def __init__(self) -> None:
        self.backlog = Backlog(["m", "other"], Policy(models={"other": ModelPolicy(weight=2.0)}))
        self.jobs = 0

    def put(
        self,
        model: str = "m",
        client: bytes = b"a",
        number: int | None = None,
        priority: int = 0,
        form: bytes = b"form",
        rows: int = 1,
        size_bytes: int = 1,
    ) -> Job:
        self.jobs += 1
        line = self.backlog.models[model].line(None)
        key = line.key(None, None, form)
        number = self.jobs if number is None else number
        job = Job(
            self.backlog.client(client),
            number,
            self.jobs,
            line,
            key,
            rows,
            priority,
            5.0,
            size_bytes,
            "payload",
            0.0,
            5.0,
        )
        self.backlog.admit(job)
        line.put(job)
        self.backlog.validate()
        return job

    def take(self, job: Job) -> None:
        """As dispatch does: all of it is leased."""
        job.line.led(job)
        job.cut = job.rows
        job.line.take(job)
        job.become(JobState.LEASED)
        job.out += 1
        self.backlog.validate()

    def run_all(self, model: str = "m", cost_s: float = 1.0) -> list[int]:
        """The numbers in the order in which the jobs lead, each charged to its client."""
        line = self.backlog.models[model].line(None)
        order = []
        while (leader := line.leader()) is not None:
            self.take(leader)
            line.charge(leader.client, cost_s)
            order.append(leader.number)
        return order


def test_the_jobs_of_one_client_lead_in_the_order_in_which_they_came() -> None:
    books = Books()
    for _ in range(3):
        books.put()
    assert books.run_all() == [1, 2, 3]


def test_clients_take_turns_by_what_they_have_used() -> None:
    books = Books()
    for client in (b"a", b"a", b"a", b"b", b"b"):
        books.put(client=client)
    assert books.run_all() == [1, 4, 2, 5, 3]


def test_higher_priorities_lead() -> None:
    books = Books()
    for priority in (0, -1, 7, 0, 7):
        books.put(priority=priority)
    assert books.run_all() == [3, 5, 1, 4, 2]


def test_who_comes_anew_begins_where_the_others_stand() -> None:
    books = Books()
    for _ in range(4):
        books.put(client=b"a")
    line = books.backlog.models["m"].line(None)
    for _ in range(2):
        leader = line.leader()
        assert leader is not None
        books.take(leader)
        line.charge(leader.client, 10.0)
    for _ in range(2):
        books.put(client=b"late")
    assert books.run_all() in ([5, 3, 6, 4], [5, 6, 3, 4]), "it has not saved up 20 s"


def test_the_oldest_is_the_oldest_whatever_its_priority() -> None:
    books = Books()
    for priority in (-5, 7):
        books.put(priority=priority)
    oldest = books.backlog.models["m"].line(None).oldest()
    assert oldest is not None
    assert oldest.number == 1


def test_company_comes_from_all_clients_and_has_the_same_form() -> None:
    books = Books()
    first = books.put(client=b"a")
    for client, form in ((b"a", b"form"), (b"b", b"form"), (b"b", b"other"), (b"c", b"form")):
        books.put(client=client, form=form)
    company = []
    for job in first.key.company(0):
        books.take(job)
        company.append(job.number)
    assert sorted(company) == [1, 2, 3, 5]


def test_each_model_has_lines_of_its_own() -> None:
    books = Books()
    books.put()
    books.put("other")
    assert (books.backlog.models["m"].queued, books.backlog.models["other"].queued) == (1, 1)
    assert (books.run_all("m"), books.run_all("other")) == ([1], [2])
    assert books.backlog.models["m"].line(None).leader() is None


@pytest.mark.parametrize("state", sorted(FINISHED - {JobState.DONE}, key=str))
def test_a_finished_job_leaves_nothing_behind(state: JobState) -> None:
    books = Books()
    only = books.put(size_bytes=7)
    assert books.backlog.size_bytes == 7
    only.become(state)
    books.backlog.forget(only, 1, 1.0)
    only.line.take(only)
    assert (books.backlog.jobs, books.backlog.size_bytes) == ({}, 0)
    assert books.backlog.clients == {}, "clients come and go all day"
    assert books.run_all() == []
    books.backlog.validate()


def test_a_queued_job_cannot_be_done() -> None:
    only = Books().put()
    with pytest.raises(IllegalStep):
        only.become(JobState.DONE)
    assert only.state is JobState.QUEUED


def test_the_jobs_of_one_client_are_found_leased_or_not() -> None:
    books = Books()
    books.take(books.put())
    books.put()
    books.put(client=b"b")
    assert {each.number for each in books.backlog.of_client(b"a")} == {1, 2}
    assert {each.number for each in books.backlog.of_client(b"b")} == {3}
    assert not books.backlog.of_client(b"nobody")


def test_two_clients_may_use_the_same_number() -> None:
    books = Books()
    mine, theirs = books.put(number=1), books.put(client=b"b", number=1)
    assert books.backlog.find(b"a", 1) is mine
    assert books.backlog.find(b"b", 1) is theirs
    assert books.backlog.find(b"c", 1) is None


@pytest.mark.parametrize("damage", ["size", "state", "client", "line"])
def test_books_that_do_not_agree_are_noticed(damage: str) -> None:
    books = Books()
    only = books.put()
    if damage == "size":
        books.backlog.size_bytes += 1
    elif damage == "state":
        only.state = JobState.LEASED
    elif damage == "client":
        only.client.jobs.clear()
    else:
        only.line.by_age.clear()
    with pytest.raises(AssertionError):
        books.backlog.validate()


def test_how_long_it_takes_is_told_by_how_it_drains() -> None:
    books = Books()
    assert books.backlog.seconds_for(10, 0.0) == 1.0, "nothing is known"
    for number in range(2_000):
        now = number / 100
        job = books.backlog.jobs[books.put().id]
        job.become(JobState.CANCELLED)
        books.backlog.forget(job, 1, now)
        job.line.take(job)
    assert books.backlog.seconds_for(10, 20.0) == pytest.approx(0.1, rel=0.1)
    assert books.backlog.seconds_for(1e9, 20.0) == 5.0
