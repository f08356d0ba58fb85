"""How much is worth sending as one: rows that run in a moment, so that idle workers share what there is."""

from collections import OrderedDict
from typing import TypeAlias

from pool.client.request import Request
from pool.wire.timeline import Timeline

__all__ = ["CHUNK_BYTES", "MOST_ROWS", "Grain"]

CHUNK_S = 0.005  # what one may take to run
CHUNK_BYTES = 16 << 20
CHUNKS = 4  # of what the pool lends its client there is room for so many: none is refused for what each would have had
MOST_ROWS = 1024
MOST_KEPT = 256
FORGET = 0.1  # the share of an older measurement that a newer, longer one replaces

_Call: TypeAlias = tuple[str, str | None, tuple[str, ...] | None, int | str | None]


class Grain:
    """Written by the I/O thread, read by all."""

    def __init__(self) -> None:
        self.most_bytes = CHUNK_BYTES
        self._row_s: OrderedDict[_Call, float] = OrderedDict()

    def rows(self, request: Request) -> int:
        """At most so many rows in a chunk; 1 while nothing is known, or none of its jobs may travel in one."""
        row_s = self._row_s.get(_call(request))
        return 1 if row_s is None else max(1, min(MOST_ROWS, int(CHUNK_S / max(row_s, 1e-9))))

    def lent(self, credit_bytes: int) -> None:
        """The pool takes so much from this client."""
        self.most_bytes = min(CHUNK_BYTES, credit_bytes // CHUNKS)

    def forbid(self, request: Request) -> None:
        """The pool does not take chunks of these jobs, until it says otherwise."""
        self._row_s.pop(_call(request), None)

    def learn(self, request: Request, timeline: Timeline, chunks: bool) -> None:
        """What a row took in a run; the shortest of late, since a run may be held up by anything.

        `chunks`: whether jobs of the call may travel in some.
        """
        if not (chunks and timeline.rows):
            self.forbid(request)
            return
        asked = _call(request)
        row_s = timeline.run_s / max(1, timeline.batch_rows)
        known = self._row_s.get(asked)
        self._row_s[asked] = row_s if known is None or row_s < known else known + FORGET * (row_s - known)
        if known is None and len(self._row_s) > MOST_KEPT:
            self._row_s.popitem(last=False)


def _call(request: Request) -> _Call:
    """What the pool's word is about."""
    return request.model, request.signature, request.outputs, request.version
