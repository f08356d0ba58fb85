"""The states of a model's versions as TensorFlow Serving prints them: a `GetModelStatusResponse`, as JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from pool.errors import PoolError
from pool.gateway.catalogue import numbers
from pool.wire.records import Model, Slot

__all__ = ["states"]

_FAILED = ("FATAL", "BACKOFF")
_BEST = ("AVAILABLE", "LOADING", "UNLOADING", "START", "END")


def states(
    pools: Mapping[str, Sequence[Model]],
    slots: Mapping[str, Sequence[Slot] | PoolError],
    version: int | str | None,
) -> dict[str, Any]:
    """`pools`: by each, the versions of a model that the client has asked for, by `version`. The best of them counts.

    `slots`: of the pools; REQUIRED where one of the versions is served by none of them now.
    """
    found: dict[int, tuple[str, str]] = {}
    for pool, models in pools.items():
        for model in models:
            for number in _numbers(model, version):
                state = _state(model, slots.get(pool, ()))
                found[number] = min(found.get(number, state), state, key=lambda each: _BEST.index(each[0]))
    return {
        "model_version_status": [
            {
                "version": str(number),
                "state": state,
                "status": {"error_code": "UNKNOWN" if why else "OK", "error_message": why},
            }
            for number, (state, why) in sorted(found.items(), reverse=True)
        ]
    }


def _numbers(model: Model, version: int | str | None) -> Sequence[int]:
    return (version,) if isinstance(version, int) else numbers(model)


def _state(model: Model, slots: Sequence[Slot] | PoolError) -> tuple[str, str]:
    """And why it is not served, if something is wrong."""
    if model.ready_slots:
        return "AVAILABLE", ""
    if isinstance(slots, PoolError):
        return "START", str(slots)
    if model.scheduling.leaving and model.slots:
        return "UNLOADING", ""
    holders = [slot for slot in slots if slot.slot in model.slots]
    failed = [f"slot {slot.slot} is {slot.state}: {slot.reason}" for slot in holders if slot.state in _FAILED]
    if holders and all(slot.state == "FATAL" for slot in holders):
        return "END", failed[0]
    return "LOADING" if holders else "START", failed[0] if failed else ""
