"""`pool stop`"""

import os
import time

import click

from pool import Client
from pool.cli.options import endpoint_option
from pool.endpoint import endpoints, holder, ipc_path
from pool.errors import DeadlineExceeded, PoolUnreachable

__all__ = ["stop"]

LOOK_S = 0.05


@click.command()
@endpoint_option
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds to wait until it is gone.")
def stop(endpoint: str | None, timeout: float) -> None:
    """Stop the pool after it has finished its jobs. Returns when it is gone."""
    places = [ipc_path(each) for each in endpoints(endpoint, os.environ, os.getuid())]
    path, pid = next(((each, pid) for each in places if (pid := holder(each)) is not None), (None, None))
    if path is None:
        raise PoolUnreachable(f"no pool runs at {' or '.join(f'ipc://{each}' for each in places)}")
    with Client(f"ipc://{path}", reconnect_timeout=0.0) as client:
        client.stop()
    deadline = time.monotonic() + timeout
    while holder(path) == pid:
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(
                f"the pool (pid {pid}) is still stopping after {timeout:g} s; `pool status` shows what it waits for"
            )
        time.sleep(LOOK_S)
    click.echo(f"stopped (pid {pid})")
