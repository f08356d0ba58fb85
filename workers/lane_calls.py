"""What a lane was told of its calls: the pool gives the numbers, and uses one again for another call."""

from typing import Any

from pool.wire.batches import Run
from pool.wire.codec import BadFrame

__all__ = ["LaneCalls"]


class LaneCalls:
    """Bounded, since a number that is none is refused where a RUN is read."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str | None, tuple[str, ...] | None, Any]] = {}

    def complete(self, run: Run, payload: list[Any]) -> None:
        """Keeps what a RUN registers; puts what it leaves out into it and, the table, into its payload.

        The rest of the payload are looks at the memory that it came in. Raises `BadFrame` for a call that was never
        registered, which no pool says.
        """
        payload[1:] = [memoryview(each) for each in payload[1:]]
        if run.registers:
            self._known[run.call] = run.model, run.signature, run.outputs, payload[0]
            return
        known = self._known.get(run.call)
        if known is None:
            raise BadFrame(f"a batch of call {run.call}, which was not registered")
        model, signature, outputs, payload[0] = known
        run.known(model, signature, outputs)
