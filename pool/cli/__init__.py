"""The command `pool`, a file for each command or for a few that belong together.

In come arguments and options. Out go a table or JSON on stdout, one clear line on stderr where something failed, and
the exit status. It never decides anything itself: the client asks the pool, and `pool.terminal` draws.
"""

import contextlib
import importlib
import io
import sys
from typing import Any

import click

from pool.cli.failure import exit_status
from pool.cli.group import Group
from pool.cli.streams import open_streams
from pool.errors import InvalidConfig, PoolError
from pool.wire.texts import printable

__all__ = ["main"]

KEPT = "\n\t"  # an error may have several lines

# Each is loaded when it is called: `pool submit` must not wait for what `pool start` needs.
_COMMANDS = (
    *(
        "init",
        "start",
        "stop",
        "wait",
        "health",
        "status",
        "top",
        "metrics",
        "logs",
        "models",
        "placement",
        "devices",
        "submit",
    ),
    *("restart", "drain", "undrain", "reload", "load", "unload"),
    *("check", "doctor", "explain", "bench", "demo", "gateway", "keys", "systemd", "completion", "help"),
)
_FILES = {"unload": "load", "undrain": "drain", "wait": "health"}  # where it is not of the command's name


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        try:
            command = getattr(importlib.import_module(f"pool.cli.{_FILES.get(cmd_name, cmd_name)}"), cmd_name)
        except ModuleNotFoundError as error:
            return _not_installed(cmd_name, error)
        assert isinstance(command, click.Command)
        return command


def _not_installed(name: str, error: ModuleNotFoundError) -> click.Command:
    """Stands in for a command that the thin client cannot run, whatever it is given."""

    def refuse(**_: object) -> None:
        needs = "needs more than the client: pip install 'tf-worker-pool[worker]', or [gpu] for NVIDIA GPUs"
        raise InvalidConfig(f"`pool {name}` {needs} ({error})")

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["given"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
        short_help="Needs tf-worker-pool[worker], which is not installed.",
    )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tf-worker-pool", prog_name="pool")
def pool() -> None:
    """A pool of TensorFlow inference workers, one process per GPU."""


def main(argv: list[str] | None = None) -> Any:
    """Exit status: 0 on success, 2 on a usage error or a refused configuration, 1 on failure with one line why.

    `pool start` has two more, 3: no slot could serve, or not every model; 4: the pool broke down by a fault of its own.
    """
    open_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it: a path may be no UTF-8
    try:
        return pool.main(argv, prog_name="pool")
    except (PoolError, OSError) as error:
        _complain(error)
        sys.exit(exit_status(error))


def _complain(error: Exception) -> None:
    """It may quote what a worker has printed."""
    with contextlib.suppress(OSError):  # nobody reads it: the status says it
        click.echo(f"pool: {printable(str(error), keep=KEPT)}", err=True)
