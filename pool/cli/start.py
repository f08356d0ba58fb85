"""`pool start`: the supervisor in the foreground."""

import contextlib
import logging
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

import click
import msgpack

from pool import logs
from pool.cli.options import config_option
from pool.demo import demo_folder
from pool.errors import InvalidConfig, PoolError
from pool.plan import Plan, make_plan
from pool.service import Service
from pool.systemd.notify import Notifier

__all__ = ["settings_of", "start"]

log = logging.getLogger("pool")

NO_SLOT_LEFT = 3  # the exit status when every slot is FATAL


@click.command()
@config_option
@click.option("--verbose", is_flag=True, help="Log more.")
@click.option("--embedded", type=int, hidden=True, help="A socket to the program that this pool belongs to.")
def start(config: Path | None, verbose: bool, embedded: int | None) -> None:
    """Serve until Ctrl-C, `pool stop` or SIGTERM.

    Without --config it serves the built-in demo model.
    """
    logs.configure(verbose)
    if embedded is not None:
        _start_embedded(socket.socket(fileno=embedded))
        return
    plan = make_plan(settings_of(config), os.environ)
    _announce(plan, config)

    def on_ready(serving: int, slots: int) -> None:
        log.info("ready: %d of %d slots serve at %s", serving, slots, plan.endpoint)
        if config is None:
            log.info("next, in another terminal: %s", _next_command())

    notifier = Notifier.from_environ(os.environ, os.getpid())
    stopped = Service(plan, os.environ, on_ready, notifier).run()
    if stopped.failed:
        _fail(stopped.reason)
    log.info("stopped: %s", stopped.reason)


def _fail(reason: str) -> NoReturn:
    click.echo(f"pool: {reason}", err=True)
    sys.exit(NO_SLOT_LEFT)


def _next_command() -> str:
    """A line that works when it is typed in the same folder, whether or not the environment is activated."""
    found = shutil.which("pool")
    if found is not None and Path(found).resolve() == Path(sys.argv[0]).resolve():
        program = "pool"
    elif Path(sys.argv[0]).name == "pool":
        program = sys.argv[0]
    else:
        program = f"{sys.executable} -m pool"
    image = demo_folder() / "seven.json"
    image = min(image, Path(os.path.relpath(image)), key=lambda path: len(str(path)))
    return f"{program} submit digits --input pixels=@{image}"


def settings_of(config: Path | None) -> Any:
    """The settings in a file, or the built-in ones. Raises `InvalidConfig`, also where pydantic is missing."""
    try:
        from pool.config import builtin_settings, load_settings
    except ImportError as error:
        raise InvalidConfig(f"{error}: this needs the extra: pip install 'tf-worker-pool[worker]'") from None
    return builtin_settings(demo_folder() / "digits") if config is None else load_settings(config)


def _announce(plan: Plan, config: Path | None) -> None:
    log.info("pool at %s, pid %d", plan.endpoint, os.getpid())
    if config is None:
        log.info("no --config: serving the built-in demo model `digits`")
    for note in plan.notes:
        log.info("%s", note)
    for slot, (device, models) in enumerate(zip(plan.devices, plan.placement, strict=True)):
        named = f" ({device.name})" if device.kind == "gpu" else ""
        log.info("slot %d is %s%s: %s", slot, device.label, named, ", ".join(models) or "no model is placed here")


def _start_embedded(link: socket.socket) -> None:
    """Reads the configuration from the link, tells it the endpoint once ready, and lives until it closes."""
    request = _read(link)
    try:
        _serve_embedded(link, request)
    finally:
        if _is_gone(link, request["pid"]):
            folder = Path(request["endpoint"].removeprefix("ipc://")).parent
            shutil.rmtree(folder, ignore_errors=True)  # nobody is left to do it


def _serve_embedded(link: socket.socket, request: dict[str, Any]) -> None:
    from pool.config import builtin_settings, load_settings, parse_settings

    config = request["config"]
    if config is None:
        settings = builtin_settings(demo_folder() / "digits")
    elif isinstance(config, str):
        settings = load_settings(Path(config))
    else:
        settings = parse_settings(config, "start(…)", Path(request["base"]))
    if not settings.pool.endpoint:
        section = settings.pool.model_copy(update={"endpoint": request["endpoint"]})
        settings = settings.model_copy(update={"pool": section})
    plan = make_plan(settings, os.environ)
    _announce(plan, None if config is None else Path("start(…)"))

    def on_ready(_serving: int, _slots: int) -> None:
        ready = {"endpoint": plan.endpoint, "stop_within_s": plan.policy.longest_stop_s}
        with contextlib.suppress(OSError):  # the program died just now; the service sees the link close
            link.sendall(msgpack.packb(ready))

    # The service manager, if there is one, asked for the program and not for its pool.
    stopped = Service(plan, os.environ, on_ready, Notifier.of_nobody()).run(link.fileno())
    if stopped.failed:
        _fail(stopped.reason)


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
    unpacker = msgpack.Unpacker()
    while True:
        chunk = link.recv(65536)
        if not chunk:
            raise PoolError("the program that started this pool went away")
        unpacker.feed(chunk)
        for request in unpacker:
            return dict(request)
