"""Whether a pool can serve, and what is waited for until it can, in the words of `pool health`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool.wire.records import Slot, Status

from pool.wire.entries import model_of
from pool.wire.sizes import span

__all__ = ["doing", "has_model", "slots_left", "slots_of", "why_not_ready"]


def has_model(found: Status, model: str) -> bool:
    return any(model in (each.name, each.model) for each in found.models)


def why_not_ready(found: Status, model: str | None) -> str:
    """Why the pool, or this model of it, cannot serve; "" if it can."""
    if model is not None and not has_model(found, model):
        return f"this pool has no model {model!r:.80}"
    slots = slots_of(found, model)
    if found.state == "STOPPING":
        return "the pool is stopping"
    if any(slot.state == "READY" for slot in slots):
        return ""
    what = "the pool does not serve" if model is None else f"{model} is not served"
    return f"{what}: {'; '.join(map(_state, slots)) or 'no slot has a model'}"


def slots_of(found: Status, model: str | None) -> list[Slot]:
    """Those that have it, or any model."""
    return [
        slot
        for slot in found.slots
        if slot.models and (model is None or any(model in (name, model_of(name)) for name in slot.models))
    ]


def slots_left(found: Status, left: Sequence[int]) -> str:
    """Of slots that get new workers in turn: those that have one on the way, or else the first."""
    slots = [found.slots[number] for number in left]
    busy = [slot for slot in slots if slot.replacement is not None or slot.state != "READY"] or slots[:1]
    return f"{len(left)} left · {'; '.join(map(doing, busy))}"


def doing(slot: Slot) -> str:
    """What the slot's worker does, or the one that is to follow."""
    beside = slot.replacement
    state = slot.state if beside is None else beside.state
    what = (slot.doing if beside is None else beside.doing) or f"for {span(slot.state_s)}"
    return f"slot {slot.slot} {slot.device}: {state}, {what}"


def _state(slot: Slot) -> str:
    return f"slot {slot.slot} is {slot.state}: {slot.reason}" if slot.reason else doing(slot)
