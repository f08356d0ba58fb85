"""`pool reload`: what changed in `config.toml`, applied to the running pool."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from pool import Client
from pool.cli.options import as_json, endpoint_option, print_json
from pool.errors import PoolError

__all__ = ["await_roll", "reload", "show_changes"]

LOOK_S = 0.1


@click.command()
@click.option("--wait", is_flag=True, help="Return when every slot has the new settings.")
@click.option("--timeout", type=float, default=1800.0, show_default=True, help="Seconds to wait with --wait.")
@endpoint_option
@as_json
def reload(wait: bool, timeout: float, endpoint: str | None, as_json: bool) -> None:
    """Have the pool read its config.toml again and say what is another now.

    A file with a mistake, or with a change that takes a new pool, is refused whole: exit status 2, and the pool goes on
    as before. What only a worker's start can give comes with new workers, one slot after the other, without losing a
    job; if one does not come up with the new settings, all go back to the former ones.
    """
    with Client(endpoint) as client:
        found = client.reload()
        show_changes(found, as_json)
        if wait:
            await_roll(client, timeout)


def show_changes(found: Mapping[str, Any], as_json: bool) -> None:
    """What a pool has told of its new settings."""
    if as_json:
        print_json(found)
        return
    for change in found["changes"]:
        click.echo(change["line"])
    if found["slots"]:
        click.echo(_new_workers(found["slots"]))
    elif not found["changes"]:
        click.echo("nothing changed")


def _new_workers(slots: Sequence[int]) -> str:
    if len(slots) == 1:
        return f"slot {slots[0]} gets a new worker"
    return f"slots {', '.join(map(str, slots))} get new workers, one after the other"


def await_roll(client: Client, timeout_s: float) -> None:
    """Raises `PoolError` where it ends early, or not in time."""
    deadline = time.monotonic() + timeout_s
    while (roll := (status := client.status())["roll"])["left"]:
        if time.monotonic() > deadline:
            left = ", ".join(map(str, roll["left"]))
            raise PoolError(f"slots {left} have the former settings after {timeout_s:g} s; it goes on by itself")
        time.sleep(LOOK_S)
    if roll["failure"]:
        raise PoolError(roll["failure"])
    if broken := status["versions"]["broken"]:
        raise PoolError(f"did not come up, so another version is served on: {', '.join(broken)}")
