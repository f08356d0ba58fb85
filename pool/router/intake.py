"""From a SUBMIT to the job that the core hears of."""

from collections.abc import Sequence

import zmq

from pool.core.events import JobArrived
from pool.router.layouts import Layouts, form_of
from pool.router.payload import held_bytes
from pool.router.rows import Inputs
from pool.wire.calls import TABLE_BYTES
from pool.wire.client_messages import Submit
from pool.wire.codec import BadFrame

__all__ = ["Intake"]


class Intake:
    def __init__(self) -> None:
        self._layouts = Layouts()

    def job(self, client: bytes, submit: Submit, payload: Sequence[zmq.Frame]) -> JobArrived:
        """Raises `BadFrame` for a job whose rows are not what it says: cut by them, it would spoil its batch.

        Of a job without rows nothing is read here.
        """
        if not payload:
            raise BadFrame("it has no table")
        # Before a copy of it is made, which is as large as its client likes.
        if len(payload[0]) > TABLE_BYTES:
            raise BadFrame(f"a table of {len(payload[0])} bytes, at most {TABLE_BYTES} are read")
        table, buffers = payload[0].bytes, payload[1:]
        if submit.attempts < 0:
            raise BadFrame(f"{submit.attempts} attempts")
        asked = (submit.model, submit.signature, submit.outputs)
        if submit.rows is None:
            inputs, form = Inputs(table, buffers, None, None, asked), form_of(table)
        else:
            layout = self._layouts.find(table)
            layout.check(submit.rows, buffers)
            inputs, form = Inputs(layout.table, buffers, layout, submit.rows, asked), layout.form
        return JobArrived(
            client,
            submit.job,
            submit.model,
            submit.signature,
            submit.outputs,
            submit.rows,
            submit.timeout_s,
            submit.priority,
            submit.device,
            held_bytes(payload),
            form,
            inputs,
            submit.attempts,
            submit.in_doubt,
        )
