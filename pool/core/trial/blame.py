"""Whose fault a worker's death was, as far as it shows: the fault of what it ran, or of the slot.

A part that has died alone in two slots is guilty, and so is one that has died twice in a slot that works: one death
beside another's poison and one in a slot that breaks are none of its own. If all that died with a worker is well
elsewhere, the slot is guilty: a device that breaks must not quarantine everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool.core.fleet import Slot
    from pool.core.jobs import Part

__all__ = ["Loss", "acquit", "charge"]


@dataclass(slots=True, eq=False)
class Loss:
    """One worker's death, and how many of the parts that it ran have not shown yet what they are."""

    slot: Slot
    finished: int  # batches of the slot when it happened
    unclear: int = 0
    explained: bool = False  # one of the parts has died elsewhere too

    @classmethod
    def of(cls, slot: Slot) -> Loss:
        return cls(slot, slot.finished)


def charge(part: Part, loss: Loss, alone: bool) -> None:
    """The part was lost in this death; `alone`: the worker ran nothing but it, or its job."""
    if part.loss is not None and part.loss.slot is not loss.slot:
        part.loss.explained = True
    part.loss = loss
    part.died_in += (loss.slot.number,)
    if alone:
        part.died_alone_in += (loss.slot.number,)
    loss.unclear += 1


def acquit(part: Part) -> None:
    """The part has an answer, so it did not kill the worker that it was lost with."""
    loss = part.loss
    if loss is None:
        return
    part.loss = None
    loss.unclear -= 1
    if not loss.unclear and not loss.explained and loss.slot.finished == loss.finished:
        loss.slot.in_vain += 1
