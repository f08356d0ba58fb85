"""The same inputs again that have just been quarantined: a caller's retry loop must not kill worker after worker.

A digest of the inputs is made only for jobs as large as one that was quarantined, so nobody else pays for it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from pool.router.rows import Inputs

__all__ = ["REMEMBERED_S", "Repeats"]

REMEMBERED_S = 60.0  # afterwards they are tried again: the device or the model may be another by then
MOST_REMEMBERED = 256


class Repeats:
    def __init__(self) -> None:
        self._instants: OrderedDict[bytes, float] = OrderedDict()
        self._sizes: dict[tuple[str, int], float] = {}  # of a model; until when a digest is worth while

    def quarantined(self, inputs: Inputs, now: float) -> None:
        """A job with these inputs has killed its workers."""
        digest = _digest(inputs)
        self._instants.pop(digest, None)
        self._instants[digest] = now
        self._sizes[_size(inputs)] = now + REMEMBERED_S
        self._forget(now)

    def refusal(self, inputs: Inputs, now: float) -> str | None:
        """Why a job with these inputs is not run, if it is not."""
        if not self._sizes or self._sizes.get(_size(inputs), 0.0) <= now:
            return None
        instant = self._instants.get(_digest(inputs))
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
        self._sizes = {size: until for size, until in self._sizes.items() if until > now}


def _size(inputs: Inputs) -> tuple[str, int]:
    return inputs.asked[0], len(inputs.table) + sum(map(len, inputs.buffers))


def _digest(inputs: Inputs) -> bytes:
    digest = hashlib.blake2b(repr((inputs.asked, inputs.rows)).encode(), digest_size=16)
    digest.update(inputs.table)
    for frame in inputs.buffers:
        digest.update(len(frame).to_bytes(8, "little"))
        digest.update(frame.buffer)
    return digest.digest()
