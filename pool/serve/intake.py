"""From a SUBMIT to the inputs that the core is handed with the job."""

from collections.abc import Callable, Sequence

import zmq

from pool.serve.arenas import Arenas, LentBuffer
from pool.serve.calls import Call
from pool.serve.headers import MOST_NUMBER, check_numbers, header_bytes
from pool.serve.payload import FRAME_BYTES, VIEW_BYTES
from pool.serve.rows import Inputs, Whole
from pool.wire.codec import BadFrame
from pool.wire.jobs import Submit

__all__ = ["Intake"]


class Intake:
    def __init__(self, arenas: Arenas) -> None:
        self._arenas = arenas

    def job(
        self,
        client: bytes,
        submit: Submit,
        call: Call,
        buffers: "Sequence[Whole]",
        frames: Sequence[zmq.Frame],
        released: Callable[[bytes, int], None],
    ) -> Inputs:
        """Raises `BadFrame` for a job whose rows are not what it says: cut by them, it would spoil its batch.

        Of a job without rows nothing is read here. `frames`: of the message, which hold the `buffers`. `released` is
        told when nobody uses any more what of it is lent.
        """
        if submit.weight > 1 or submit.job > MOST_NUMBER or submit.origin:
            check_numbers(submit)
        if (submit.rows is not None) is not call.names.counted:
            counts = "them" if call.names.counted else "none"
            raise BadFrame(f"{submit.rows or 'no'} rows in a call that counts {counts}")
        size_bytes = sum(map(len, frames)) + FRAME_BYTES * len(frames) + VIEW_BYTES * len(buffers) + call.size_bytes
        room = tenancy = None
        if submit.lent or submit.room is not None:
            if submit.lent:
                buffers = self._with_lent(client, submit, buffers)
            if submit.room is not None:
                room = self._arenas.buffer(client, submit.room.arena, submit.room.offset, submit.room.size_bytes)
            lent = [buffer for buffer in (*buffers, room) if isinstance(buffer, LentBuffer)]
            size_bytes += sum([each.size_bytes for each in submit.lent])
        if submit.lent:
            size_bytes += header_bytes(submit)
        if call.layout is not None:
            call.layout.check(submit.rows or 0, buffers)
        if submit.lent or submit.room is not None:
            arenas = list({buffer.arena for buffer in lent})
            tenancy = self._arenas.tenancy(arenas, room, lambda: released(client, submit.job))
        rows, asked = submit.rows, call.asked
        return Inputs(call.table, buffers, call.layout, rows, asked, tenancy, size_bytes, call.form)

    def _with_lent(self, client: bytes, submit: Submit, buffers: "Sequence[Whole]") -> "Sequence[Whole]":
        found = list(buffers)
        for lent in submit.lent:
            found[lent.index] = self._arenas.buffer(client, lent.arena, lent.offset, lent.size_bytes)
        return found
