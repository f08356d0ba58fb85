"""The calls of each client: what it has said once, so that each of its jobs says a number in the place of names.

What is kept here is on its client's account, and bounded. Each job counts what its call takes once more: one that its
client forgets lives on in its jobs, until the last of them has ended.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from pool.serve.headers import check_names
from pool.serve.layouts import Layout, form_of, read
from pool.wire.calls import CALLS_BYTES, MOST_CALLS, NAMES_BYTES, TABLE_BYTES, Names, call_bytes
from pool.wire.codec import BadFrame, unpack
from pool.wire.jobs import Submit
from pool.wire.session_runs import LOCAL_ONLY, OVER_TCP, REMOTE_RUN, RUN

__all__ = ["Call", "Calls"]

Asked: TypeAlias = tuple[str, int | str | None, str | None, tuple[str, ...] | None]


@dataclass(slots=True, eq=False)
class Call:
    """What the jobs of a call have in common. `layout` is None of one whose jobs have no rows.

    `asked`: model, version, signature and outputs as the client named them; `signature` is what is run. `refusal`: why
    no job of it is taken from this client, if none is.
    """

    names: Names
    table: bytes
    layout: Layout | None
    form: bytes
    signature: str | None
    refusal: str | None
    asked: Asked
    size_bytes: int


@dataclass(slots=True, eq=False)
class _Client:
    """`last`: the highest number that was registered."""

    calls: dict[int, Call] = field(default_factory=dict)
    last: int = 0
    size_bytes: int = 0


class Calls:
    def __init__(self) -> None:
        self._clients: dict[bytes, _Client] = {}

    def of(self, client: bytes, submit: Submit, local: bool) -> Call | None:
        """That of a job; None for a number that is not known. What is registered is kept.

        Raises `BadFrame` for what no client of this release registers; then nothing has changed.
        """
        known = self._clients.get(client)
        if submit.names is None:
            return None if known is None else known.calls.get(submit.call)
        if known is None:
            known = _Client()
        if not known.last < submit.call:
            raise BadFrame(f"call {submit.call} after call {known.last}: no number is used again")
        if len(known.calls) >= MOST_CALLS:
            raise BadFrame(f"{len(known.calls) + 1} calls, at most {MOST_CALLS} are kept of one client")
        if len(submit.table) > TABLE_BYTES:
            raise BadFrame(f"a table of {len(submit.table)} bytes, at most {TABLE_BYTES} are read")
        call = _call(unpack(Names, submit.names, NAMES_BYTES), bytes(submit.table), local)
        if known.size_bytes + call.size_bytes > CALLS_BYTES:
            held = f"its calls take {known.size_bytes} bytes and this one {call.size_bytes}"
            raise BadFrame(f"{held}, at most {CALLS_BYTES} are kept of one client")
        known.calls[submit.call] = call
        known.last = submit.call
        known.size_bytes += call.size_bytes
        self._clients[client] = known
        return call

    def forget(self, client: bytes, number: int) -> None:
        """Does nothing about one that is not known."""
        known = self._clients.get(client)
        call = None if known is None else known.calls.pop(number, None)
        if known is not None and call is not None:
            known.size_bytes -= call.size_bytes

    @property
    def size_bytes(self) -> int:
        """Of all clients."""
        return sum([known.size_bytes for known in self._clients.values()])

    def gone(self, client: bytes) -> None:
        self._clients.pop(client, None)


def _call(names: Names, table: bytes, local: bool) -> Call:
    check_names(names)
    if not table:
        raise BadFrame("it has no table")
    layout = read(table) if names.counted else None
    refusal = OVER_TCP if names.signature in LOCAL_ONLY and not local else None
    return Call(
        names,
        table,
        layout,
        form_of(table) if layout is None else layout.form,
        REMOTE_RUN if names.signature == RUN and not local else names.signature,
        refusal,
        (names.model, names.version, names.signature, names.outputs),
        call_bytes(names, len(table), 0 if layout is None else len(layout.columns)),
    )
