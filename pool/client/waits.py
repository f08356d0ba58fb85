"""What a client waits for that its pool does: asked again and again, each time with a word on why it goes on."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from pool.errors import DeadlineExceeded, ModelNotFound, PoolError, PoolUnreachable, WorkerLost
from pool.wire.readiness import has_model, is_left_out, slots_left, why_not_ready

if TYPE_CHECKING:
    from pool.wire.records import Status

__all__ = ["ANSWERS_S", "LOOK_S", "none_ready", "not_ready", "until_one_is_ready", "until_ready", "until_updated"]

LOOK_S = 0.1
ANSWERS_S = 5.0  # for those of several pools
LEAST_S = 1.0  # for an answer: a pool that is there gives it, and says more than that time is over

Ask = Callable[[float], "Status"]
"""Which waits so many seconds for its answer."""

Told: TypeAlias = "Mapping[str, Status | PoolError]"
"""What each of several pools has told, by what it is called."""


def not_ready(found: "Status", model: str | None) -> str:
    """Why the pool cannot serve, or "". Raises `ModelNotFound` for a model that it does not have."""
    why = why_not_ready(found, model)
    if model is not None and not has_model(found, model):
        raise ModelNotFound(why)
    return why


def until_ready(ask: Ask, is_gone: Callable[[], bool], model: str | None, timeout_s: float) -> Iterator[str]:
    """As `Client.wait_ready` says. `is_gone`: whether a pool that does not answer will never be there."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found = ask(max(LEAST_S, deadline - time.monotonic()))
            why = not_ready(found, model)
            if model is not None and why and is_left_out(found, model):
                raise ModelNotFound(why)
        except PoolUnreachable as error:
            if is_gone():
                raise
            why = str(error)
        if not why:
            return
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(f"after {timeout_s:g} s: {why}")
        yield why


def none_ready(found: Told, pools: int, model: str | None) -> str:
    """As `not_ready`, of so many pools: "" if one of them can serve."""
    told = {pool: each for pool, each in found.items() if not isinstance(each, PoolError)}
    if any(not why_not_ready(each, model) for each in told.values()):
        return ""
    if model is not None and 0 < len(told) == pools and not any(has_model(each, model) for each in told.values()):
        raise ModelNotFound(f"no model {model!r:.100} in the {pools} pools of this client")
    whys = (f"{pool}: {why_not_ready(told[pool], model)}" if pool in told else f"{found[pool]}" for pool in found)
    return "; ".join(whys) or "there is no pool"


def until_one_is_ready(
    ask: Callable[[float], Told], pools: Callable[[], int], model: str | None, timeout_s: float
) -> Iterator[str]:
    """As `until_ready`, of several pools: of one that is away nobody knows what it can load.

    `pools`: how many there are now. `ask` waits so many seconds for their answers.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = ask(min(ANSWERS_S, max(LEAST_S, deadline - time.monotonic())))
        if not (why := none_ready(found, pools(), model)):
            return
        if _none_will_have(found, pools(), model):
            raise ModelNotFound(why)
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(f"after {timeout_s:g} s: {why}")
        yield why


def _none_will_have(found: Told, pools: int, model: str | None) -> bool:
    told = [each for each in found.values() if not isinstance(each, PoolError)]
    if model is None or not 0 < len(told) == pools:
        return False
    return all(is_left_out(each, model) or not has_model(each, model) for each in told)


def until_updated(ask: Ask, timeout_s: float) -> Iterator[str]:
    """As `Client.wait_updated` says."""
    deadline = time.monotonic() + timeout_s
    while (update := (found := ask(max(LEAST_S, deadline - time.monotonic()))).rolling_update).left:
        if time.monotonic() >= deadline:
            left = ", ".join(map(str, update.left))
            late = f"slots {left} still have the former settings after {timeout_s:g} s"
            raise DeadlineExceeded(f"{late}; the reload continues in the background")
        yield slots_left(found, update.left)
    if update.failure:
        raise WorkerLost(update.failure)
    if broken := found.versions.broken:
        raise WorkerLost(f"did not start, so another version is served on: {', '.join(broken)}")
