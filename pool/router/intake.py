"""From a SUBMIT to the inputs that the core is handed with the job."""

from collections.abc import Callable, Sequence

import zmq

from pool.router.arenas import Arenas, LentBuffer
from pool.router.headers import check_header, header_bytes
from pool.router.layouts import Layouts, form_of
from pool.router.payload import held_bytes
from pool.router.rows import Inputs
from pool.wire.calls import TABLE_BYTES
from pool.wire.client_messages import Submit
from pool.wire.codec import BadFrame

__all__ = ["Intake"]


class Intake:
    def __init__(self, arenas: Arenas) -> None:
        self._layouts = Layouts()
        self._arenas = arenas

    def job(
        self, client: bytes, submit: Submit, payload: Sequence[zmq.Frame], released: Callable[[bytes, int], None]
    ) -> Inputs:
        """Raises `BadFrame` for a job whose rows are not what it says: cut by them, it would spoil its batch.

        Of a job without rows nothing is read here. `released` is told when nobody uses any more what of it is lent.
        """
        check_header(submit)
        if not payload:
            raise BadFrame("it has no table")
        # Before a copy of it is made, which is as large as its client likes.
        if len(payload[0]) > TABLE_BYTES:
            raise BadFrame(f"a table of {len(payload[0])} bytes, at most {TABLE_BYTES} are read")
        table = payload[0].bytes
        buffers: Sequence[zmq.Frame | LentBuffer] = payload[1:]
        room = None
        if submit.lent:
            buffers = self._with_lent(client, submit, payload[1:])
        if submit.room is not None:
            room = self._arenas.buffer(client, submit.room.arena, submit.room.offset, submit.room.size_bytes)
        asked = (submit.model, submit.version, submit.signature, submit.outputs)
        if submit.rows is None:
            layout, form = None, form_of(table)
        else:
            layout = self._layouts.find(table)
            layout.check(submit.rows, buffers)
            table, form = layout.table, layout.form
        size_bytes = held_bytes((payload[0], *buffers)) + header_bytes(submit)
        tenancy = None
        arenas = {buffer.arena for buffer in (*buffers, room) if isinstance(buffer, LentBuffer)}
        if arenas:
            tenancy = self._arenas.tenancy(list(arenas), room, lambda: released(client, submit.job))
        return Inputs(table, buffers, layout, submit.rows, asked, tenancy, size_bytes, form)

    def _with_lent(
        self, client: bytes, submit: Submit, frames: Sequence[zmq.Frame]
    ) -> "Sequence[zmq.Frame | LentBuffer]":
        buffers: list[zmq.Frame | LentBuffer] = list(frames)
        for lent in submit.lent:
            if not 0 <= lent.index < len(frames) or len(buffers[lent.index]):
                raise BadFrame(f"no buffer {lent.index} of {len(frames)} is to be lent")
            buffers[lent.index] = self._arenas.buffer(client, lent.arena, lent.offset, lent.size_bytes)
        return buffers
