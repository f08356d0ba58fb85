"""The last events: bounded, without a tensor; and as a text that gives the same events again."""

import gc
import json
import random
import tracemalloc
import types
import typing
import weakref
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.core import events as told
from pool.core.jobs import Batch, Job
from pool.core.machine import Machine
from pool.core.orders import Orders
from pool.core.policy import ModelPolicy, Policy, SlotPlan
from pool.core.queue import Backlog
from pool.recorder.fault_report import EVENTS_BYTES, events_of, fault_report, replay, summary
from pool.recorder.hot_calls import BatchDone, Dispatched, JobArrived, Succeeded
from pool.recorder.last_events import MOST_FREQUENT, MOST_RARE, TEXT_CHARS, LastEvents
from pool.recorder.transcript import BadTranscript, read, written
from pool.serve.loop import Way
from pool.wire.faults import Fault
from pool.wire.signatures import Signature, TensorSpec
from pool.wire.worker_messages import Phase
from simulation.driver import Driver
from simulation.plans import model_info

JOB = JobArrived(b"c", 1, "m", None, None, 1, None, 0, None, 100, b"form", None)
POLICY = Policy(models={"m": ModelPolicy(max_batch=4)})
PLAN = SlotPlan(("m",), "cpu:0", frozenset({"cpu", "cpu:0"}), {})


class Tensor(bytearray):
    """Bytes that can be seen to be gone."""

    __slots__ = ("__weakref__",)


class Deaf:
    """In the place of the core: it is told, and nothing follows."""

    def __init__(self) -> None:
        self.orders = Orders()
        self.backlog = Backlog((), Policy())

    def handle(self, _: told.Event, __: float) -> None: ...

    def arrived(self, *_: object) -> None: ...

    def batch_done(self, *_: object) -> None: ...

    def dispatch(self, _: float) -> bool:
        return False

    def done(self, _: Job, __: tuple[object, ...]) -> None: ...

    def run(self, _: Batch) -> bool:
        return True

    def answered(self) -> None: ...


def tell(feed: Way, event: told.Event | JobArrived | BatchDone) -> None:
    """As the loop does."""
    match event:
        case JobArrived():
            said = [getattr(event, each.name) for each in fields(event)]
            feed.arrived(tuple(said[:11]), said[11], tuple(said[12:]), feed._clock())
        case BatchDone(slot, incarnation, lane, batch, outcomes, run_s, fetch_s):
            payloads = [each.payload if isinstance(each, Succeeded) else None for each in outcomes]
            failures = {place: each for place, each in enumerate(outcomes) if not isinstance(each, Succeeded)}
            feed.batch_done((slot, incarnation, lane, batch), payloads, failures, run_s, fetch_s)
        case _:
            feed(event)
    feed.dispatch()


def deaf_way() -> Way:
    way = Way(Deaf(), lambda *_: None, lambda _: None, lambda _: None, lambda _: None)
    way.front = way.back = Deaf()  # type: ignore[assignment]
    return way


def told_of(*events: told.Event | JobArrived | BatchDone) -> LastEvents:
    feed = deaf_way()
    for event in events:
        tell(feed, event)
    return feed.last


def test_no_tensor_lives_on_in_them() -> None:
    fed, answered = Tensor(8), Tensor(8)
    seen = [weakref.ref(fed), weakref.ref(answered)]
    last = told_of(
        replace(JOB, payload=fed),
        BatchDone(0, 1, 0, 1, (Succeeded(answered), told.Failed(Fault.MODEL_FAILED, "no")), 0.5, 0.25),
    )
    del fed, answered
    gc.collect()
    assert [each() for each in seen] == [None, None]
    _, (_, _, done) = [each for each in last if not isinstance(each[2], Dispatched)]
    assert done == BatchDone(0, 1, 0, 1, (Succeeded(None), told.Failed(Fault.MODEL_FAILED, "no")), 0.5, 0.25)


def test_they_are_few_whatever_comes() -> None:
    """Names, forms and texts as long as they may be."""
    tracemalloc.start()
    try:
        feed = deaf_way()
        last = feed.last
        names = [f"{name}" for name in range(200)]
        for number in range(MOST_FREQUENT + 50):
            arrived = replace(
                JOB,
                job=number,
                model="m" * 900 + str(number),
                outputs=tuple([name + str(number) for name in names]),
                weight=1000,
                form=number.to_bytes(2, "big") * 500_000,
            )
            done = BatchDone(0, 1, 0, number, (told.Failed(Fault.MODEL_FAILED, "x" * 100_000),) * 3)
            rare = told.WorkerExited(0, number, told.Death("SIGSEGV", True, ("line" * 1000,) * 200))
            ready = told.WorkerReady(0, number, 2, (large_model(),))
            for event in (arrived, done, rare, ready):
                tell(feed, event)
        del arrived, done, rare, ready, event
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(last) == MOST_FREQUENT + MOST_RARE
    assert held < (MOST_FREQUENT + MOST_RARE) * 2000
    assert max(len(event.outcomes[0].text) for _, _, event in last if isinstance(event, BatchDone)) == TEXT_CHARS  # type: ignore[union-attr]
    report = fault_report(ValueError("x"), last, Driver(["m"]).machine, (POLICY, [PLAN]), b"seed", {})
    assert len(json.dumps(report["events"])) < 2.1 * EVENTS_BYTES
    assert report["left_out"] == last.noted - len(report["events"])


def large_model() -> Any:
    tensors = {f"tensor {number}": TensorSpec("float32", (-1, 8)) for number in range(30)}
    return replace(model_info("m"), signatures={"serving_default": Signature(tensors, tensors)})


def test_equal_lists_of_outputs_stay_equal_and_others_do_not() -> None:
    long = tuple(map(str, range(100)))
    last = told_of(*(replace(JOB, outputs=outputs) for outputs in (long, tuple(long), long[1:], ("y",), None)))
    one, same, other, short, none = [event.outputs for _, _, event in last if isinstance(event, JobArrived)]
    assert one == same != other
    assert (short, none) == (("y",), None)
    assert one is not None
    assert len(one) == 2


# --- as text ------------------------------------------------------------------------------------------------------


def values(annotation: Any) -> st.SearchStrategy[Any]:
    """Anything that a field of an event may hold."""
    if annotation is object:
        return st.none()
    if annotation is float:
        return st.floats(allow_nan=False)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=3)
    if origin is Mapping:
        return st.dictionaries(st.text(max_size=3), values(arguments[1]), max_size=2)
    if isinstance(annotation, type) and is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        return st.builds(
            annotation, **{each.name: values(hints[each.name]) for each in fields(annotation) if each.init}
        )
    return st.from_type(annotation)


KINDS = (*typing.get_args(told.Event), JobArrived, BatchDone, Dispatched)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_of_event_comes_back_from_its_text(kind: type) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(event=values(kind))
    def check(event: Any) -> None:
        assert read(json.loads(json.dumps(written(event)))) == event

    check()


@pytest.mark.parametrize(
    "text",
    [
        '{"os": {}}',
        '{"JobArrived": {}}',
        '{"JobArrived": []}',
        '{"Phase": "NONE"}',
        '{"bytes": "zz"}',
        '{"map": [[1]]}',
        '{"a": 1, "b": 2}',
        "{}",
        '{"Machine": {}}',
        '{"set": [{"map": []}]}',
    ],
)
def test_a_text_that_nobody_has_written_is_refused(text: str) -> None:
    with pytest.raises(BadTranscript):
        read(json.loads(text))


def test_a_replay_ends_where_the_core_was() -> None:
    """Beats, deaths and time, by chance; more frequent events than are kept would make it another."""
    rng = random.Random(7)
    machine = Machine(POLICY, [PLAN, PLAN], random.Random(b"seed"))
    now = [100.0]
    feed = Way(machine, lambda *_: None, lambda _: None, lambda _: None, lambda _: None, lambda: now[0])
    feed.front = feed.back = Deaf()  # type: ignore[assignment]
    tell(feed, told.Start())
    for number in range(MOST_FREQUENT // 5):
        now[0] += rng.random()
        slot = machine.fleet.slots[rng.randrange(2)]
        at = slot.number, slot.worker.incarnation
        match slot.state.name:
            case "STARTING":
                tell(feed, told.WorkerHello(*at))
            case "LOADING":
                tell(feed, told.WorkerReady(*at, 2, (model_info("m"),)))
            case "READY" if rng.random() < 0.05:
                tell(feed, told.WorkerExited(*at, told.Death("SIGSEGV", restartable=True)))
            case "READY" if slot.batches and rng.random() < 0.5:
                (number_, batch) = next(iter(slot.batches.items()))
                outcomes = tuple(Succeeded(Tensor(4)) for _ in batch.parts)
                tell(feed, BatchDone(*at, batch.lane, number_, outcomes, 0.1, 0.1))
            case "READY":
                tell(feed, told.WorkerBeat(*at, Phase.SERVING, "", ()))
            case _:
                tell(feed, told.Tick())
        tell(feed, replace(JOB, job=number, payload=Tensor(4)))
    report = json.loads(
        json.dumps(fault_report(KeyError(1), feed.last, machine, (POLICY, [PLAN, PLAN]), b"seed", {"pool": "p"}))
    )
    assert report["left_out"] == 0
    assert report["state"]["answered"]["done"] > 10
    again = replay(report)
    again.validate()
    assert summary(again) == report["state"] == summary(machine)


def test_a_report_of_the_first_format_replays() -> None:
    """It tells of no dispatch, as one followed each event."""
    info = model_info("m")
    told_before = [
        told.Start(),
        told.WorkerHello(0, 1),
        told.WorkerReady(0, 1, 1, (info,)),
        replace(JOB, job=1),
        replace(JOB, job=2),
        replace(JOB, job=3),
        BatchDone(0, 1, 0, 1, (Succeeded(None),), 0.1, 0.1),
    ]
    report = {
        "format": 1,
        "seed": "00",
        "policy": written(POLICY),
        "slots": written([PLAN]),
        "events": [[number, 100.0 + number, written(event)] for number, event in enumerate(told_before, start=1)],
    }
    machine = replay(json.loads(json.dumps(report)))
    machine.validate()
    assert machine.answered == {"done": 1}
    (batch,) = machine.fleet.slots[0].batches.values()
    assert len(batch.parts) == 2, "the first job left alone"
    assert replay({**report, "format": 3}).answered == {}, "nothing follows by itself"


def test_a_report_of_the_third_format_tells_of_several_jobs_as_a_chunk() -> None:
    """It had the rows of each."""
    before = written(replace(JOB, job=1, rows=6))["JobArrived"]
    del before["weight"], before["origin"]
    lone = {"JobArrived": {**before, "members": []}}
    three = {"JobArrived": {**before, "members": [1, 2, 3]}}
    events = events_of({"format": 3, "events": [[1, 0.0, lone], [2, 0.0, three]]})
    assert [read(event).weight for *_, event in events] == [1, 3]
    with pytest.raises(BadTranscript, match="members"):
        read(three)


def test_a_choice_that_had_another_name_has_todays() -> None:
    def told(replacement: str, batching: str) -> dict[str, Any]:
        model = ["never", {"ModelPolicy": {"batching": {"Batching": batching}}}]
        return {"PolicyChanged": {"policy": {"Policy": {"replacement": replacement, "models": {"map": [model]}}}}}

    [[_, _, found]] = events_of({"format": 5, "events": [[0, 0.0, told("never", "NEVER")]]})
    assert found == told("off", "OFF")
