"""Where the variables of a model are that its jobs write: in one slot, to which all jobs of the model go then.

A model whose signatures write keeps to a worker as soon as one has told so, any other from the first run of a session
that writes. It keeps it until the worker there is gone, and what was written goes with that:

    stateful    the next worker begins from the variables as they were loaded
    any other   keeps to none until a session writes again: all its workers are alike
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pool.core import actions as do
from pool.core.fleet import Slot, SlotState, WorkerState
from pool.core.orders import Orders
from pool.core.queue.line import Line
from pool.core.queue.models import Model
from pool.wire.session_runs import WRITING_RUN

__all__ = ["Affinity"]

WRITTEN = (
    "model {}: a session writes its variables in slot {} incarnation {}."
    " All jobs of the model run only there until that worker is replaced"
)
STATEFUL = "model {} writes state, so its jobs run only in slot {} incarnation {}"
ANEW = (
    "model {} writes state, which was lost with slot {} incarnation {}."
    " Its jobs now run in slot {} incarnation {}, with the variables as they were loaded"
)


class Affinity:
    def __init__(self, holders: Callable[[Line], Sequence[Slot]], orders: Orders) -> None:
        """`holders`: the slots that may run a line's jobs."""
        self._holders = holders
        self._orders = orders

    def device(self, model: Model, signature: str | None) -> str | None:
        """The name of the slot to which a job of the model has to go now; None if any will do."""
        if model.affinity is not None and not _stands(model):
            model.affinity = None
        if model.affinity is None and (model.stateful or signature == WRITING_RUN):
            self._choose(model)
        if model.affinity is None or len(self._holders(model.line(None))) < 2:
            return None
        return f"slot:{model.affinity[0].number}"

    def within(self, model: Model, device: str) -> str:
        """`device`, to which a caller pins a job; the slot that a stateful model keeps to, where that is one of its."""
        if not model.stateful:
            return device
        self.device(model, None)  # one is chosen, if there is none
        # Even where no other slot has the model: one may have had it, and jobs that came then wait in that line.
        affinity = model.affinity
        return f"slot:{affinity[0].number}" if affinity is not None and device in affinity[0].names else device

    def came(self, model: Model, slot: Slot) -> None:
        """A worker of the slot is READY and has told what the model is. It has no work yet."""
        if model.affinity is not None and model.affinity[1] is None and model.affinity[0].state is not SlotState.READY:
            # That worker is still on its way, so nothing is written there.
            model.affinity = None if model.stateful else (slot, slot.worker.incarnation)
        if model.stateful:
            self.device(model, None)

    def written(self, model: Model, slot: Slot) -> None:
        """A run of a session that writes is given to the slot's worker.

        Where that was pinned to another one, it writes what only jobs that are pinned there too see.
        """
        worker = slot, slot.worker.incarnation
        if model.written == worker or (
            model.affinity is not None and model.affinity == model.written and _stands(model)
        ):
            return
        model.affinity = model.written = worker
        model.epoch += 1
        if len(self._holders(model.line(None))) > 1:
            self._orders.append(do.Notice(WRITTEN.format(model.name, slot.number, slot.worker.incarnation)))

    def _choose(self, model: Model) -> None:
        """Among those that are READY the former one, or the first."""
        holders = self._holders(model.line(None))
        if len(holders) < (1 if model.stateful else 2):
            return
        former = None if model.written is None else model.written[0]
        able = [slot for slot in holders if slot.lasts] or list(holders)
        slot = min(able, key=lambda slot: (slot.state is not SlotState.READY, slot is not former, slot.number))
        model.affinity = slot, slot.worker.incarnation if slot.state is SlotState.READY else None
        if model.stateful and model.affinity[1] is not None:
            self._tell(model, (slot, slot.worker.incarnation))

    def _tell(self, model: Model, affinity: tuple[Slot, int]) -> None:
        former, model.written = model.written, affinity
        if former is None:
            text = STATEFUL.format(model.name, affinity[0].number, affinity[1])
        else:
            text = ANEW.format(model.name, former[0].number, former[1], affinity[0].number, affinity[1])
        self._orders.append(do.Notice(text))


def _stands(model: Model) -> bool:
    """Whether the worker is there that was, or is to be, written."""
    assert model.affinity is not None
    slot, incarnation = model.affinity
    if model.name not in slot.models:
        return False
    if incarnation is not None:
        return slot.worker.incarnation == incarnation and (
            slot.state is SlotState.READY or slot.worker.state is WorkerState.YIELDING
        )
    if slot.state is not SlotState.READY:
        return slot.lasts
    model.affinity = slot, slot.worker.incarnation
    return not model.stateful  # it is told where that is
