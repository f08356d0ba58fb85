"""The answer to the question which models this pool has, and how much waits for them."""

import json
from collections import Counter
from dataclasses import astuple
from typing import Any

from pool.core import Machine
from pool.core.fleet import SlotState
from pool.serve.sight import sees
from pool.serve.standing import Standing
from pool.wire.entries import model_of
from pool.wire.offers import Offer, Offers
from pool.wire.signatures import Refused

__all__ = ["offers"]


def offers(machine: Machine, asked: str, standing: Standing) -> Any:
    """`Offers`, as msgpack has them. `asked`: the models to name, as a list in JSON; nothing: all that it may use.

    Raises `Refused` for anything else.
    """
    wanted = _names(asked)
    backlog, ready = machine.backlog, [slot for slot in machine.fleet.slots if slot.state is SlotState.READY]
    slots = Counter(name for slot in ready for name in {model_of(each) for each in slot.models})
    stateful: dict[str, bool] = {}  # the versions of a model are models by themselves
    for model in backlog.models.values():
        name = model_of(model.name)
        if (wanted is None or name in wanted) and sees(standing, name) and not model.leaving:
            stateful[name] = stateful.get(name, False) or model.stateful
    done = machine.answered["done"]
    device_s = sum(model.tally.device_s for model in backlog.models.values())
    return astuple(
        Offers(
            waiting=backlog.held,
            slots=len(ready),
            job_s=max(0.0, device_s) / done if done else 0.0,
            models={name: Offer(slots[name], keeps) for name, keeps in stateful.items()},
        )
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
