"""`pool restart`: new workers in the slots of a running pool, without losing a job."""

import click

from pool import Client
from pool.cli.names import SlotNumber
from pool.cli.options import as_json, lone_endpoint_option, print_json, timeout_option
from pool.cli.pools import one_pool
from pool.cli.progress import progress
from pool.cli.slot_wait import await_worker
from pool.wire.records import Slot

__all__ = ["restart"]


@click.command()
@click.argument("slot", type=SlotNumber(), required=False)
@click.option("--rolling", is_flag=True, help="Restart all slots, one after the other.")
@timeout_option
@lone_endpoint_option
@as_json
def restart(slot: int | None, rolling: bool, timeout: float, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Give SLOT a new worker, or with --rolling each slot in turn; returns when they are READY.

    The old worker serves until the new one is ready. If the GPU has no room for both, or with
    [restart] replacement = "off", the old worker ends first. It always finishes what it runs. A FATAL slot is tried
    again. Only a restart frees the GPU memory that a TensorFlow process has taken. --timeout is for each slot.
    """
    if (slot is None) == (not rolling):
        raise click.UsageError("name a SLOT, or give --rolling for all of them")
    done: list[Slot] = []
    with Client(one_pool(endpoints), reconnect_timeout=0.0) as client:
        slots = [slot] if slot is not None else [found.slot for found in client.status().slots if found.models]
        for number in slots:
            with progress() as say:
                found = await_worker(client, number, client.restart(number, rolling=rolling), timeout, say)
            done.append(found)
            if not as_json:
                who = f"pid {found.pid}, incarnation {found.incarnation}"
                click.echo(f"slot {number} {found.device}: READY, {who}")
    if as_json:
        print_json([each.to_dict() for each in done])
