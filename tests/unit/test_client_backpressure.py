"""When patient jobs leave, on a clock of the test's own."""

import heapq
import random

import pytest

from pool import errors
from pool.client.backpressure import LONGEST_RETRY_S, Backpressure
from pool.client.futures import JobFuture
from pool.client.outstanding import Job
from pool.client.request import Request

ROOM = 1 << 30


def job(number: int, model: str = "m", size_bytes: int = 10) -> Job:
    return Job(JobFuture(), Request(model), None, (), size_bytes, 0.0, 0.0, patient=True, number=number)


def numbers(jobs: list[Job]) -> list[int]:
    return [each.number for each in jobs]


class Door:
    """`Backpressure` with the part of `Outstanding` that it goes with."""

    def __init__(self, credit_bytes: int = ROOM) -> None:
        self.backpressure = Backpressure(lambda: 0.0)
        self.credit_bytes = credit_bytes
        self.sent_bytes = 0

    def add(self, *jobs: Job) -> None:
        for each in jobs:
            self.backpressure.add(each)

    def send(self, now: float) -> list[Job]:
        sent = []
        for each in self.backpressure.to_send(now, self.credit_bytes - self.sent_bytes):
            self.backpressure.sent(each)
            each.sent_at = now
            self.sent_bytes += each.size_bytes
            sent.append(each)
        return sent

    def refuse(self, refused: Job, now: float, retry_after_s: float | None = 1.0) -> None:
        refused.sent_at = None
        refused.refusals += 1
        refused.last_refusal = errors.Overloaded("full", retry_after_s)
        self.sent_bytes -= refused.size_bytes
        self.backpressure.refused(refused, retry_after_s, now)

    def end(self, ended: Job) -> None:
        if ended.sent_at is not None:
            self.sent_bytes -= ended.size_bytes
        self.backpressure.ended(ended)


def test_nothing_waits_where_there_is_room() -> None:
    door = Door()
    door.add(job(1), job(2), job(3))
    assert numbers(door.send(0.0)) == [1, 2, 3]
    assert door.backpressure.next_instant() is None


def test_credit_goes_by_turns_whatever_the_size() -> None:
    door = Door(credit_bytes=100)
    first, large, small = job(1, size_bytes=60), job(2, size_bytes=90), job(3, size_bytes=10)
    door.add(first, large, small)
    assert door.send(0.0) == [first]
    assert door.backpressure.next_instant() is None  # an answer makes room, no clock does
    door.end(first)
    assert door.send(0.0) == [large, small]


def test_a_refused_job_leaves_again_when_the_pool_said_and_before_any_other() -> None:
    door = Door()
    first, second = job(1), job(2)
    door.add(first)
    door.send(0.0)
    door.refuse(first, 0.1, 2.0)
    door.add(second)
    assert door.backpressure.next_instant() == pytest.approx(2.1)
    assert door.send(2.0) == []
    assert door.send(2.2) == [first]
    assert door.send(2.2) == []  # whether there is room for another one is not known yet
    assert door.send(4.2) == [second]


def test_it_waits_longer_each_time_in_vain_up_to_a_bound() -> None:
    door = Door()
    only = job(1)
    door.add(only)
    now, waits = 0.0, []
    for _ in range(12):
        assert door.send(now) == [only]
        door.refuse(only, now, 0.1)
        instant = door.backpressure.next_instant()
        assert instant is not None
        waits.append(instant - now)
        now = instant
    assert waits[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert waits[-1] == pytest.approx(max(waits)) == LONGEST_RETRY_S


def test_what_the_pool_says_is_waited_for_however_long() -> None:
    door = Door()
    only = job(1)
    door.add(only)
    door.send(0.0)
    door.refuse(only, 0.0, 60.0)
    assert door.backpressure.next_instant() == 60.0


def test_an_answer_lets_the_next_one_go_at_once() -> None:
    door = Door()
    jobs = [job(number) for number in range(6)]
    door.add(*jobs)
    door.send(0.0)
    for refused in jobs[2:]:
        door.refuse(refused, 0.1, 60.0)
    assert door.send(0.2) == []
    door.end(jobs[0])
    assert door.send(0.2) == [jobs[2]]
    door.end(jobs[1])
    assert door.send(0.3) == [jobs[3]]
    door.end(jobs[2])
    assert door.send(0.4) == [jobs[4], jobs[5]]  # after as many answers as it takes jobs, one more is tried


def test_models_do_not_wait_for_each_other() -> None:
    door = Door()
    full, free = job(1, "full"), job(2, "free")
    door.add(full)
    door.send(0.0)
    door.refuse(full, 0.0, 60.0)
    door.add(free)
    assert door.send(0.1) == [free]


def test_a_new_job_does_not_hold_up_the_refused_one_whose_bytes_it_waits_for() -> None:
    door = Door(credit_bytes=100)
    new, running = job(1, "a", 90), job(2, "a", 10)
    refused = job(3, "b", 60)
    door.add(running, refused)
    door.send(0.0)
    door.refuse(refused, 0.0, 1.0)
    door.end(running)
    door.add(new)
    assert door.send(0.5) == []
    assert door.send(1.5) == [refused]
    door.end(refused)
    assert door.send(1.6) == [new]


def test_a_refused_job_that_was_sent_again_and_goes_to_another_pool_holds_no_credit_here() -> None:
    door = Door()
    one = job(1)
    door.add(one)
    door.send(0.0)
    door.refuse(one, 0.0)
    assert door.send(5.0) == [one]
    one.sent_at = None  # its pool stops, and has given it back
    door.backpressure.ended(one)
    assert (door.backpressure.refused_bytes, door.backpressure.lines) == (0, {})


def test_nothing_is_remembered_of_a_line_that_is_over() -> None:
    door = Door()
    jobs = [job(number) for number in range(3)]
    door.add(*jobs)
    door.send(0.0)
    door.refuse(jobs[1], 0.0)
    late = job(9)
    door.add(late)
    for each in (late, jobs[1], jobs[0], jobs[2]):  # waiting, refused, in the pool
        door.end(each)
    assert door.backpressure.refused_bytes == 0
    assert door.backpressure.next_instant() is None
    assert not door.backpressure.lines


@pytest.mark.parametrize("seed", range(30))
def test_a_small_pool_takes_all_in_the_end(seed: int) -> None:
    """A pool with few places, in virtual time: each job is run once, what is kept is bounded, the pool is kept busy."""
    rng = random.Random(seed)
    places, lanes, job_s, travel_s = rng.randint(1, 40), rng.randint(1, 8), 0.01, 0.0005
    credit_bytes = rng.choice([200, 2_000, ROOM])
    door = Door(credit_bytes)
    door.backpressure = Backpressure(rng.random)
    jobs = [job(number, rng.choice("ab"), rng.randint(1, 100)) for number in range(600)]
    door.add(*jobs)
    arrivals: list[tuple[float, int, str, Job]] = []  # at the pool, or back here
    count = refusals = 0
    in_pool: list[Job] = []
    running: list[Job] = []
    ended: list[Job] = []

    def later(instant: float, what: str, each: Job) -> None:
        nonlocal count
        count += 1
        heapq.heappush(arrivals, (instant, count, what, each))

    now = 0.0
    for _ in range(200_000):
        for each in door.send(now):
            later(now + travel_s, "submit", each)
        kept = door.sent_bytes + door.backpressure.refused_bytes
        assert kept <= credit_bytes
        if len(ended) == len(jobs):
            break
        instant = door.backpressure.next_instant()
        assert arrivals or instant is not None, f"seed {seed}: nothing will ever happen"
        if instant is not None and (not arrivals or instant < arrivals[0][0]):
            now = max(now, instant)
            continue
        now, _, what, each = heapq.heappop(arrivals)
        if what == "submit" and len(in_pool) >= places:
            later(now + travel_s, "refused", each)
            refusals += 1
        elif what == "submit":
            in_pool.append(each)
        elif what == "refused":
            door.refuse(each, now, job_s)
        elif what == "done":
            in_pool.remove(each)
            running.remove(each)
            later(now + travel_s, "answer", each)
        elif what == "answer":
            door.end(each)
            ended.append(each)
        while len(running) < lanes and (idle := [each for each in in_pool if each not in running]):
            running.append(idle[0])
            later(now + job_s, "done", idle[0])
    assert sorted(numbers(ended)) == list(range(len(jobs)))
    assert refusals < 2 * len(jobs)
    if credit_bytes == ROOM:
        ideal_s = len(jobs) * job_s / min(places, lanes)
        assert now < 1.1 * ideal_s + 0.1, f"seed {seed}: {now:.2f} s, {ideal_s:.2f} s would do"
