"""What the names of a job come to: its model, the line in which it waits, and with whom it may run.

It is found out once a call and not once a job, and counts as long as nothing has changed that it hangs on: what is
known of the slots and of the policy (`epoch`, the machine's), what is known of the model (`model_epoch`), and that the
line has not forgotten its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pool.core.remembered import MOST_NAME_BYTES

if TYPE_CHECKING:
    from pool.core.keys import Key
    from pool.core.line import Line
    from pool.core.models import Model

__all__ = ["Call", "Calls", "Names"]

MOST_CALLS = 1024  # more than callers have at a time; the next one begins anew, as it costs a job or two

Names: TypeAlias = tuple[str, "int | str | None", "str | None", "tuple[str, ...] | None", "str | None", bytes]
"""Model, version, signature, outputs, device and form, as the client named them."""


class Call:
    """What the names came to.

    `home`: the slot to which its jobs are kept, as the model's variables are written there. `asked`: the device that
    its client named, where a home on it was chosen among several slots. `free`: it may run on any device. `hope`:
    whether some slot may run it.
    """

    __slots__ = ("asked", "epoch", "free", "home", "hope", "key", "line", "model", "model_epoch", "version")

    def __init__(
        self,
        epoch: int,
        model: Model,
        line: Line,
        key: Key,
        version: int | None,
        home: str | None,
        asked: str | None,
        free: bool,
        hope: bool,
    ) -> None:
        self.epoch, self.model_epoch = epoch, model.epoch
        self.model, self.line, self.key = model, line, key
        self.version, self.home, self.asked, self.free, self.hope = version, home, asked, free, hope


class Calls:
    """Those of late, bounded in number and in the bytes of their names."""

    def __init__(self) -> None:
        self.known: dict[Names, Call] = {}
        self._names_bytes = 0

    def put(self, names: Names, call: Call) -> None:
        self._names_bytes += call.key.names_bytes
        if len(self.known) >= MOST_CALLS or self._names_bytes > MOST_NAME_BYTES:
            self.known.clear()
            self._names_bytes = call.key.names_bytes
        self.known[names] = call
