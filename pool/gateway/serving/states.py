"""The states of a model's versions as TensorFlow Serving prints them: a `GetModelStatusResponse`, as JSON."""

from collections.abc import Sequence
from typing import Any

from pool.gateway.serving.metadata import numbers_of
from pool.wire.records import Model, Slot, Status

__all__ = ["states"]

_FAILED = ("FATAL", "BACKOFF")


def states(models: Sequence[Model], status: Status | None, version: int | str | None) -> dict[str, Any]:
    """`models`: the versions of one that the client has asked for, by `version`.

    `status`: of the pool; REQUIRED where one of them serves in no slot now.
    """
    found = [(number, *_state(model, status)) for model in models for number in _numbers(model, version)]
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
    return (version,) if isinstance(version, int) else numbers_of(model)


def _state(model: Model, status: Status | None) -> tuple[str, str]:
    """And why it is not served, if something is wrong."""
    if model.ready_slots:
        return "AVAILABLE", ""
    slots = [slot for slot in status.slots if slot.slot in model.slots] if status is not None else []
    failed = [slot for slot in slots if slot.state in _FAILED]
    if failed:
        return ("END" if all(slot.state == "FATAL" for slot in slots) else "LOADING"), _why(failed[0])
    return "LOADING" if slots else "START", ""


def _why(slot: Slot) -> str:
    return f"slot {slot.slot} is {slot.state}: {slot.reason}"
