"""The command `pool`.

Arguments come in. Tables or JSON on standard output, one clear line on standard error where something failed, and the
exit status go out. It decides nothing: a client asks the pool, and `pool.serve` is the pool. Whatever is slow to import
is imported by the command that needs it.
"""

import io
import sys

import click

from pool.cli.asking import drain, health, load, logs, reload, restart, stop, submit, undrain, unload, wait
from pool.cli.bench import bench
from pool.cli.doctor import doctor
from pool.cli.local import check, door, init, show_page, start, systemd, token
from pool.cli.status import models, placement, status
from pool.errors import InvalidConfig, PoolError
from pool.log import printable


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tf-worker-pool", prog_name="pool")
def cli() -> None:
    """A pool of TensorFlow inference workers: one process per GPU behind one submit()."""


for command in (start, stop, status, models, submit, bench, check, logs, wait, health, systemd, show_page):
    cli.add_command(command)
for command in (reload, load, unload, restart, drain, undrain, placement, init, doctor, door, token):
    cli.add_command(command)


def main(argv: list[str] | None = None) -> None:
    """Exit status: 0 on success, 2 for a usage error or a refused configuration, 1 on failure, 130 after Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it: a terminal may know no "–"
    try:
        sys.exit(cli.main(argv, prog_name="pool", standalone_mode=False))  # what a command returns, or None
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:  # the client alone is installed
        click.echo(f"pool: {error}; pip install 'tf-worker-pool[worker,door]'", err=True)
        sys.exit(1)
    except (PoolError, OSError) as error:
        # The text may quote what a worker has printed, but a terminal must not obey it.
        lines = "\n".join(map(printable, str(error).splitlines())) or type(error).__name__
        click.echo(f"pool: {lines}", err=True)
        sys.exit(2 if isinstance(error, InvalidConfig) else 1)
