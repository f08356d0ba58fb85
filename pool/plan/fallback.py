"""A version that cannot be loaded when the pool starts makes way: for the others of its model, or for an older one.

What is wrong with it would otherwise keep its slot, and every model there, from ever serving.
"""

import re

from pool.core.actions import SlotChanged
from pool.core.slots import SlotState
from pool.wire.exits import Exit

__all__ = ["blamed", "unloadable"]

_SAID = re.compile(rf"{Exit.MODEL_CANNOT_LOAD.name}: model (\S+): ")
# Another version does not help against these, but it is known whose they are.
_NAMED = re.compile(
    rf"{Exit.MODEL_CANNOT_LOAD.name}: model ([^\s:,]+)[:,] "
    r"|was still (?:loading|warming up|importing the handler of) ([^\s:,]+) within "
)


def unloadable(change: SlotChanged) -> str | None:
    """The model for whose sake a slot was given up, as its worker said it; None where it was for something else."""
    said = _SAID.search(change.reason) if change.state is SlotState.FATAL else None
    return None if said is None else said[1]


def blamed(reason: str) -> str | None:
    """The model that a worker named as it failed, or did not come to an end with; None where it named none."""
    named = _NAMED.search(reason)
    return None if named is None else named[1] or named[2]
