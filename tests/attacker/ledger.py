"""What a client has sent and is owed: each job one answer, the right one, and its memory back once."""

import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attacker.peer import ANSWER_S, Heard, Peer
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from pool.wire.hot import Buffer
from pool.wire.message import Message
from pool.wire.packing import unpack_answer
from pool.wire.tensors import Array
from support.asked import Asked

__all__ = ["Expect", "Ledger", "Owed", "answered", "gives", "refused", "refused_later"]

PING_S = 5.0

Read = Callable[[int, int], memoryview]
Expect = Callable[[Message | wire.Result, Sequence[Buffer], "Read | None"], bool]
"""Judges an answer: whether it was a result, and the right one. Raises AssertionError for what must not be said."""


def refused(complaint: str, *faults: Fault) -> Expect:
    """A Failure of one of these kinds, INVALID_INPUT if there is none, that says so."""

    def judge(message: Message | wire.Result, _: Sequence[Buffer], __: "Read | None") -> bool:
        assert isinstance(message, wire.Failure), f"taken in, where it should hear {complaint!r}: {message}"
        assert message.fault in (faults or (Fault.INVALID_INPUT,)), message
        assert re.search(complaint, message.text), f"{complaint!r} was expected, and not {message.text!r}"
        return False

    return judge


def refused_later(complaint: str, *faults: Fault) -> Expect:
    """The same, of what is looked at when there is room for the job."""
    judge = refused(complaint, *faults)

    def judge_later(message: Message | wire.Result, payload: Sequence[Buffer], read: "Read | None") -> bool:
        full = isinstance(message, wire.Failure) and message.fault is Fault.OVERLOADED
        return not full and judge(message, payload, read)

    return judge_later


def answered(message: Message | wire.Result, _: Sequence[Buffer], __: "Read | None") -> bool:
    """Anything that is one answer. What is no fault of the job's own is none that it may have."""
    if isinstance(message, wire.Failure):
        assert message.fault not in (Fault.WORKER_LOST, Fault.STATEFUL_WORKER_LOST, Fault.QUARANTINED), message
        assert "the pool failed" not in message.text, message
    return False


def gives(outputs: Mapping[str, Array]) -> Expect:
    """These, bit by bit. A pool that is full may say so, and nothing else."""

    def judge(message: Message | wire.Result, payload: Sequence[Buffer], read: "Read | None") -> bool:
        if isinstance(message, wire.Failure):
            assert message.fault is Fault.OVERLOADED, message
            return False
        assert isinstance(message, wire.Result), message
        found: list[Mapping[str, Array]] = []
        start = 0
        for count in message.pieces:
            found.append(unpack_answer(payload[start : start + count], read))
            start += count
        for name, array in outputs.items():
            whole = found[0][name] if len(found) == 1 else np.concatenate([each[name] for each in found])
            assert (whole.dtype, whole.shape) == (array.dtype, array.shape), (name, whole, array)
            same = whole.tolist() == array.tolist() if array.dtype.hasobject else whole.tobytes() == array.tobytes()
            assert same, f"output {name} of job {message.job} is another's, or nobody's: {whole!r:.200}"
        return True

    return judge


@dataclass(slots=True)
class Owed:
    """`cancelled`: it may have no answer. `chunk`: it may be given back instead.

    `sent`: how often, with the same number; but for one, it may be told that. `lent`: memory is to come back, once for
    each that was not told that. `answers` and `releases`: how many it had.
    """

    judge: Expect
    chunk: bool = False
    cancelled: bool = False
    sent: int = 1
    lent: bool = False
    answers: int = 0
    releases: int = 0


class Ledger:
    """Of one peer. `right`: how many results were as they should be; `failed`: how many failures of which kind."""

    def __init__(self, peer: Peer, read: "Read | None" = None) -> None:
        """`read`: memory that was lent, from an offset on."""
        self.right = 0
        self.failed: Counter[Fault] = Counter()
        self._peer = peer
        self._read = read
        self._owed: dict[int, Owed] = {}

    def submit(self, submit: Asked, payload: Sequence[bytes], owed: Owed) -> None:
        """REQUIRES a number that none of the jobs before has had."""
        owed.chunk = submit.weight > 1
        owed.lent = bool(submit.lent or submit.space)
        self._owed[submit.job] = owed
        self._peer.say(submit, payload)
        while (heard := self._peer.heard(0)) is not None:  # who does not read is dropped
            self.read(heard)

    def again(self, submit: Asked, payload: Sequence[bytes]) -> None:
        """The same number once more, while the first may be there still."""
        self._owed[submit.job].sent += 1
        self._peer.say(submit, payload)

    def cancel(self, job: int) -> None:
        self._owed[job].cancelled = True
        self._peer.say(wire.Cancel(job))

    def read(self, heard: Heard) -> None:
        """Judges what concerns jobs. Raises AssertionError for anything else."""
        match heard.message:
            case wire.Results(results):
                start = 0
                for result in results:
                    end = start + sum(result.pieces)
                    self._answer(result.job, result, heard.payload[start:end])
                    start = end
            case wire.Failure(job) | wire.Unpack(job):
                self._answer(job, heard.message, heard.payload)
            case wire.Released(job):
                if self._owed[job].lent:
                    self._release(job)
            case other:
                raise AssertionError(f"nobody asked for {other}")

    def settle(self) -> None:
        """Waits until everything is answered, and asserts that nothing comes twice."""
        ends = time.monotonic() + ANSWER_S
        for heard in self._peer.before_pong():
            self.read(heard)
        while left := [job for job, owed in self._owed.items() if not self._is_settled(owed)]:
            assert time.monotonic() < ends, f"jobs {left[:5]} have had no answer within {ANSWER_S:g} s"
            if (found := self._peer.heard(PING_S)) is not None:
                self.read(found)
                continue
            for heard in self._peer.before_pong():  # who is silent is forgotten
                self.read(heard)
        for heard in self._peer.before_pong():
            self.read(heard)

    def _is_settled(self, owed: Owed) -> bool:
        if owed.lent and owed.releases < owed.sent:
            return False
        return owed.cancelled or owed.answers == owed.sent

    def _answer(self, job: int, message: Message | wire.Result, payload: Sequence[Buffer]) -> None:
        owed = self._owed[job]
        if isinstance(message, wire.Failure):
            self.failed[message.fault] += 1
            if owed.sent > 1 and owed.answers < owed.sent and message.text.endswith("is already in the pool"):
                owed.sent -= 1
                return
        assert 0 <= owed.answers < owed.sent, f"job {job} was answered once more: {message}"
        owed.answers += 1
        if isinstance(message, wire.Unpack):
            assert owed.chunk, f"job {job} is none: {message}"
            return
        self.right += owed.judge(message, payload, self._read)
        if isinstance(message, wire.Result) and message.released and owed.lent:
            self._release(job)

    def _release(self, job: int) -> None:
        owed = self._owed[job]
        owed.releases += 1
        assert owed.releases <= owed.sent, f"the memory of job {job} was given back once more"
