"""`pool stop`"""

import os
import time

import click

from pool import Client
from pool.cli.options import endpoint_option
from pool.endpoint import ENDPOINT_VARIABLE, default_endpoint, holder, ipc_path
from pool.errors import DeadlineExceeded, PoolUnreachable

__all__ = ["stop"]

LOOK_S = 0.05


@click.command()
@endpoint_option
@click.option("--timeout", type=float, default=120.0, show_default=True, help="Seconds to wait until it is gone.")
def stop(endpoint: str | None, timeout: float) -> None:
    """Stop the pool after it has finished its jobs. Returns when it is gone."""
    path = ipc_path(endpoint or os.environ.get(ENDPOINT_VARIABLE) or default_endpoint(os.environ, os.getuid()))
    pid = holder(path)
    if pid is None:
        raise PoolUnreachable(f"no pool runs at ipc://{path}")
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
