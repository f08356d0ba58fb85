"""The command line as a user has it: as a process of its own, or in this one.

Both go through the group `pool`, as a shell does: click keeps the help option that a command makes first, and one that
is called without its group would make another.
"""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from pool.cli import main
from support.pool_process import PoolProcess

__all__ = ["Done", "command_line", "in_process", "run_command"]

COMMAND_S = 90.0


class Done(NamedTuple):
    status: int
    out: str
    err: str


def command_line(pool: PoolProcess | None, *arguments: str) -> list[str]:
    """What to execute; with the endpoint of a pool, if one is given."""
    return [sys.executable, "-P", "-m", "pool", *arguments, *_endpoint(pool)]


def _endpoint(pool: PoolProcess | None) -> list[str]:
    return [] if pool is None else ["--endpoint", pool.endpoint]


def run_command(
    pool: PoolProcess | None,
    *arguments: str,
    stdin: bytes = b"",
    environ: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_S,
) -> "subprocess.CompletedProcess[str]":
    """As a process, to its end; whatever comes of it, a user never sees a traceback."""
    argv = command_line(pool, *arguments)
    whole = {**os.environ, **(environ or {})}
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=timeout_s, env=whole, check=False)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())


def in_process(*arguments: str, pool: PoolProcess | None = None) -> Done:
    """In this process, where a test may have put something in the place of the client; it takes no time to start.

    `pool`: whose endpoint it is given.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*arguments, *_endpoint(pool)])
        except SystemExit as end:
            status = end.code
        else:
            raise AssertionError("a command always ends with an exit status")
    assert isinstance(status, int), status
    out.flush()
    err.flush()
    return Done(status, *(stream.buffer.getvalue().decode() for stream in (out, err)))
