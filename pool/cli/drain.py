"""`pool drain`: a slot of a running pool is taken out of service, without losing a job."""

import time

import click

from pool.cli.options import endpoint_option
from pool.client.client import Client
from pool.errors import PoolError

__all__ = ["drain"]

LOOK_S = 0.1


@click.command()
@click.argument("slot", type=click.IntRange(0))
@click.option("--timeout", type=float, default=600.0, show_default=True, help="Seconds to wait for what it runs.")
@endpoint_option
def drain(slot: int, timeout: float, endpoint: str | None) -> None:
    """Take SLOT out of service; returns when its process is gone. `pool restart SLOT` brings it back.

    What its worker runs is finished first; what waits runs in other slots, and is refused where none has the model.
    """
    with Client(endpoint, reconnect_timeout=0.0) as client:
        client.drain(slot)
        deadline = time.monotonic() + timeout
        while True:
            found = client.status()["slots"][slot]
            if found["state"] == "STOPPED":
                click.echo(f"slot {slot} {found['device']}: STOPPED; `pool restart {slot}` brings it back")
                return
            if found["state"] == "FATAL":
                raise PoolError(f"slot {slot} is FATAL: {found['reason']}")
            if time.monotonic() > deadline:
                doing = f" ({found['doing']})" if found["doing"] else ""
                raise PoolError(f"slot {slot} is {found['state']}{doing} after {timeout:g} s; it goes on by itself")
            time.sleep(LOOK_S)
