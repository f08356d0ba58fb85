"""What a SUBMIT's header may say, and what it is counted as."""

import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import zmq

from pool.serve.calls import MOST_NUMBER, MOST_OUTPUTS, Calls, inputs_of
from pool.serve.shared_memory import SharedMemory
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.client_messages import CLIENT_MESSAGES
from pool.wire.codec import BadFrame, pack
from pool.wire.frames import decode
from pool.wire.lent import AnswerSpace, Lent
from support.asked import OWNER, Asked, framed

INSTANCE = b"instance"
TABLE = pack(Table((TensorHeader("x", "float32", (ROWS,), False),)))
SUBMIT = Asked(1, "m", "s", None, 2)


def arrive(submit: Asked) -> Any:
    """As it comes: through the codec, with two rows."""
    frames = [zmq.Frame(frame) for frame in framed(submit, INSTANCE, [TABLE, bytes(8)])]
    envelope = decode(CLIENT_MESSAGES, frames)
    call = Calls().of(envelope.message, OWNER)
    assert call is not None
    return inputs_of(b"client", envelope.message, call, envelope.payload, frames, SharedMemory(0, 0), lambda *_: None)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"job": (1 << 64) - 1}, "numbers are from 0"),
        ({"job": MOST_NUMBER + 1}, "numbers are from 0"),
        ({"origin": MOST_NUMBER + 1}, "numbers are from 0"),
        ({"weight": 3}, "3 jobs in one message with 2 rows"),
        ({"weight": 0}, "a message of 0 jobs"),
        ({"model": "m" * 1001}, "a name of 1001 characters"),
        ({"signature": "s" * 1001}, "a name of 1001 characters"),
        ({"device": "d" * 1001}, "a name of 1001 characters"),
        ({"version": "v" * 1001}, "a name of 1001 characters"),
        ({"outputs": ("y", "z", "y")}, "1 of its outputs are named twice"),
        ({"outputs": ("y" * 1001,)}, "an output's name of 1001"),
        ({"outputs": tuple(map(str, range(MOST_OUTPUTS + 1)))}, f"at most {MOST_OUTPUTS}"),
        ({"lent": (Lent(0, 1, 0, 0),) * 513}, "513 lent buffers"),
        ({"lent": (Lent(0, 1, 0, 0),) * 2}, "1 lent buffers where 2 are declared"),
        ({"lent": (Lent(0, 1, 0, 0),)}, "segment 1 is not lent"),
        ({"space": AnswerSpace(1, 0, 64)}, "segment 1 is not lent"),
        ({"rows": (1 << 32) - 1}, "it has 4294967295 rows"),
        ({"timeout_s": float("nan")}, "timeout is nan"),
        ({"timeout_s": float("inf")}, "timeout is inf"),
        ({"timeout_s": -1.0}, "timeout is -1.0"),
    ],
)
def test_a_header_that_no_client_sends_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadFrame, match=complaint):
        arrive(replace(SUBMIT, **changes))


def test_the_last_numbers_that_can_travel_are_taken() -> None:
    assert arrive(replace(SUBMIT, job=MOST_NUMBER, weight=2, origin=MOST_NUMBER)).rows == 2
    assert arrive(replace(SUBMIT, job=MOST_NUMBER)).rows == 2


def test_what_is_held_of_a_header_is_counted() -> None:
    """Of Python's own making: many times the bytes that came."""
    names = [f"some_output_{number}" for number in range(1000)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        jobs = [arrive(replace(SUBMIT, outputs=tuple(f"{name}/{job}" for name in names))) for job in range(10)]
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    counted = sum(job.size_bytes for job in jobs)
    assert len(jobs) == 10
    assert 0.9 * held < counted < 1.2 * held + 10 * 1024, Counter(held=held, counted=counted)
