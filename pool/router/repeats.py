"""The same inputs again that have just been quarantined: a caller's retry loop must not kill worker after worker.

All of the inputs is read only for jobs whose samples are those of one that was quarantined: nobody else pays for it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from pool.router.rows import Inputs

__all__ = ["REMEMBERED_S", "Repeats"]

REMEMBERED_S = 60.0  # afterwards they are tried again: the device or the model may be another by then
MOST_REMEMBERED = 256
SAMPLE_BYTES = 1024  # from either end of each buffer


class Repeats:
    def __init__(self) -> None:
        self._instants: OrderedDict[bytes, float] = OrderedDict()
        self._samples: dict[bytes, float] = {}  # until when a look at all of it is worth while

    def quarantined(self, inputs: Inputs, now: float) -> None:
        """A job with these inputs has killed its workers."""
        digest = _digest(inputs, None)
        self._instants.pop(digest, None)
        self._instants[digest] = now
        self._samples[_digest(inputs, SAMPLE_BYTES)] = now + REMEMBERED_S
        self._forget(now)

    def refusal(self, inputs: Inputs, now: float) -> str | None:
        """Why a job with these inputs is not run, if it is not."""
        if not self._samples or self._samples.get(_digest(inputs, SAMPLE_BYTES), 0.0) <= now:
            return None
        instant = self._instants.get(_digest(inputs, None))
        if instant is None or now - instant >= REMEMBERED_S:
            return None
        left_s = REMEMBERED_S - (now - instant)
        return (
            f"the same inputs were quarantined {now - instant:.0f} s ago, because they killed their workers;"
            f" they can be tried again in {left_s:.0f} s"
        )

    def _forget(self, now: float) -> None:
        while self._instants:
            digest, instant = next(iter(self._instants.items()))
            if now - instant < REMEMBERED_S and len(self._instants) <= MOST_REMEMBERED:
                break
            del self._instants[digest]
        self._samples = {sample: until for sample, until in self._samples.items() if until > now}


def _digest(inputs: Inputs, ends: int | None) -> bytes:
    """Of all of the inputs, or of so many bytes at either end of each buffer, and of what they are inputs to."""
    digest = hashlib.blake2b(repr((inputs.asked, inputs.rows)).encode(), digest_size=16)
    digest.update(inputs.table)
    for frame in inputs.buffers:
        digest.update(len(frame).to_bytes(8, "little"))
        if ends is None or len(frame) <= 2 * ends:
            digest.update(frame.buffer)
        else:
            digest.update(frame.buffer[:ends])
            digest.update(frame.buffer[-ends:])
    return digest.digest()
