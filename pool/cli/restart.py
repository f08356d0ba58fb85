"""`pool restart`: new workers in the slots of a running pool, without losing a job."""

import time
from typing import Any

import click

from pool.cli.options import endpoint_option
from pool.client.client import Client
from pool.errors import PoolError

__all__ = ["restart"]

LOOK_S = 0.1


@click.command()
@click.argument("slot", type=click.IntRange(0), required=False)
@click.option("--rolling", is_flag=True, help="All slots, one after the other.")
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds to wait for each slot.")
@endpoint_option
def restart(slot: int | None, rolling: bool, timeout: float, endpoint: str | None) -> None:
    """Give SLOT a new worker, or with --rolling each slot in turn; returns when they are READY.

    What a worker runs is finished first, and what waits runs elsewhere or afterwards. A FATAL slot is tried again.
    The memory that a process of TensorFlow has taken from a GPU comes back only like this.
    """
    if (slot is None) == (not rolling):
        raise click.UsageError("say which SLOT, or --rolling for all of them")
    with Client(endpoint, reconnect_timeout=0.0) as client:
        slots = [slot] if slot is not None else [found["slot"] for found in client.status()["slots"] if found["models"]]
        for number in slots:
            _restart(client, number, timeout)


def _restart(client: Client, number: int, timeout_s: float) -> None:
    """Raises `PoolError` where the new worker is not READY in time, or never will be."""
    incarnation = client.restart(number)
    deadline = time.monotonic() + timeout_s
    while True:
        found = client.status()["slots"][number]
        if found["incarnation"] >= incarnation and found["state"] == "READY":
            who = f"pid {found['pid']}, incarnation {found['incarnation']}"
            click.echo(f"slot {number} {found['device']}: READY, {who}")
            return
        if found["state"] == "FATAL":
            raise PoolError(f"slot {number} is FATAL: {found['reason']}")
        if time.monotonic() > deadline:
            raise PoolError(f"slot {number} is {_state(found)} after {timeout_s:g} s; it goes on by itself")
        time.sleep(LOOK_S)


def _state(found: dict[str, Any]) -> str:
    why = found["doing"] or found["reason"]
    return f"{found['state']} ({why})" if why else str(found["state"])
