"""The states of a model's versions as TensorFlow Serving prints them: a `GetModelStatusResponse`, as JSON."""

from collections.abc import Sequence
from typing import Any

from pool.gateway.catalogue import numbers
from pool.wire.records import Model, Slot

__all__ = ["states"]

_FAILED = ("FATAL", "BACKOFF")


def states(models: Sequence[Model], slots: Sequence[Slot], version: int | str | None) -> dict[str, Any]:
    """`models`: the versions of one that the client has asked for, by `version`.

    `slots`: of the pool; REQUIRED where one of them is served by none of them now.
    """
    found = [(number, *_state(model, slots)) for model in models for number in _numbers(model, version)]
    return {
        "model_version_status": [
            {
                "version": str(number),
                "state": state,
                "status": {"error_code": "UNKNOWN" if why else "OK", "error_message": why},
            }
            for number, state, why in sorted(found, reverse=True)
        ]
    }


def _numbers(model: Model, version: int | str | None) -> Sequence[int]:
    return (version,) if isinstance(version, int) else numbers(model)


def _state(model: Model, slots: Sequence[Slot]) -> tuple[str, str]:
    """And why it is not served, if something is wrong."""
    if model.ready_slots:
        return "AVAILABLE", ""
    if model.scheduling.leaving and model.slots:
        return "UNLOADING", ""
    holders = [slot for slot in slots if slot.slot in model.slots]
    failed = [f"slot {slot.slot} is {slot.state}: {slot.reason}" for slot in holders if slot.state in _FAILED]
    if holders and all(slot.state == "FATAL" for slot in holders):
        return "END", failed[0]
    return "LOADING" if holders else "START", failed[0] if failed else ""
