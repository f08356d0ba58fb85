"""Where the variables of a model are that a session has written: in one slot, to which all jobs of the model go then.

A model has a home from the first run that writes, which is a session's, until the worker there is gone: what was
written goes with it, and all workers of the model are alike again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pool.core import actions as do
from pool.core.line import Line
from pool.core.models import Model
from pool.core.slots import Slot, SlotState
from pool.wire.session_runs import WRITING_RUN

__all__ = ["Homes"]

WRITTEN = (
    "model {}: a session writes its variables, in slot {} incarnation {}:"
    " all jobs of the model run there alone until that worker is replaced"
)


class Homes:
    def __init__(self, holders: Callable[[Line], Sequence[Slot]], actions: list[do.Action]) -> None:
        """`holders`: the slots that may run a line's jobs."""
        self._holders = holders
        self._actions = actions

    def device(self, model: Model, signature: str | None) -> str | None:
        """The name of the slot to which a job of the model has to go now; None if any will do."""
        if model.home is None and signature != WRITING_RUN:
            return None
        if model.home is not None and not _stands(model):
            model.home = None
            return self.device(model, signature)
        if model.home is None:
            holders = self._holders(model.line(None))
            if len(holders) < 2:
                return None
            able = [slot for slot in holders if slot.lasts] or list(holders)
            slot = min(able, key=lambda slot: (slot.state is not SlotState.READY, slot.number))
            model.home = slot, slot.incarnation if slot.state is SlotState.READY else None
        return f"slot:{model.home[0].number}"

    def written(self, model: Model, slot: Slot) -> None:
        """A run that writes is given to the slot's worker."""
        seat = slot, slot.incarnation
        if model.written == seat or len(self._holders(model.line(None))) < 2:
            return
        model.home = model.written = seat
        self._actions.append(do.Notice(WRITTEN.format(model.name, slot.number, slot.incarnation)))


def _stands(model: Model) -> bool:
    """Whether the worker is there that was, or is to be, written."""
    assert model.home is not None
    slot, incarnation = model.home
    if incarnation is None and slot.state is SlotState.READY:
        model.home = slot, slot.incarnation
        return True
    return slot.lasts if incarnation is None else (slot.state, slot.incarnation) == (SlotState.READY, incarnation)
