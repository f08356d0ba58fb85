"""The same inputs again that have just been quarantined: a caller's retry loop must not kill worker after worker.

All of the inputs is read only for jobs whose samples are those of one that was quarantined: nobody else pays for it.
It is read in steps, one a turn of the loop, so that inputs of a gigabyte hold up nobody.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Callable, Generator

from pool.serve.layouts import memory_of
from pool.serve.rows import Inputs

__all__ = ["MOST_READ", "REMEMBERED_S", "STEP_BYTES", "Reading", "Repeats"]

REMEMBERED_S = 60.0  # afterwards they are tried again: the device or the model may be another by then
MOST_REMEMBERED = 256
SAMPLE_BYTES = 1 << 19  # from the beginnings of all buffers together, and as much from their ends …
SAMPLE_OF_BUFFER_BYTES = 1024  # … and of each no more than this
STEP_BYTES = 1 << 20  # some 1.2 ms
MOST_READ = 8  # at once: their bytes are on no client's account


class Reading:
    """Of all of a job's inputs. Until it ends, nobody else uses the memory that they were lent."""

    def __init__(self, inputs: Inputs, then: Callable[[bytes], None]) -> None:
        """`then` is told the digest."""
        self._then = then
        self._steps = _digested(inputs)
        self.is_over = False
        self._regions = inputs.regions
        if self._regions is not None:
            self._regions.hold()

    def step(self) -> bool:
        """Reads `STEP_BYTES` at most; whether that was all. Nothing is read of one that was given up."""
        if self.is_over:
            return True
        try:
            next(self._steps)
            return False
        except StopIteration as end:
            self.give_up()
            self._then(end.value)
            return True

    def give_up(self) -> None:
        """Nobody wants to know any more."""
        self.is_over = True
        self._steps.close()
        regions, self._regions = self._regions, None
        if regions is not None:
            regions.let_go()


class Repeats:
    def __init__(self) -> None:
        self._instants: OrderedDict[bytes, float] = OrderedDict()
        self.samples: dict[bytes, float] = {}
        """To be read: until when a look at all of it is worth while. Mostly empty, and then nobody is suspected."""
        self._readings: deque[Reading] = deque()

    def __bool__(self) -> bool:
        """Whether there is something to read."""
        return bool(self._readings)

    def quarantined(self, inputs: Inputs, now: float) -> None:
        """A job with these inputs has killed its workers. Where too many are being read it is not remembered."""

        def remember(digest: bytes) -> None:
            self._instants.pop(digest, None)
            self._instants[digest] = now
            self._forget(now)

        sample = _sample(inputs)
        if self.read(inputs, remember) is not None:
            self.samples[sample] = now + REMEMBERED_S

    def suspects(self, inputs: Inputs, now: float) -> bool:
        """Whether these inputs may be those of a quarantined job, so that `read` is to tell."""
        return self.samples.get(_sample(inputs), 0.0) > now

    def read(self, inputs: Inputs, then: Callable[[bytes], None]) -> Reading | None:
        """`then` is told the digest: at once where little is to be read and nothing waits, else by a later `step`.

        None where too many are being read.
        """
        if len(self._readings) >= MOST_READ:
            return None
        reading = Reading(inputs, then)
        if self._readings or not reading.step():
            self._readings.append(reading)
        return reading

    def step(self) -> None:
        """Reads `STEP_BYTES` at most, of who came first."""
        if self._readings and self._readings[0].step():
            self._readings.popleft()

    def refusal(self, digest: bytes, now: float) -> str | None:
        """Why a job with inputs of this digest is not run, if it is not."""
        instant = self._instants.get(digest)
        if instant is None or now - instant >= REMEMBERED_S:
            return None
        left_s = REMEMBERED_S - (now - instant)
        return (
            f"the same inputs were quarantined {now - instant:.0f} s ago, because they killed their workers;"
            f" you can try them again in {left_s:.0f} s"
        )

    def _forget(self, now: float) -> None:
        while self._instants:
            digest, instant = next(iter(self._instants.items()))
            if now - instant < REMEMBERED_S and len(self._instants) <= MOST_REMEMBERED:
                break
            del self._instants[digest]
        self.samples = {sample: until for sample, until in self.samples.items() if until > now}


def _begun(inputs: Inputs) -> hashlib.blake2b:
    """With what they are inputs to."""
    digest = hashlib.blake2b(repr((inputs.asked, inputs.rows)).encode(), digest_size=16)
    digest.update(inputs.table)
    return digest


def _sample(inputs: Inputs) -> bytes:
    """A digest of some bytes at either end of each buffer."""
    digest = _begun(inputs)
    ends = min(SAMPLE_OF_BUFFER_BYTES, SAMPLE_BYTES // max(1, len(inputs.buffers)))
    for frame in inputs.buffers:
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(memory_of(frame)[:ends])
        digest.update(memory_of(frame)[-ends:])
    return digest.digest()


def _digested(inputs: Inputs) -> Generator[None, None, bytes]:
    """The digest of all of the inputs; yields when it has read as much as a step may."""
    digest, left = _begun(inputs), STEP_BYTES
    for frame in inputs.buffers:
        digest.update(len(frame).to_bytes(8, "little"))
        position = 0
        while position < len(frame):
            if not left:
                yield
                left = STEP_BYTES
            piece = memory_of(frame)[position : position + left]
            digest.update(piece)
            position, left = position + len(piece), left - len(piece)
    return digest.digest()
