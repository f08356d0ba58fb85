"""Whether a pool can serve, and what is waited for until it can, in the words of `pool health`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool.wire.records import Slot, Status, Unloadable

from pool.wire.entries import model_of
from pool.wire.sizes import span

__all__ = ["doing", "has_model", "is_left_out", "left_out", "slots_left", "slots_of", "why_not_ready"]


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
    whys = [*map(_state, slots), *left_out([each for each in found.unloadable if _is(model, each.model)])]
    return f"{what}: {'; '.join(whys) or 'no slot has a model'}"


def left_out(unloadable: Sequence[Unloadable]) -> list[str]:
    """Which slots are without which model, why, and what helps. Slots with the same reason have one line."""
    slots: dict[tuple[str, str], list[str]] = {}
    for each in unloadable:
        slots.setdefault((each.model, each.why), []).append(str(each.slot))
    return [
        f"model {model} could not be loaded in slot{'s' * (len(numbers) > 1)} {', '.join(numbers)}: {why};"
        " mend it, then run `pool reload`"
        for (model, why), numbers in slots.items()
    ]


def is_left_out(found: Status, model: str) -> bool:
    """Whether no slot is to have it, as those that were could not load it. It comes when somebody has mended it."""
    return not slots_of(found, model) and any(_is(model, each.model) for each in found.unloadable)


def slots_of(found: Status, model: str | None) -> list[Slot]:
    """Those that have it, or any model."""
    return [slot for slot in found.slots if slot.models and any(_is(model, name) for name in slot.models)]


def _is(model: str | None, name: str) -> bool:
    """Whether what has this name is the model, or a version of it; None is every model."""
    return model is None or model in (name, model_of(name))


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
