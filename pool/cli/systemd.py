"""`pool systemd`: the pool as a service of the machine, or of one user."""

import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pool.cli.failure import CommandFailed
from pool.cli.group import Group
from pool.cli.options import CONFIG, name_option
from pool.cli.start import settings_of
from pool.endpoint import ipc_path
from pool.kept import write_whole
from pool.plan import make_plan
from pool.systemd import TEMPLATE_NAME, UNIT_NAME, unit

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["systemd"]

SYSTEM_FOLDER = Path("/etc/systemd/system")
TMP_FOLDERS = (Path("/tmp"), Path("/var/tmp"))
PATIENCE_S = 120.0  # of a unit for several configurations: each pool asks systemd for the time that its own allows


@click.group(cls=Group)
def systemd() -> None:
    """Have systemd start the pool, watch it and restart it."""


def _about_unit(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which unit."""
    for option in (
        click.option("--as", "account", metavar="USER", help="The user that a system service runs as."),
        click.option("--user", "user_unit", is_flag=True, help="Write a service of your own, not a system service."),
        name_option,
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="What the service serves. Default: config.toml in this folder, or NAME.toml with --name.",
        ),
    ):
        command = option(command)
    return command


@systemd.command("print")
@_about_unit
def print_unit(config: Path | None, name: str | None, user_unit: bool, account: str | None) -> None:
    """Print the unit. Exit status 2 if the configuration is refused.

    With --name it is a template, of which each pool with a name is an instance.
    """
    file = _file(config, name)
    click.echo(_text(file, _settings(file, name, account), name, user_unit, account), nl=False)


@systemd.command()
@_about_unit
@click.option("--force", is_flag=True, help="Overwrite another unit of this name.")
def install(config: Path | None, name: str | None, user_unit: bool, account: str | None, force: bool) -> None:
    """Write the unit where systemd finds it, and print the commands to run next. It runs none of them.

    With --name it is the template pool@.service, which serves NAME.toml of the same folder as pool@NAME.service.
    """
    file = _file(config, name)
    settings = _settings(file, name, account)
    text = _text(file, settings, name, user_unit, account)
    path = (_user_folder() if user_unit else SYSTEM_FOLDER) / (UNIT_NAME if name is None else TEMPLATE_NAME)
    before = _standing(path)
    if before == text.encode():
        click.echo(f"{path} already has this unit")
    elif before is not None and not force:
        raise CommandFailed(
            f"{path} has a different unit; `pool systemd print` shows the new one, --force overwrites the old one"
        )
    else:
        _write(path, text)
        click.echo(f"wrote {path}")
    systemctl = "systemctl --user" if user_unit else "systemctl"
    service = path.name if name is None else path.name.replace("@", f"@{name}")
    click.echo("next:")
    click.echo(f"  {systemctl} daemon-reload")
    if before is None or name is not None:
        click.echo(f"  {systemctl} enable --now {service}")
    if before is not None:
        click.echo(f"  {systemctl} restart {service}")  # what runs already goes on as it was started
    if not settings.pool.endpoint:
        whose = "" if account is None else f", as {account}"
        click.echo(f"then{whose}: pool status{'' if name is None else f' --name {name}'}")


def _file(config: Path | None, name: str | None) -> Path:
    file = config or (CONFIG if name is None else Path(f"{name}.toml"))
    if name is not None and file.name != f"{name}.toml":
        raise click.UsageError(f"the template serves NAME.toml: rename {file} to {name}.toml, or leave --name out")
    if not file.is_file():
        raise click.UsageError(f"there is no file {file}; name the configuration with --config")
    return file


def _settings(file: Path, name: str | None, account: str | None) -> "Settings":
    """Of a pool that is where its name says, if it has one; `account`: whose its private files are."""
    settings = settings_of(file, None if account is None else _user_id(account))
    if name is None:
        return settings
    return settings.model_copy(update={"pool": settings.pool.model_copy(update={"endpoint": ""})})


def _text(config: Path, settings: "Settings", name: str | None, user_unit: bool, account: str | None) -> str:
    if user_unit == (account is not None):
        raise click.UsageError("give --as USER for a system service, or --user for one of your own")
    plan = make_plan(settings, os.environ)
    policy = plan.policy
    path = os.path.abspath(config)
    return unit(
        executable=sys.executable,
        config=path,
        user_unit=user_unit,
        user=account,
        start_s=policy.longest_start_s(max(1, len(plan.models))) if name is None else PATIENCE_S,
        stop_s=policy.longest_stop_s if name is None else PATIENCE_S,
        writable=_writable(settings),
        private_tmp=not _uses_tmp(settings, path),
        endpoint=settings.pool.endpoint or None,
        group=settings.pool.group,
        template=name is not None,
    )


def _writable(settings: "Settings") -> list[str]:
    """The folders of the configuration's own that the pool writes into."""
    endpoint = [str(ipc_path(settings.pool.endpoint).parent)] if settings.pool.endpoint else []
    return endpoint + ([settings.pool.state] if settings.pool.state else [])


def _uses_tmp(settings: "Settings", config: str) -> bool:
    """Whether the service needs to see the machine's /tmp rather than one of its own."""
    models = [model.path for model in settings.model if not model.path.startswith("stub:")]
    needed = [config, sys.prefix, sys.base_prefix, __file__, *models, *_writable(settings), *_of_gateway(settings)]
    return any(Path(path).resolve().is_relative_to(folder) for path in needed for folder in TMP_FOLDERS)


def _user_id(account: str) -> int:
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        raise click.UsageError(f"there is no user {account!r} on this machine") from None


def _of_gateway(settings: "Settings") -> list[str]:
    """The files that it reads."""
    gateway = settings.gateway
    if gateway is None:
        return []
    files = [file.path for file in (gateway.tokens, gateway.certificate) if file is not None]
    return files if gateway.key is None else [*files, gateway.key]


def _user_folder() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".config") / "systemd/user"


def _standing(path: Path) -> bytes | None:
    """What the file is now; None where there is none. A link to nowhere is one."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b"" if path.is_symlink() else None
    except IsADirectoryError:
        return b""
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    """systemd never reads a part of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [text.encode()], 0o644)  # others run `systemctl cat`
    except PermissionError as error:
        raise CommandFailed(
            f"{path.parent}: {error.strerror}; run this as root, or write a unit of your own with --user"
        ) from None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}") from None
