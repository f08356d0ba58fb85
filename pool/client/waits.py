"""What a client waits for that its pool does: asked again and again, each time with a word on why it goes on."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pool.errors import DeadlineExceeded, ModelNotFound, PoolUnreachable, WorkerLost
from pool.wire.readiness import has_model, is_left_out, slots_left, why_not_ready

if TYPE_CHECKING:
    from pool.wire.records import Status

__all__ = ["LOOK_S", "not_ready", "until_ready", "until_updated"]

LOOK_S = 0.1
LEAST_S = 1.0  # for an answer: a pool that is there gives it, and says more than that time is over

Ask = Callable[[float], "Status"]
"""Which waits so many seconds for its answer."""


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
