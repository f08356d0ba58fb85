"""The answer to the question which models this pool has, and how much waits for each."""

import json
from dataclasses import astuple

from pool.core import Machine
from pool.core.fleet import SlotState
from pool.core.queue import Model
from pool.wire.entries import model_of
from pool.wire.offers import Offer
from pool.wire.signatures import Refused

__all__ = ["offers"]


def offers(machine: Machine, asked: str) -> dict[str, tuple[int, int, bool, float]]:
    """An `Offer` for each model that is served: of all, or of those that are `asked` for and are there.

    `asked`: a list of names in JSON, or nothing. Raises `Refused` for anything else.
    """
    wanted = _names(asked)
    found: dict[str, list[Model]] = {}
    for name, model in machine.backlog.models.items():
        if (wanted is None or model_of(name) in wanted) and not model.leaving:
            found.setdefault(model_of(name), []).append(model)  # its versions are models by themselves
    return {name: astuple(_offer(machine, versions)) for name, versions in found.items()}


def _offer(machine: Machine, versions: list[Model]) -> Offer:
    names = {model.name for model in versions}
    ready = [slot for slot in machine.fleet.slots if slot.state is SlotState.READY]
    done = sum(model.tally.answered()["done"] for model in versions)
    device_s = sum(model.tally.device_s for model in versions)
    return Offer(
        waiting=sum(model.jobs for model in versions),
        slots=sum(not names.isdisjoint(slot.models) for slot in ready),
        stateful=any(model.stateful for model in versions),
        job_s=max(0.0, device_s) / done if done else 0.0,
    )


def _names(asked: str) -> frozenset[str] | None:
    if not asked:
        return None
    try:
        names = json.loads(asked)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Refused(f"{asked!r:.40} is no list of models")
    return frozenset(names)
