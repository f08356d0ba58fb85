"""`pool health`, `pool wait`: whether the pool can serve."""

import time

import click

from pool import Client
from pool.cli.failure import CommandFailed
from pool.cli.names import ModelName
from pool.cli.options import IMPATIENT, as_json, endpoint_option, print_json, timeout_option
from pool.cli.progress import doing, progress
from pool.errors import DeadlineExceeded, ModelNotFound, PoolUnreachable
from pool.terminal import count_of
from pool.wire.entries import model_of
from pool.wire.records import Slot, Status

__all__ = ["health", "wait"]

LOOK_S = 0.1
CONNECT_S = 1.0  # before it is said that there is no pool yet

model_option = click.option("--model", type=ModelName(), metavar="NAME", help="Ask for this model alone.")


@click.command()
@model_option
@endpoint_option
@as_json
def health(model: str | None, endpoint: str | None, as_json: bool) -> None:
    """Say whether the pool can serve. Exit status 0 only if it can: a slot is READY, and the pool does not stop.

    With --model: a slot with that model is READY.
    """
    with Client(endpoint, **IMPATIENT) as client:
        found = client.status()
    _show(found, model, as_json)


@click.command()
@model_option
@timeout_option
@endpoint_option
@as_json
def wait(model: str | None, timeout: float, endpoint: str | None, as_json: bool) -> None:
    """Wait until the pool can serve, as `pool health` has it. The pool need not have started yet."""
    deadline, found = time.monotonic() + timeout, None
    with progress() as say, Client(endpoint, connect_timeout=CONNECT_S, reconnect_timeout=0.0) as client:
        while found is None or _why_not(found, model):
            try:
                found = client.status()
                say(_why_not(found, model))
            except PoolUnreachable as error:
                found = None
                say(str(error))
                if time.monotonic() > deadline:
                    raise DeadlineExceeded(f"after {timeout:g} s: {error}") from None
            if found is not None and time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
    assert found is not None
    _show(found, model, as_json)


def _show(found: Status, model: str | None, as_json: bool) -> None:
    why = _why_not(found, model)
    slots = _slots(found, model)
    ready = sum(slot.state == "READY" for slot in slots)
    if as_json:
        print_json({"serves": not why, "reason": why, "ready_slots": ready, "slots": len(slots)})
        if why:
            raise click.exceptions.Exit(1)
    elif why:
        raise CommandFailed(why)
    else:
        who = "the pool serves" if model is None else f"{model} is served"
        click.echo(f"{who}: {ready} of {count_of(len(slots), 'slot')} READY")


def _why_not(found: Status, model: str | None) -> str:
    """Why the pool cannot serve, or "". Raises `ModelNotFound` for a model that it does not have."""
    if model is not None and all(model not in (each.name, each.model) for each in found.models):
        raise ModelNotFound(f"this pool has no model {model!r:.80}")
    slots = _slots(found, model)
    if found.state == "STOPPING":
        return "the pool is stopping"
    if any(slot.state == "READY" for slot in slots):
        return ""
    what = "the pool does not serve" if model is None else f"{model} is not served"
    return f"{what}: {'; '.join(map(_state, slots)) or 'no slot has a model'}"


def _state(slot: Slot) -> str:
    return f"slot {slot.slot} is {slot.state}: {slot.reason}" if slot.reason else doing(slot)


def _slots(found: Status, model: str | None) -> list[Slot]:
    """Those that have it, or any model."""
    return [
        slot
        for slot in found.slots
        if slot.models and (model is None or any(model in (name, model_of(name)) for name in slot.models))
    ]
