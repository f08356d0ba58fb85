"""Short scenes of one promise each, for what programs come to too seldom: each is told in a few steps, by hand.

`python -m walks.hunt "scene 3"` plays one, as it runs a walk.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from pool.core.policy import ModelPolicy, Policy
from pool.core.versions import Versions
from pool.wire.entries import entry_name
from pool.wire.faults import Fault
from pool.wire.session_runs import WRITING_RUN
from simulation.body import HOPELESS, SIGSEGV
from simulation.core import Core
from simulation.hand import Hand, Run
from simulation.plans import model_info, slot_plan
from simulation.words import Failed, Sent, Succeeded

__all__ = ["SCENES", "play"]


def numbers(run: Run) -> list[int]:
    """The jobs of a batch, by their numbers from 1."""
    return [serial + 1 for serial, _, _ in run.parts]


def a_kept_slot_takes_nothing_else() -> Core:
    """All that a slot runs dies; the other one is kept for it, though a lane of it is free before the rest is."""
    hand = Hand(["m"], ["m"], validates=False).serve(lanes=2)
    for _ in range(4):
        hand.ask(rows=None)
    dead = next(run.worker for run in hand.runs if run.worker.slot == 1)
    lost = [number for run in hand.runs if run.worker is dead for number in numbers(run)]
    alive = [run for run in hand.runs if run.worker is not dead]
    assert len(lost) == len(alive) == 2
    hand.exit(dead, SIGSEGV)
    hand.ask(rows=None)
    sent = len(hand.runs)
    hand.end(alive[0])
    assert len(hand.runs) == sent, "it takes something else"
    hand.end(alive[1])
    assert numbers(hand.runs[-1])[0] in lost, "the suspect is next"
    return hand.core


def a_job_without_hope_is_answered_at_once() -> Core:
    """Its like was taken in before; then its only worker was killed, and did not die."""
    hand = Hand(["m"], ["other"], validates=False).serve()
    first = hand.ask(rows=1)
    run = hand.run_of(first)
    hand.core.done(0, run.worker.incarnation, 0, run.batch, ())
    hand.pass_time(hand.core.policy.kill_timeout_s)
    assert hand.failed(first).fault is Fault.WORKER_LOST
    second = hand.ask(rows=1)
    assert second in hand.answers, "it waits for nobody"
    assert hand.failed(second).fault is Fault.WORKER_LOST
    return hand.core


def a_label_names_another_version() -> Core:
    """From the change of the policy on, for jobs that name what others have named before."""
    models = tuple(entry_name("both", number) for number in (1, 2))
    policy = Policy(versions={"both": Versions((1, 2), {"stable": 1})})
    core = Core(policy, [slot_plan(0, models)], random.Random(0), validate_every=0)
    core.start()
    core.hello(0, 1)
    core.ready(0, 1, 1, tuple(model_info(name) for name in models))
    for number, label in ((1, 1), (2, 1), (3, 2)):
        core.policy_changed(replace(policy, versions={"both": Versions((1, 2), {"stable": label})}))
        (sent,) = core.submit(b"client", number, "both", 1, None, version="stable")
        assert isinstance(sent, Sent)
        assert sent.model == models[label - 1], f"stable is {label}"
        core.done(0, 1, sent.lane, sent.batch, [Succeeded(None)])
    return core


def what_a_session_wrote_is_seen_by_the_next_job() -> Core:
    """Its like ran anywhere before; the other worker is idle, and was used longer ago."""
    hand = Hand(["m"], ["m"], validates=False).serve()
    hand.end(hand.run_of(hand.ask(rows=None)))
    hand.submit(b"client", 2, "m", rows=None, signature=WRITING_RUN)
    writer = hand.run_of(2).worker
    hand.end(hand.run_of(2))
    assert hand.run_of(hand.ask(rows=None)).worker is writer
    return hand.core


def jobs_wait_with_a_key_that_their_line_knows() -> Core:
    """The line has forgotten those that were idle for longest; whoever waits for company is found all the same."""
    hand = Hand(["m"], ["other"], models={"m": ModelPolicy(max_batch=4, batch_wait_s=5.0)}, validates=False).serve()

    def submit(form: bytes) -> int:
        number = hand.ledger.arrived + 1
        hand.submit(b"client", number, "m", rows=1, form=form)
        return number

    hand.core.now += 1.0
    for form in range(320):
        submit(b"%d" % form)
        hand.pass_time(5.0)
        hand.end(hand.runs[-1])
    again = submit(b"0")
    assert again not in hand.answers
    hand.exit(hand.workers[0, 1], SIGSEGV)
    hand.pass_time(0.5)
    hand.exit(hand.workers[0, 2], HOPELESS)
    assert again in hand.answers, "no worker is left for it"
    return hand.core


def a_job_waits_for_company() -> Core:
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=4, batch_wait_s=1.0)}, validates=False).serve()
    hand.ask(rows=1)
    hand.pass_time(0.5)
    assert not hand.runs
    hand.ask(rows=1)
    hand.pass_time(0.5)
    assert numbers(hand.runs[0]) == [1, 2]
    return hand.core


def the_most_urgent_of_a_burst_goes_first() -> Core:
    hand = Hand(["a", "b"], validates=False).serve()
    with hand.core.burst():
        hand.submit(b"client", 1, "a", rows=1)
        hand.submit(b"client", 2, "b", rows=1, priority=5)
    assert numbers(hand.runs[0]) == [2]
    return hand.core


def jobs_of_a_burst_find_each_other() -> Core:
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=4)}, validates=False).serve(lanes=2)
    with hand.core.burst():
        for number in range(1, 6):
            hand.submit(b"%d" % number, number, "m", rows=1)
    assert [run.rows for run in hand.runs] == [4, 1]
    return hand.core


def fewer_rows_run_where_memory_had_no_room() -> Core:
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=8)}, validates=False).serve()
    for _ in range(2):
        number = hand.ask(rows=8)
        if number == 1:
            hand.end(hand.runs[-1], [Failed(Fault.OUT_OF_MEMORY, "8 rows")])
            assert [run.rows for run in hand.runs] == [8, 4]
            hand.end(hand.runs[-1])
            hand.end(hand.runs[-1])
    assert hand.runs[-1].rows == 4, "as many as have fitted"
    return hand.core


def what_is_left_of_a_chunk_goes_before_what_came_later() -> Core:
    """One of its members is cancelled while it waits, and a job of its client has come meanwhile."""
    hand = Hand(["m"], models={"m": ModelPolicy(max_batch=2)}, validates=False).serve()
    first = hand.ask(rows=1)
    hand.submit(b"client", 100, "m", members=(1, 1, 1))
    hand.submit(b"client", 101, "m", rows=2)
    hand.cancel_member(b"client", 100, 0)
    assert [(chunk.first, list(chunk.members)) for chunk in hand.carried.values()] == [(100, [1, 2])]
    hand.end(hand.run_of(first))
    (left,) = hand.carried
    assert left[1] == hand.ledger.recent[-1].number
    assert [serial for serial, *_ in hand.runs[-1].parts] == [hand.ledger.recent[-1].serial]
    return hand.core


SCENES: tuple[Callable[[], Core], ...] = (
    a_kept_slot_takes_nothing_else,
    a_job_without_hope_is_answered_at_once,
    a_label_names_another_version,
    what_a_session_wrote_is_seen_by_the_next_job,
    jobs_wait_with_a_key_that_their_line_knows,
    a_job_waits_for_company,
    the_most_urgent_of_a_burst_goes_first,
    jobs_of_a_burst_find_each_other,
    fewer_rows_run_where_memory_had_no_room,
    what_is_left_of_a_chunk_goes_before_what_came_later,
)


def play(number: int) -> Counter[str]:
    return SCENES[number]().answered
