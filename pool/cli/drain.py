"""`pool drain`: a slot of a running pool is taken out of service, without losing a job."""

import click

from pool import Client
from pool.cli.options import endpoint_option
from pool.cli.slot_wait import await_slot

__all__ = ["drain"]


@click.command()
@click.argument("slot", type=click.IntRange(0))
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds to wait for its running jobs.")
@endpoint_option
def drain(slot: int, timeout: float, endpoint: str | None) -> None:
    """Take SLOT out of service; returns when its process is gone. `pool restart SLOT` brings it back.

    Its worker finishes what it runs first. Waiting jobs run in other slots, or fail if no other slot has the model.
    """
    with Client(endpoint, reconnect_timeout=0.0) as client:
        client.drain(slot)
        found = await_slot(client, slot, timeout, lambda found: found.state == "STOPPED")
    click.echo(f"slot {slot} {found.device}: STOPPED; `pool restart {slot}` brings it back")
