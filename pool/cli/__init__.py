"""The command `pool`.

Arguments come in. Tables or JSON on standard output, one clear line on standard error where something failed, and the
exit status go out. It decides nothing: a client asks the pool, and `pool.serve` is the pool. Whatever is slow to import
is imported by the command that needs it.
"""

import io
import sys

import click

from pool.cli.check import check
from pool.cli.help import show_page
from pool.cli.running import health, logs, start, stop, wait
from pool.cli.screen import printable
from pool.cli.status import models, status
from pool.cli.submit import submit
from pool.cli.systemd import systemd
from pool.errors import InvalidConfig, PoolError

__all__ = ["cli", "main"]


class InOrder(click.Group):
    """Lists the commands as they were added: as a newcomer needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tf-worker-pool", prog_name="pool")
def cli() -> None:
    """A pool of TensorFlow inference workers: one process per GPU behind one submit()."""


for command in (start, stop, status, models, submit, check, logs, wait, health, systemd, show_page):
    cli.add_command(command)


def main(argv: list[str] | None = None) -> None:
    """Exit status: 0 on success, 2 for a usage error or a refused configuration, 1 on failure, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it: a path may be no UTF-8
    try:
        sys.exit(cli.main(argv, prog_name="pool", standalone_mode=False))  # what a command returns, or None
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Exception as error:
        is_foreseen = isinstance(error, PoolError | OSError)
        if sys.flags.dev_mode and not is_foreseen:
            raise
        is_thin = isinstance(error, ModuleNotFoundError)  # the client alone is installed
        remedy = "pip install 'tf-worker-pool[worker]'" if is_thin else "`python -X dev -m pool` shows where"
        complain(error if is_foreseen else f"{type(error).__name__}: {error} ({remedy})")
        sys.exit(2 if isinstance(error, InvalidConfig) else 1)


def complain(error: object) -> None:
    """The text may quote what a worker has printed, but a terminal must not obey it."""
    lines = "\n".join(map(printable, str(error).splitlines())) or type(error).__name__
    click.echo(f"pool: {lines}", err=True)
