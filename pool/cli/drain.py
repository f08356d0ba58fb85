"""`pool drain`, `pool undrain`: a slot is taken out of service without losing a job, and is brought back."""

import click

from pool import Client
from pool.cli.cluster import ClusterCommand
from pool.cli.names import SlotNumber
from pool.cli.options import as_json, lone_endpoint_option, print_json, timeout_option
from pool.cli.pools import one_pool
from pool.cli.progress import progress
from pool.cli.slot_wait import await_slot, await_worker
from pool.errors import InvalidState

__all__ = ["drain", "undrain"]

ON_ITS_WAY_OUT = ("DRAINING", "STOPPING")


@click.command(cls=ClusterCommand, rolling=True)
@click.argument("slot", type=SlotNumber())
@timeout_option
@lone_endpoint_option
@as_json
def drain(slot: int, timeout: float, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Take SLOT out of service; returns when its process is gone. `pool undrain SLOT` brings it back.

    Its worker finishes what it runs first. Waiting jobs run in other slots, or fail if no other slot has the model.
    """
    with Client(one_pool(endpoints), reconnect_timeout=0.0) as client, progress() as say:
        client.drain(slot)
        found = await_slot(client, slot, timeout, lambda found: found.state == "STOPPED", say)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(f"slot {slot} {found.device}: STOPPED; `pool undrain {slot}` brings it back")


@click.command(cls=ClusterCommand, rolling=True)
@click.argument("slot", type=SlotNumber())
@timeout_option
@lone_endpoint_option
@as_json
def undrain(slot: int, timeout: float, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Bring SLOT back into service after a drain; returns when it is READY."""
    with Client(one_pool(endpoints), reconnect_timeout=0.0) as client, progress() as say:
        found = await_slot(client, slot, timeout, lambda found: found.state not in ON_ITS_WAY_OUT, say)
        if found.state != "STOPPED":
            raise InvalidState(f"slot {slot} is {found.state}, so it is not drained; `pool restart {slot}` restarts it")
        found = await_worker(client, slot, client.restart(slot), timeout, say)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(f"slot {slot} {found.device}: READY, pid {found.pid}, incarnation {found.incarnation}")
