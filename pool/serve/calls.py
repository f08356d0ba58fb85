"""The calls of each client: what it has said once, so that each of its jobs says a number in the place of names.

What is kept here is on its client's account, and bounded. Each job counts what its call takes once more: one that its
client forgets lives on in its jobs, until the last of them has ended. What is refused here never comes to the core, so
no number that it makes of these can be one that cannot travel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import zmq

from pool.serve.layouts import Layout, form_of, read
from pool.serve.payload import FRAME_BYTES, VIEW_BYTES
from pool.serve.rows import Inputs, Whole
from pool.serve.shared_memory import SharedMemory
from pool.serve.standing import Standing, other_models
from pool.wire.calls import CALLS_BYTES, MOST_CALLS, NAMES_BYTES, TABLE_BYTES, Names, call_bytes
from pool.wire.codec import BadFrame, unpack
from pool.wire.faults import Fault
from pool.wire.jobs import Submit
from pool.wire.rights import needed
from pool.wire.session_runs import REMOTE_RUN, RUN, SESSION_WRITES, WRITING

__all__ = ["MOST_NUMBER", "MOST_OUTPUTS", "Call", "Calls", "inputs_of"]

MOST_NUMBER = (1 << 63) - 1  # of a job: what msgpack, JSON's readers and every other language can hold
MOST_OUTPUTS = 2048  # the client's own bound, 32 KiB of names, is met first by names of the usual length
NAME_CHARS = 1000  # as the client has it
LENT_BYTES = 240  # that Python takes for the place of one lent buffer: many times the bytes that came

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
    refusal: tuple[Fault, str] | None
    asked: Asked
    size_bytes: int


class Calls:
    """Of one client. `size_bytes`: of all that it has said of them."""

    def __init__(self) -> None:
        self._known: dict[int, Call] = {}
        self._last = 0  # the highest number that was registered
        self.size_bytes = 0

    def of(self, submit: Submit, standing: Standing) -> Call | None:
        """That of a job; None for a number that is not known. What is registered is kept. `standing`: its client's.

        Raises `BadFrame` for what no client of this release registers; then nothing has changed.
        """
        known = self._known
        if submit.names is None:
            return known.get(submit.call)
        if not self._last < submit.call:
            raise BadFrame(f"call {submit.call} after call {self._last}: no number is used again")
        if len(known) >= MOST_CALLS:
            raise BadFrame(f"{len(known) + 1} calls; the pool keeps at most {MOST_CALLS} of one client")
        if len(submit.table) > TABLE_BYTES:
            raise BadFrame(f"a table of {len(submit.table)} bytes; at most {TABLE_BYTES} are allowed")
        call = _call(unpack(Names, submit.names, NAMES_BYTES), bytes(submit.table), standing)
        if self.size_bytes + call.size_bytes > CALLS_BYTES:
            held = f"its calls take {self.size_bytes} bytes and this one {call.size_bytes}"
            raise BadFrame(f"{held}; the pool keeps at most {CALLS_BYTES} of one client")
        known[submit.call] = call
        self._last = submit.call
        self.size_bytes += call.size_bytes
        return call

    def forget(self, number: int) -> None:
        """Does nothing about one that is not known."""
        call = self._known.pop(number, None)
        if call is not None:
            self.size_bytes -= call.size_bytes


def _call(names: Names, table: bytes, standing: Standing) -> Call:
    _check_names(names)
    if not table:
        raise BadFrame("it has no table")
    layout = read(table) if names.counted else None
    return Call(
        names,
        table,
        layout,
        form_of(table) if layout is None else layout.form,
        REMOTE_RUN if names.signature == RUN and "sessions" not in standing.may else names.signature,
        _refusal(names, standing),
        (names.model, names.version, names.signature, names.outputs),
        call_bytes(names, len(table), 0 if layout is None else len(layout.columns)),
    )


def _refusal(names: Names, standing: Standing) -> tuple[Fault, str] | None:
    """Why its client may not make such calls."""
    if standing.models is not None and names.model not in standing.models:
        return Fault.NOT_ALLOWED, other_models(standing, "use", names.model)
    if names.signature in WRITING and "sessions" not in standing.may:
        return Fault.NOT_ALLOWED, needed(SESSION_WRITES, "sessions")
    return None


def inputs_of(
    client: bytes,
    submit: Submit,
    call: Call,
    buffers: Sequence[Whole],
    frames: Sequence[zmq.Frame],
    shared_memory: SharedMemory,
    released: Callable[[bytes, int], None],
) -> Inputs:
    """What the core is handed with a job. `frames`: of the message, which hold the `buffers`.

    `released` is told when nobody uses any more what of it is lent. Of a job without rows nothing is read here.
    Raises `BadFrame` for a job whose rows are not what it says: cut by them, it would spoil its batch.
    """
    if submit.weight > 1 or submit.job > MOST_NUMBER or submit.origin:
        _check_numbers(submit)
    if (submit.rows is not None) is not call.names.counted:
        counts = "them" if call.names.counted else "none"
        raise BadFrame(f"{submit.rows or 'no'} rows in a call that counts {counts}")
    size_bytes = sum(map(len, frames)) + FRAME_BYTES * len(frames) + VIEW_BYTES * len(buffers) + call.size_bytes
    is_lent, regions = submit.lent or submit.space is not None, None
    if is_lent:
        buffers, lent_in, space = shared_memory.buffers(client, submit.lent, submit.space, buffers)
        size_bytes += sum([LENT_BYTES + each.size_bytes for each in submit.lent])
    if call.layout is not None:
        call.layout.check(submit.rows or 0, buffers)
    if is_lent:
        regions = shared_memory.regions(lent_in, space, lambda: released(client, submit.job))
    return Inputs(call.table, buffers, call.layout, submit.rows, call.asked, regions, size_bytes, call.form)


def _check_numbers(submit: Submit) -> None:
    """Raises `BadFrame` for what no client of this release says. The core checks timeout and priority."""
    if submit.job > MOST_NUMBER or submit.origin > MOST_NUMBER:
        raise BadFrame(f"job {submit.job}, origin {submit.origin}: numbers are from 0 to {MOST_NUMBER}")
    if submit.weight > 1 and (submit.rows is None or submit.rows < submit.weight):
        raise BadFrame(f"{submit.weight} jobs in one message with {submit.rows or 'no'} rows: each has one at least")


def _check_names(names: Names) -> None:
    """Raises `BadFrame` for what no client of this release says. The core looks the names up."""
    outputs = names.outputs
    for name in (names.model, names.signature, names.device, names.version):
        if isinstance(name, str) and len(name) > NAME_CHARS:
            raise BadFrame(f"a name of {len(name)} characters; at most {NAME_CHARS} are allowed")
    if outputs:
        if len(outputs) > MOST_OUTPUTS:
            raise BadFrame(f"{len(outputs)} outputs; at most {MOST_OUTPUTS} are allowed")
        if len(set(outputs)) < len(outputs):
            raise BadFrame(f"{len(outputs) - len(set(outputs))} of its outputs are named twice")
        if max(map(len, outputs)) > NAME_CHARS:
            raise BadFrame(f"an output's name of {max(map(len, outputs))} characters; at most {NAME_CHARS} are allowed")
