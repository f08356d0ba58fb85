"""A version that cannot be loaded when the pool starts makes way: for the others of its model, or for an older one.

What is wrong with it would otherwise keep its slot, and every model there, from ever serving.
"""

import re

from pool.core.actions import SlotChanged
from pool.core.slots import SlotState
from pool.wire.exits import Exit

__all__ = ["blamed", "unloadable"]

_SAID = re.compile(rf"{Exit.MODEL_CANNOT_LOAD.name}: model (\S+): ")


def unloadable(change: SlotChanged) -> str | None:
    """The model for whose sake a slot was given up, as its worker said it; None where it was for something else."""
    return blamed(change.reason) if change.state is SlotState.FATAL else None


def blamed(reason: str) -> str | None:
    """The model that a worker says it cannot load; None where it has said nothing of the kind."""
    said = _SAID.search(reason)
    return None if said is None else said[1]
