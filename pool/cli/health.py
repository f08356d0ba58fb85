"""`pool health`, `pool wait`: whether the pool can serve."""

import click

from pool import Client
from pool.cli.failure import CommandFailed
from pool.cli.names import ModelName
from pool.cli.options import IMPATIENT, as_json, endpoints_option, timeout_option
from pool.cli.pools import show_each
from pool.cli.progress import progress
from pool.terminal import count_of
from pool.wire.readiness import slots_of, why_not_ready
from pool.wire.records import Status

__all__ = ["health", "wait"]

CONNECT_S = 1.0  # before it is said that there is no pool yet

model_option = click.option("--model", type=ModelName(), metavar="NAME", help="Ask for this model alone.")


@click.command()
@model_option
@endpoints_option
@as_json
def health(model: str | None, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Say whether the pool can serve. Exit status 0 only if it can: a slot is READY, and the pool does not stop.

    With --model: a slot with that model is READY. Of several pools, one that can serve is enough.
    """
    with Client(endpoints or None, **IMPATIENT) as client:
        _show(client, model, as_json)


@click.command()
@model_option
@timeout_option
@endpoints_option
@as_json
def wait(model: str | None, timeout: float, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Wait until the pool can serve, as `pool health` has it. The pool need not have started yet."""
    with Client(endpoints or None, connect_timeout=CONNECT_S, reconnect_timeout=0.0) as client:
        with progress() as say:
            client.wait_ready(model, timeout, on_wait=say)
        _show(client, model, as_json)


def _show(client: Client, model: str | None, as_json: bool) -> None:
    def ask(one: Client) -> Status:
        found = one.status()
        if (why := why_not_ready(found, model)) and not as_json:
            raise CommandFailed(why)
        return found

    def show(found: Status) -> None:
        who = "the pool serves" if model is None else f"{model} is served"
        click.echo(f"{who}: {_ready(found)} of {count_of(len(slots_of(found, model)), 'slot')} READY")

    def values(found: Status) -> dict[str, object]:
        why = why_not_ready(found, model)
        return {
            "serves": not why,
            "reason": why,
            "ready_slots": _ready(found),
            "slots": len(slots_of(found, model)),
        }

    def _ready(found: Status) -> int:
        return sum(slot.state == "READY" for slot in slots_of(found, model))

    found = show_each(client, ask, show, values if as_json else None)
    if all(why_not_ready(each, model) for each in found):
        raise click.exceptions.Exit(1)
