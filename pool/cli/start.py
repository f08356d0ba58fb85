"""`pool start`: the supervisor in the foreground."""

import contextlib
import logging
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import msgpack

from pool import logs
from pool.cli.cluster import AUTO, an_address
from pool.cli.failure import CommandFailed, NoSlotLeft, OwnFault, exit_status
from pool.cli.options import config_option, log_options, name_option
from pool.cli.placing import place_on_ray
from pool.config import Settings, demo_folder, load_settings, parse_settings, with_demo
from pool.core.actions import PoolStopped
from pool.endpoint import check_free, default_endpoint, ipc_path
from pool.errors import PoolError
from pool.logs import about
from pool.plan import Plan, Source, make_plan
from pool.serve import BrokeDown, Service, SlotLog, has_terminal, without
from pool.systemd import Notifier
from pool.wire.codec import packed

__all__ = ["described", "failed", "settings_of", "start"]

log = logging.getLogger("pool")


@click.command()
@config_option
@name_option
@log_options
@click.option(
    "--ray",
    metavar="[ADDRESS]",
    is_flag=False,
    flag_value=AUTO,
    callback=an_address,
    help="Place a pool on each machine of a Ray cluster instead, as [cluster] says, and return when they are READY.",
)
@click.option("--embedded", type=int, hidden=True, help="A socket to the program that this pool belongs to.")
@click.option("--lifeline", type=int, hidden=True, help="A socket with whose end the pool drains.")
def start(
    config: Path | None,
    name: str | None,
    log_level: int,
    log_format: str,
    ray: str | None,
    embedded: int | None,
    lifeline: int | None,
) -> None:
    """Serve until Ctrl-C, `pool stop` or SIGTERM.

    A configuration without a model serves the built-in demo; the first line of the log says so. `pool reload` reads the
    file again. SIGHUP does the same in a pool without a terminal. A pool with a terminal ends when the terminal is
    closed.
    """
    if embedded is not None:
        _start_embedded(socket.socket(fileno=embedded), log_level)
        return
    if ray is not None:
        place_on_ray(config, name, ray)
        return
    with logs.to_stderr(log_format == "json", log_level, os.environ) as for_programs:
        try:
            _serve(config, name, lifeline)
        except Exception as error:
            if not for_programs:
                raise
            sys.exit(failed(error))


def _serve(config: Path | None, name: str | None, lifeline: int | None) -> None:
    def place(settings: Settings) -> Settings:
        """A name is for this pool alone, and the file may be for several."""
        return settings if name is None else _at(default_endpoint(os.environ, os.getuid(), name), settings)

    settings = place(settings_of(config))
    check_free(ipc_path(settings.pool.endpoint or default_endpoint(os.environ, os.getuid())))
    about_file = about("configuration", file=None if config is None else str(config.absolute()))
    log.info("configuration: %s", described(config, settings), extra=about_file)
    plan = make_plan(settings, os.environ)
    _announce(plan)

    def on_ready(serving: int, slots: int, unloadable: Sequence[str]) -> None:
        _tell_ready(plan, serving, slots, unloadable)
        if _serves_demo(plan.settings):
            log.info("next, in another terminal: %s", _next_command(name), extra=about("next_command"))

    notifier = Notifier.from_environ(os.environ, os.getpid())
    source = Source("the built-in demo") if config is None else _source(config, settings, place)
    # A terminal that is closed says so by SIGHUP, and the pool in it is to end.
    hangup = not has_terminal()
    service = Service(plan, os.environ, on_ready, notifier, source, reload_on_hangup=hangup)
    stopped = service.run(lifeline, finishes=True)
    _tell_stopped(stopped)


def failed(error: Exception) -> int:
    """Logs why a command that serves ends, which would stand beside the log otherwise. Returns the exit status."""
    extra = about("failed", error=type(error).__name__)
    if isinstance(error, PoolError | OSError):
        log.error("%s", error, extra=extra)
    else:
        log.critical("%s: %s", type(error).__name__, error, exc_info=error, extra=extra)
    return exit_status(error)


def _tell_ready(plan: Plan, serving: int, slots: int, unloadable: Sequence[str]) -> None:
    extra = about("ready", serving=serving, slots=slots, endpoint=plan.endpoint, unloadable=unloadable or None)
    why = "; `pool status` says why" if unloadable else ""
    text, level = "ready: %d of %d slots serve at %s%s%s", logging.WARNING if unloadable else logging.INFO
    log.log(level, text, serving, slots, plan.endpoint, without(unloadable), why, extra=extra)


def _tell_stopped(stopped: PoolStopped | BrokeDown) -> None:
    """Raises `NoSlotLeft` or `OwnFault`."""
    if isinstance(stopped, BrokeDown):
        raise OwnFault(stopped.reason)
    if stopped.failed:
        raise NoSlotLeft(stopped.reason)
    log.info("stopped: %s", stopped.reason, extra=about("stopped", reason=stopped.reason))


def _next_command(name: str | None) -> str:
    """A line that works when it is typed in the same folder, whether or not the environment is activated."""
    found = shutil.which("pool")
    if found is not None and Path(found).resolve() == Path(sys.argv[0]).resolve():
        program = "pool"
    elif Path(sys.argv[0]).name == "pool":
        program = shlex.quote(sys.argv[0])
    else:
        program = f"{shlex.quote(sys.executable)} -m pool"
    image = demo_folder() / "seven.json"
    image = min(image, Path(os.path.relpath(image)), key=lambda path: len(str(path)))
    named = "" if name is None else f" --name {name}"
    return f"{program} submit digits --input {shlex.quote(f'pixels=@{image}')}{named}"


def settings_of(config: Path | None, user: int | None = None) -> Settings:
    """The settings in a file, or the defaults; with the demo where they have no model. Raises `InvalidConfig`.

    `user`: as of `load_settings`.
    """
    return with_demo(Settings() if config is None else load_settings(config, user), demo_folder() / "digits")


def described(config: Path | None, settings: Settings) -> str:
    """Which configuration it is, and whether the demo is served for want of a model."""
    if config is None:
        return "the built-in demo (no --config, and no config.toml in this folder)"
    return f"{config.absolute()}{' (no [[model]] in it: the built-in demo)' if _serves_demo(settings) else ''}"


def _serves_demo(settings: Settings) -> bool:
    return settings.model == settings_of(None).model


def _source(config: Path, settings: Settings, place: Callable[[Settings], Settings]) -> Source:
    """The file of a pool that began with these settings. `place` says where the pool is.

    The demo never takes the place of models that are served: a file without a model may be half written.
    """
    path = config.absolute()  # whatever becomes of the working directory
    read = settings_of if _serves_demo(settings) else load_settings
    return Source(str(config), lambda: place(read(path)))


def _at(endpoint: str, settings: Settings) -> Settings:
    return settings.model_copy(update={"pool": settings.pool.model_copy(update={"endpoint": endpoint})})


def _announce(plan: Plan) -> None:
    extra = about("starting", endpoint=plan.endpoint, pid=os.getpid(), version=version("tf-worker-pool"))
    log.info("pool at %s, pid %d", plan.endpoint, os.getpid(), extra=extra)
    for note in plan.world.here.notes:
        log.info("%s", note, extra=about("plan_note"))
    SlotLog(plan.devices, plan.placement).planned()


def _start_embedded(link: socket.socket, level: int) -> None:
    """Reads the configuration from the link, tells it the endpoint once ready, and lives until it closes."""
    request = _read(link)
    file = request["log"]

    def tell(text: str) -> None:
        if text:
            link.sendall(packed({"doing": text}))

    shown = tell if request["is_watched"] else None
    try:
        with logs.to_stderr(False, level, os.environ) if file is None else logs.to_file(Path(file), level, shown):
            _serve_embedded(link, request)
    finally:
        if _is_gone(link, request["pid"]):
            folder = Path(request["endpoint"].removeprefix("ipc://")).parent
            shutil.rmtree(folder, ignore_errors=True)  # nobody is left to do it


def _serve_embedded(link: socket.socket, request: dict[str, Any]) -> None:
    def place(settings: Settings) -> Settings:
        return settings if settings.pool.endpoint else _at(request["endpoint"], settings)

    config = request["config"]
    if isinstance(config, dict):
        settings = parse_settings(config, "start(…)", Path(request["base"]))
    else:
        settings = settings_of(None if config is None else Path(config))
    settings = place(settings)
    plan = make_plan(settings, os.environ)
    _announce(plan)

    def on_ready(serving: int, slots: int, unloadable: Sequence[str]) -> None:
        _tell_ready(plan, serving, slots, unloadable)
        ready = {
            "endpoint": plan.endpoint,
            "stop_within_s": plan.policy.longest_stop_s,
            "unloadable": list(unloadable),
        }
        with contextlib.suppress(OSError):  # the program died just now; the service sees the link close
            link.sendall(packed(ready))

    # The service manager, if there is one, asked for the program and not for its pool.
    source = Source("start(…)")
    if isinstance(config, str):
        source = _source(Path(config), settings, place)
    stopped = Service(plan, os.environ, on_ready, Notifier.of_nobody(), source).run(link.fileno())
    _tell_stopped(stopped)


def _is_gone(link: socket.socket, program: int) -> bool:
    """Whether the program has ended, or has dropped its pool without a word."""
    link.setblocking(False)
    try:
        closed = not link.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        closed = False
    except OSError:
        closed = True
    # Its descriptors close before its children are given away, so the parent alone would tell too late.
    return closed or os.getppid() != program


def _read(link: socket.socket) -> dict[str, Any]:
    link.settimeout(10.0)
    unpacker = msgpack.Unpacker(unicode_errors="surrogatepass")
    while True:
        chunk = link.recv(65536)
        if not chunk:
            raise CommandFailed("the program that started this pool ended")
        unpacker.feed(chunk)
        for request in unpacker:
            return dict(request)
