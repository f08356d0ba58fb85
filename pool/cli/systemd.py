"""`pool systemd`: the pool as a service of the machine, or of one user."""

import os
import pwd
import sys
from pathlib import Path

import click

from pool.cli.asking import config_option, read_config
from pool.errors import PoolError

__all__ = ["systemd"]

SYSTEM_FOLDER = Path("/etc/systemd/system")


@click.group()
def systemd() -> None:
    """Have systemd start the pool, watch it and restart it."""


user_option = click.option("--user", "is_user", is_flag=True, help="A service of your own, not of the machine.")
as_option = click.option("--as", "account", metavar="USER", help="The user as whom a service of the machine runs.")


@systemd.command("print")
@config_option
@user_option
@as_option
def print_unit(config: Path | None, is_user: bool, account: str | None) -> None:
    """Print the unit."""
    click.echo(text_of(config, is_user, account), nl=False)


@systemd.command()
@config_option
@user_option
@as_option
def install(config: Path | None, is_user: bool, account: str | None) -> None:
    """Write the unit where systemd finds it, and print the commands to run next. None of them is run."""
    text = text_of(config, is_user, account)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    path = (home / "systemd" / "user" if is_user else SYSTEM_FOLDER) / "pool.service"
    try:
        if path.exists() and path.read_text() != text:
            raise PoolError(f"{path} is another unit; remove it first (`pool systemd print` shows the new one)")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
    except PermissionError:
        raise PoolError(f"{path} cannot be written; run this as root, or use --user") from None
    systemctl = "systemctl --user" if is_user else "systemctl"
    click.echo(f"wrote {path}\nnext:\n  {systemctl} daemon-reload\n  {systemctl} enable --now pool.service")


def text_of(config: Path | None, is_user: bool, account: str | None) -> str:
    from pool.systemd import unit

    if is_user == (account is not None):
        raise click.UsageError("give --user for a service of your own, or --as USER for one of the machine")
    if account is not None:
        try:
            pwd.getpwnam(account)
        except KeyError:
            raise click.UsageError(f"--as: there is no user {account!r} on this machine") from None
    path, settings = read_config(config)
    python, pool = os.path.abspath(sys.executable), settings.pool
    return unit(python, str(path) if path else None, pool.drain_timeout, account, pool.group, not is_user)
