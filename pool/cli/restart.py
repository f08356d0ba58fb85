"""`pool restart`: new workers in the slots of a running pool, without losing a job."""

import click

from pool import Client
from pool.cli.options import endpoint_option
from pool.cli.slot_wait import await_slot
from pool.errors import PoolError
from pool.wire.records import Slot

__all__ = ["restart"]


@click.command()
@click.argument("slot", type=click.IntRange(0), required=False)
@click.option("--rolling", is_flag=True, help="Restart all slots, one after the other.")
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds to wait for each slot.")
@endpoint_option
def restart(slot: int | None, rolling: bool, timeout: float, endpoint: str | None) -> None:
    """Give SLOT a new worker, or with --rolling each slot in turn; returns when they are READY.

    The old worker serves until the new one is ready. If the GPU has no room for both, or with
    [restart] replacement = "never", the old worker ends first. It always finishes what it runs. A FATAL slot is tried
    again. Only a restart frees the GPU memory that a TensorFlow process has taken.
    """
    if (slot is None) == (not rolling):
        raise click.UsageError("name a SLOT, or give --rolling for all of them")
    with Client(endpoint, reconnect_timeout=0.0) as client:
        slots = [slot] if slot is not None else [found.slot for found in client.status().slots if found.models]
        for number in slots:
            _restart(client, number, timeout, rolling)


def _restart(client: Client, number: int, timeout_s: float, rolling: bool) -> None:
    incarnation = client.restart(number, rolling=rolling)

    def is_up(found: Slot) -> bool:
        failure = found.replacement_failure
        if failure is not None and failure.incarnation >= incarnation and not failure.refused:
            raise PoolError(
                f"slot {number}: its replacement failed, so its former worker still serves: {failure.reason}"
            )
        return bool(found.incarnation >= incarnation and found.state == "READY")

    found = await_slot(client, number, timeout_s, is_up)
    who = f"pid {found.pid}, incarnation {found.incarnation}"
    click.echo(f"slot {number} {found.device}: READY, {who}")
