"""The messages of a job, with fixed fields: each survives, and whatever else comes is `BadFrame`, in bounded time."""

import math
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pool.wire.calls import MOST_CALLS
from pool.wire.client_messages import CLIENT_MESSAGES, Result, Results, Submit
from pool.wire.faults import Fault
from pool.wire.frames import BadFrame, Envelope, OtherVersion, decode, encode
from pool.wire.hot import SMALL_BYTES, VERSION
from pool.wire.lent import MOST_LENT, AnswerSpace, Lent
from pool.wire.timeline import Timeline
from pool.wire.worker_messages import WORKER_MESSAGES, Done, Failed, RowsChanged, Run, Spoiled
from support.outcomes import outcomes_of

KINDS: Any = {**CLIENT_MESSAGES, **WORKER_MESSAGES}
INSTANCE = b"instance"
PREAMBLE_BYTES = 14

steady = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))

U16, U32, U64 = st.integers(0, (1 << 16) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
finite = st.floats(0.0, 1e9)
buffers = st.lists(
    st.one_of(st.binary(max_size=9), st.sampled_from((bytes(SMALL_BYTES), bytes(SMALL_BYTES + 1)))), max_size=4
)
rooms = st.builds(AnswerSpace, U32, U64, U64)


@st.composite
def submits(draw: st.DrawFn) -> tuple[Submit, list[bytes]]:
    payload = draw(buffers)
    lent = tuple(
        Lent(index, draw(U32), draw(U64), draw(U64)) for index in range(len(payload)) if draw(st.integers(0, 4)) == 0
    )
    for each in lent:
        payload[each.index] = b""
    names = draw(st.none() | st.binary(max_size=40))
    submit = Submit(
        *(draw(U64), draw(U32), draw(st.none() | st.integers(1, (1 << 32) - 1)), draw(finite)),
        *(draw(st.integers(-128, 127)), draw(U16), draw(st.booleans()), names),
        *(b"" if names is None else draw(st.binary(max_size=40)), lent, draw(st.none() | rooms)),
        *(draw(st.integers(1, (1 << 16) - 1)), draw(U64)),
    )
    return submit, payload


@st.composite
def results(draw: st.DrawFn) -> tuple[Results, list[bytes]]:
    found, payload = [], []
    for _ in range(draw(st.integers(1, 3))):
        pieces = [draw(buffers.filter(bool)) for _ in range(draw(st.integers(0, 2)))]
        payload += [buffer for piece in pieces for buffer in piece]
        version = draw(st.none() | st.integers(0, (1 << 64) - 2))
        numbers: tuple[Any, ...] = (draw(U64), *(draw(finite) for _ in range(5)), draw(U32), draw(U32), draw(U32))
        line = Timeline(*(*numbers, draw(st.text(max_size=9)), draw(U32), version))
        found.append(Result(draw(U64), tuple(map(len, pieces)), line, draw(st.booleans()), draw(st.booleans())))
    return Results(tuple(found)), payload


@st.composite
def runs(draw: st.DrawFn) -> tuple[Run, list[bytes]]:
    rows = draw(st.lists(st.integers(1, 1 << 31), max_size=3).map(tuple))
    payload = draw(buffers)
    lent = tuple(
        Lent(index, draw(U32), draw(U64), draw(U64)) for index in range(len(payload)) if draw(st.integers(0, 4)) == 0
    )
    for each in lent:
        payload[each.index] = b""
    halves = [
        index
        for index in range(len(payload))
        if index not in {each.index for each in lent} and draw(st.integers(0, 4)) == 0
    ]
    cut = [part for index, each in enumerate(payload) for part in ((each, b"half") if index in halves else (each,))]
    names = (draw(st.text(max_size=9)), draw(st.none() | st.text(max_size=9)))
    fields: tuple[Any, ...] = (
        *(draw(U64), *names, draw(st.none() | st.lists(st.text(max_size=9), max_size=3).map(tuple)), rows, draw(U32)),
        *(draw(st.booleans()), lent, tuple(draw(rooms) for _ in range(draw(st.sampled_from((0, len(rows) or 1)))))),
        *(draw(U32), draw(U64), tuple(halves), draw(st.integers(0, MOST_CALLS - 1))),
    )
    return Run(*fields), [draw(st.binary(max_size=30)), *cut]


failures = st.one_of(
    st.builds(Failed, st.sampled_from(Fault), st.text(max_size=9)),
    st.builds(Spoiled, st.sampled_from(Fault), st.text(max_size=9)),
    st.builds(RowsChanged, st.text(max_size=9)),
)


@st.composite
def dones(draw: st.DrawFn) -> tuple[Done, list[bytes]]:
    answers = draw(st.lists(buffers, max_size=4))
    failed = tuple(draw(failures) for answer in answers if not answer)
    done = Done(draw(U64), tuple(map(len, answers)), failed, draw(finite), draw(finite))
    return done, [buffer for answer in answers for buffer in answer]


messages = st.one_of(submits(), results(), runs(), dones())

# One of each, as they come most often, and one of each with all that it may have.
LINE = Timeline(7, 0.1, 0.0, 0.001, 0.002, 0.003, 1, 4, 0, "cpu:0", 1)
LONE = Submit(7, 3, 1, 60.0)
FULL = Submit(
    *(
        7,
        4,
        3,
        60.0,
        -5,
        2,
        True,
        b"names",
        b"table",
        (Lent(1, 2, 64, 128), Lent(2, 2, 256, 8)),
        AnswerSpace(2, 512, 64),
    ),
    *(2, 9),
)
ANSWER = Results((Result(7, (1,), LINE),))
ANSWERS = Results((Result(7, (1, 2), LINE, released=False), Result(8, (), LINE), Result(9, (1,), LINE, chunks=True)))
LARGE = bytes(SMALL_BYTES + 1)
BATCH = Run(7, "m", None, ("y",), (1, 2), 4, True, call=5)
AGAIN = Run(7, "", None, None, (1, 2), 4, True, call=5, registers=False)
BATCH_OF_ALL = Run(
    *(7, "m", "s", None, (1, 2), 4, True, (Lent(1, 2, 64, 128),), (AnswerSpace(2, 512, 64), AnswerSpace(2, 640, 64))),
    *(2, 3, (0, 2), 6),
)
FAILED = Failed(Fault.MODEL_FAILED, "why")
DONE = Done(7, (1, 1), (), 0.1, 0.2)
DONE_IN_PART = Done(7, (2, 0, 1), (FAILED,), 0.1, 0.2)
SAMPLES: dict[str, tuple[Any, list[bytes]]] = {
    "a job": (LONE, [b"12345678"]),
    "a job with all": (FULL, [b"1234", b"", b"", LARGE]),
    "an answer": (ANSWER, [b"12345678"]),
    "answers": (ANSWERS, [b"1", LARGE, b"", b"4"]),
    "a batch": (BATCH, [b"table", b"1234", b"5678"]),
    "a batch of a call that is known": (AGAIN, [b"", b"1234", b"5678"]),
    "a batch with all": (BATCH_OF_ALL, [b"table", b"ends", b"texts", b"", LARGE, LARGE]),
    "a batch's answers": (DONE, [b"1", b"2"]),
    "answers and failures": (DONE_IN_PART, [b"1", LARGE, b"3"]),
}
CASES = [pytest.param(*sample, id=name) for name, sample in SAMPLES.items()]


def check(frames: list[bytes]) -> Any:
    """Whatever it is: a message that is whole, or `BadFrame`. Gives it, or None."""
    try:
        envelope = decode(KINDS, frames)
    except BadFrame as error:
        refusal = str(error)
    else:
        return whole(envelope, frames)
    assert 0 < len(refusal) < 400
    return None


def whole(envelope: Envelope, frames: list[bytes]) -> Any:
    """Checks what `decode` promises of it."""
    message = envelope.message
    if isinstance(message, Submit):
        assert 0.0 <= message.timeout_s < math.inf
        assert message.rows is None or message.rows > 0
        assert len(message.lent) <= MOST_LENT
        assert all(0 <= lent.index < len(envelope.payload) for lent in message.lent)
        assert [len(envelope.payload[lent.index]) for lent in message.lent] == [0] * len(message.lent)
    elif isinstance(message, Results):
        assert sum(sum(result.pieces) for result in message.results) == len(envelope.payload)
        for result in message.results:
            line = result.timeline
            seconds = (line.queue_s, line.batch_wait_s, line.feed_s, line.run_s, line.fetch_s)
            assert all(map(math.isfinite, seconds))
    elif isinstance(message, Run):
        assert all(0 <= lent.index < len(envelope.payload) - 1 for lent in message.lent)
        assert len(message.spaces) in (0, len(message.rows) or 1)
        assert 0 <= message.call < MOST_CALLS
    elif isinstance(message, Done):
        assert math.isfinite(message.run_s)
        assert math.isfinite(message.fetch_s)
        assert len(list(outcomes_of(message))) == len(message.frames)
        assert sum(message.frames) == len(envelope.payload)
    else:
        return message
    # Nothing of it was passed over: the same frames say it again.
    assert encode(message, envelope.instance, envelope.payload)[0][:14] == frames[0][:14]
    assert sum(map(len, envelope.payload)) <= sum(map(len, frames)), "no byte is read twice"
    return message


@settings(steady, max_examples=200)
@given(messages)
def test_each_survives(sample: tuple[Any, list[bytes]]) -> None:
    message, payload = sample
    frames = encode(message, INSTANCE, payload)
    if not isinstance(message, Run):
        assert len(frames) == 1 + sum(len(buffer) > SMALL_BYTES for buffer in payload)
    envelope = decode(KINDS, frames)
    assert repr(normal(envelope.message)) == repr(message), "of the same types: 1 is no True"
    assert list(map(bytes, envelope.payload)) == payload
    assert envelope.instance == INSTANCE


def normal(message: Any) -> Any:
    """With bytes where there is a look at them."""
    if isinstance(message, Submit):
        message.names = None if message.names is None else bytes(message.names)
        message.table = bytes(message.table)
    return message


def test_a_lone_tiny_job_is_one_frame_each_way_and_a_large_one_is_copied_nowhere() -> None:
    assert [len(frame) for frame in encode(LONE, INSTANCE, [b"12345678"])] == [68 + 4 + 8]
    assert len(encode(ANSWER, INSTANCE, [b"12345678"])) == 1
    assert [len(frame) for frame in encode(AGAIN, INSTANCE, [b"table", b"1234", b"5678"])] == [68 + 8 + 8 + 8]
    assert len(encode(DONE, INSTANCE, [b"1", b"2"])) == 1
    for message, before in ((LONE, []), (ANSWER, []), (Run(1, "m", None, None, (1,), 1, True), [b"table"])):
        frames = encode(message, INSTANCE, [*before, LARGE])
        assert frames[1] is LARGE
        assert decode(KINDS, frames).payload[-1] is LARGE
    (small,) = decode(KINDS, encode(LONE, INSTANCE, [b"12345678"])).payload
    assert isinstance(small, memoryview), "nor is a small one, when it is read"


@pytest.mark.parametrize(("message", "payload"), CASES)
def test_cut_at_every_byte_or_longer(message: Any, payload: list[bytes]) -> None:
    frames = encode(message, INSTANCE, payload)
    assert check(frames) is not None
    for end in range(len(frames[0])):
        assert check([frames[0][:end], *frames[1:]]) is None, end
    for more in (b"\0", b"\xff" * 4, bytes(100_000)):
        assert check([frames[0] + more, *frames[1:]]) is None
    assert check([*frames, b""]) is None
    assert check([*frames, b"more"]) is None
    assert len(frames) == 1 or check(frames[:-1]) is None
    assert check([]) is None


@pytest.mark.parametrize(("message", "payload"), CASES)
def test_every_bit_flipped(message: Any, payload: list[bytes]) -> None:
    frames = encode(message, INSTANCE, payload)
    refused = 0
    for position in range(8 * len(frames[0])):
        octets = bytearray(frames[0])
        octets[position // 8] ^= 1 << position % 8
        refused += check([bytes(octets), *frames[1:]]) is None
    assert refused > 8 * 6, "those of the first six bytes at least"


FIELDS = {"<H": (0, 1, 255, 0x7FFF, 0xFFFF), "<I": (0, 1, 4, 4096, 1 << 31, (1 << 32) - 4, (1 << 32) - 1)}
EXTREME_FLOATS = (math.nan, math.inf, -math.inf, -0.0, -1.0, 5e-324, 1.7e308)


@pytest.mark.parametrize(("message", "payload"), CASES)
def test_every_place_at_its_extremes(message: Any, payload: list[bytes]) -> None:
    """At each offset, whatever field begins there: counts, sizes, offsets and marks, and numbers that are none."""
    frames = encode(message, INSTANCE, payload)
    places: list[tuple[str, float]] = [(form, value) for form, values in FIELDS.items() for value in values]
    places += [("<Q", value) for value in (0, 1 << 63, (1 << 64) - 1)] + [("<d", value) for value in EXTREME_FLOATS]
    for offset in range(PREAMBLE_BYTES, len(frames[0])):
        for form, value in places:
            octets = bytearray(frames[0])
            if offset + struct.calcsize(form) <= len(octets):
                struct.pack_into(form, octets, offset, value)
                check([bytes(octets), *frames[1:]])


@settings(steady, max_examples=300)
@given(messages, st.data())
@example((FULL, [b"1234", b"", b"", b""]), None)
def test_damaged_in_several_places(sample: tuple[Any, list[bytes]], data: st.DataObject | None) -> None:
    frames = encode(sample[0], INSTANCE, sample[1])
    octets = bytearray(frames[0])
    for _ in range(0 if data is None else data.draw(st.integers(1, 4))):
        assert data is not None
        position = data.draw(st.integers(4, len(octets)))
        match data.draw(st.sampled_from(["set", "cut", "insert", "move"])):
            case "set" if position < len(octets):
                octets[position] = data.draw(st.integers(0, 255))
            case "cut":
                del octets[position : position + data.draw(st.integers(1, 8))]
            case "insert":
                octets[position:position] = data.draw(st.binary(min_size=1, max_size=9))
            case "move":
                octets[position:] = octets[position - 1 :]
    check([bytes(octets), *frames[1:]])


@settings(steady, max_examples=300)
@given(
    st.sampled_from(sorted(kind for kind in KINDS if kind in (Submit.kind, Results.kind, Run.kind, Done.kind))),
    st.binary(max_size=200),
)
def test_any_bytes_after_the_preamble(kind: int, rest: bytes) -> None:
    check([b"TFWP" + bytes((VERSION, kind)) + INSTANCE + rest])


def counts(kind: Any, field: int, width: str) -> Iterator[list[bytes]]:
    """Messages of nothing but fixed fields, of which one is a count, from 1 to as many as can be said."""
    fixed = {Submit: 68, Results: 24, Run: 68, Done: 52}[kind]
    for count in (1, 2, 4095, 0xFFFF, (1 << 31) - 1, (1 << 32) - 1):
        if count < 1 << 8 * struct.calcsize(width):
            octets = bytearray(b"TFWP" + bytes((VERSION, kind.kind)) + INSTANCE + bytes(fixed - PREAMBLE_BYTES))
            if kind is Submit:
                struct.pack_into("<H", octets, 62, 1)  # its weight
            struct.pack_into(width, octets, field, count)
            yield [bytes(octets)]


@pytest.mark.parametrize(
    "messages",
    [
        *(counts(Submit, offset, "<I") for offset in (48, 52, 56)),  # bytes of names and of the table, tensors
        *(counts(Submit, offset, "<H") for offset in (64,)),  # lent
        *(counts(Results, offset, "<I") for offset in (16, 20)),  # results, buffers
        *(
            counts(Run, offset, "<I") for offset in (36, 40, 44, 56, 60, 64)
        ),  # names, table, parts, rooms, lent, buffers
        *(counts(Done, offset, "<I") for offset in (40, 44, 48)),  # parts, buffers, bytes of failures
    ],
)
def test_a_count_beyond_the_message_takes_no_memory(messages: Iterator[list[bytes]]) -> None:
    tracemalloc.start()
    try:
        for frames in messages:
            with pytest.raises(BadFrame):
                decode(KINDS, frames)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_another_version_is_told_apart_whatever_follows() -> None:
    for version in (VERSION - 2, VERSION - 1, VERSION + 1, 255):
        first = bytearray(encode(LONE, INSTANCE, [b"x"])[0])
        first[4] = version
        with pytest.raises(OtherVersion) as caught:
            decode(KINDS, [bytes(first)])
        assert caught.value.version == version


LIES: dict[str, tuple[Any, list[bytes], str]] = {
    "a failure that is missing": (Done(7, (1, 0), (), 0.1, 0.2), [b"1"], "0 failures for 1 parts that failed"),
    "a failure of nobody": (Done(7, (1,), (FAILED,), 0.1, 0.2), [b"1"], "1 failures for 0 parts that failed"),
    "fewer buffers": (Done(7, (2,), (), 0.1, 0.2), [b"1"], "answers of 2 buffers, where there are 1"),
    "more buffers": (Done(7, (1,), (), 0.1, 0.2), [b"1", b"2"], "answers of 1 buffers, where there are 2"),
    "no time at all": (Done(7, (1,), (), math.nan, 0.2), [b"1"], "a run of nan s"),
    "time before it": (Done(7, (1,), (), 0.1, -1.0), [b"1"], "-1.0 s more"),
    "an endless wait": (Submit(7, 3, 1, math.inf), [b"1"], "timeout is inf s"),
    "fewer pieces": (Results((Result(7, (2,), LINE),)), [b"1"], "2 buffers in 1 pieces, where there are 1"),
    "an empty piece": (Results((Result(7, (0, 1), LINE),)), [b"1"], "1 buffers in 2 pieces"),
    "rooms for others": (
        Run(7, "m", None, None, (1, 2), 3, True, spaces=(AnswerSpace(1, 0, 64),)),
        [b"t"],
        "1 spaces of 2 parts",
    ),
}


@pytest.mark.parametrize(("message", "payload", "told"), LIES.values(), ids=LIES.keys())
def test_what_contradicts_itself_is_refused(message: Any, payload: list[bytes], told: str) -> None:
    with pytest.raises(BadFrame, match=told):
        decode(KINDS, encode(message, INSTANCE, payload))


@pytest.mark.parametrize(("message", "payload"), CASES)
def test_flags_that_have_no_meaning_are_refused(message: Any, payload: list[bytes]) -> None:
    frames = encode(message, INSTANCE, payload)
    for bit in range(3, 16):
        octets = bytearray(frames[0])
        octets[PREAMBLE_BYTES + bit // 8] |= 1 << bit % 8
        with pytest.raises(BadFrame, match="flags"):
            decode(KINDS, [bytes(octets), *frames[1:]])


class Index(int):
    """Of a buffer that is lent, which counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Index.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_lent_buffers_are_not_looked_for_one_by_one() -> None:
    """A client may lend thousands that have no bytes, and a batch has those of many jobs."""
    buffers = [b""] * 4000
    lent = tuple(Lent(Index(number), 1, 0, 0) for number in range(0, len(buffers), 2))
    run = Run(1, "m", "s", None, (), 0, False, lent, (), 0, 0)
    Index.compared = 0
    run.to_frames(INSTANCE, [b"table", *buffers])
    assert len(lent) <= Index.compared <= 3 * len(lent)


def test_more_buffers_than_a_lane_reads_are_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.wire.batches.MOST_BUFFERS", 10)
    run = Run(1, "m", "s", None, (), 0, False, (), (), 0, 0)
    assert run.to_frames(INSTANCE, [b"table", *[b"x"] * 10])
    with pytest.raises(BadFrame, match="11 buffers"):
        run.to_frames(INSTANCE, [b"table", *[b"x"] * 11])
