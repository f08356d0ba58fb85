"""How much is worth sending as one: rows that run in a moment, so that idle workers share what there is."""

from collections import OrderedDict

from pool.client.request import Request
from pool.wire.timeline import Timeline

__all__ = ["PACK_BYTES", "Grain"]

BUNDLE_S = 0.005  # what a pack may take to run
PACK_BYTES = 16 << 20
PACKS = 4  # of what the pool lends its client there is room for so many: none is refused for what each would have had
MOST_ROWS = 1024
MOST_KEPT = 256
FORGET = 0.1  # the share of an older measurement that a newer, longer one replaces


class Grain:
    """Written by the I/O thread, read by all."""

    def __init__(self) -> None:
        self.most_bytes = PACK_BYTES
        """Of a pack of more than one job."""
        self._row_s: OrderedDict[tuple[str, str | None], float] = OrderedDict()

    def rows(self, request: Request) -> int:
        """At most so many rows in a pack; 1 while nothing is known."""
        row_s = self._row_s.get((request.model, request.signature))
        return 1 if row_s is None else max(1, min(MOST_ROWS, int(BUNDLE_S / max(row_s, 1e-9))))

    def lent(self, credit_bytes: int) -> None:
        """The pool takes so much from this client."""
        self.most_bytes = min(PACK_BYTES, credit_bytes // PACKS)

    def learn(self, request: Request, timeline: Timeline) -> None:
        """What a row took in a run; the shortest of late, since a run may be held up by anything."""
        if not timeline.rows:
            return
        asked = request.model, request.signature
        row_s = timeline.run_s / max(1, timeline.batch_rows)
        known = self._row_s.get(asked)
        self._row_s[asked] = row_s if known is None or row_s < known else known + FORGET * (row_s - known)
        if known is None and len(self._row_s) > MOST_KEPT:
            self._row_s.popitem(last=False)
