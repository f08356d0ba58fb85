"""`pool health`, `pool wait`: whether the pool can serve."""

import click

from pool import Client
from pool.cli.failure import CommandFailed
from pool.cli.names import ModelName
from pool.cli.options import IMPATIENT, as_json, endpoint_option, print_json, timeout_option
from pool.cli.progress import progress
from pool.terminal import count_of
from pool.wire.readiness import slots_of, why_not_ready
from pool.wire.records import Status

__all__ = ["health", "wait"]

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
    with progress() as say, Client(endpoint, connect_timeout=CONNECT_S, reconnect_timeout=0.0) as client:
        client.wait_ready(model, timeout, on_wait=say)
        found = client.status()
    _show(found, model, as_json)


def _show(found: Status, model: str | None, as_json: bool) -> None:
    why = why_not_ready(found, model)
    slots = slots_of(found, model)
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
