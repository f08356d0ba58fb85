"""A SUBMIT as a client made by hand writes it: what is asked, with its names, in one object."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pool.serve.standing import Standing
from pool.wire.calls import Names
from pool.wire.client_messages import Submit
from pool.wire.codec import pack
from pool.wire.frames import encode
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.message import Message
from pool.wire.rights import RIGHTS

__all__ = ["OWNER", "Asked", "Numbers", "framed", "said", "told"]

USUAL_TIMEOUT_S = 60.0
OWNER = Standing("uid:0", may=RIGHTS)
"""Of the pool's own user."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Asked:
    """The fields of a SUBMIT, and of its `Names`. Its payload is a packed `Table` and a buffer a tensor.

    `timeout_s` None: the usual one of a client.
    """

    job: int
    model: str
    signature: str | None = None
    outputs: tuple[str, ...] | None = None
    rows: int | None = None
    timeout_s: float | None = None
    priority: int = 0
    device: str | None = None
    attempts: int = 0
    in_doubt: bool = False
    lent: tuple[Lent, ...] = ()
    space: AnswerSpace | None = None
    weight: int = 1
    origin: int = 0
    version: int | str | None = None

    @property
    def names(self) -> Names:
        return Names(self.model, self.signature, self.outputs, self.device, self.version, self.rows is not None)

    def submit(self, table: bytes, call: int | None = None, registers: bool = True) -> Submit:
        """`call`: its number; otherwise it has one that is higher than all before it."""
        return Submit(
            self.job,
            next(_numbers) if call is None else call,
            self.rows,
            USUAL_TIMEOUT_S if self.timeout_s is None else self.timeout_s,
            self.priority,
            self.attempts,
            self.in_doubt,
            pack(self.names) if registers else None,
            table if registers else b"",
            self.lent,
            self.space,
            self.weight,
            self.origin,
        )


def said(asked: Asked, payload: Sequence[Any], instance: bytes) -> list[bytes]:
    """Its frames, with a call of its own. `payload`: the table and the buffers; without any, there is no table."""
    table, *buffers = payload or [b""]
    return encode(asked.submit(table), instance, buffers)


def framed(message: Asked | Message, instance: bytes, payload: Sequence[Any] = ()) -> list[bytes]:
    """The frames of anything that a client says."""
    return said(message, payload, instance) if isinstance(message, Asked) else encode(message, instance, payload)


class Numbers:
    """The calls that one client made by hand has registered, for one that sends many jobs of each."""

    def __init__(self) -> None:
        self._known: dict[tuple[Names, bytes], int] = {}

    def said(self, asked: Asked, payload: Sequence[Any], instance: bytes) -> list[bytes]:
        """Its frames; names only of a new call."""
        table, *buffers = payload or [b""]
        key = asked.names, table
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = next(_numbers)
            return encode(asked.submit(table, known), instance, buffers)
        return encode(asked.submit(table, known, registers=False), instance, buffers)


def told(submit: Submit, names: Names) -> Asked:
    """What a job of a call asks for."""
    return Asked(
        *(submit.job, names.model, names.signature, names.outputs, submit.rows, submit.timeout_s, submit.priority),
        *(names.device, submit.attempts, submit.in_doubt, submit.lent, submit.space, submit.weight),
        *(submit.origin, names.version),
    )
