"""From a configuration to a running pool, and to its end."""

import logging
import os
import resource
import signal
import time
from pathlib import Path

from pool.config import Config
from pool.devices import named, slots
from pool.endpoint import EndpointLock, admit, ipc_path, own, prepare_folder
from pool.errors import InvalidConfig
from pool.log import setup
from pool.serve.service import Service
from pool.systemd import Notifier

__all__ = ["run"]

FEWEST_DESCRIPTORS = 1024

log = logging.getLogger("pool.serve")


def run(config: Config, embedded: int | None = None) -> int:
    """Until the pool has stopped; the exit status. `embedded`: a descriptor whose end of file stops the pool.

    Raises `InvalidConfig`, and `PoolError` where another pool holds the endpoint.
    """
    endpoint = config.pool.endpoint or own(os.environ, os.getuid())
    path = ipc_path(endpoint)
    raise_descriptors()
    devices = slots(config.pool.devices, os.environ)
    models = {each.name: named(each.devices, devices) for each in config.model}
    seats = [
        (device, [name for name, slots_of in models.items() if number in slots_of])
        for number, device in enumerate(devices)
    ]
    prepare_folder(path, config.pool.group)
    lock = EndpointLock(path)
    kept = setup(os.environ)
    sockets = (path, path.with_name(f"{path.name}.link"))
    try:
        service = Service(config, [seat for seat in seats if seat[1]], path, state_folder(config), kept)
        if config.pool.group:
            admit(config.pool.group, *sockets)
        else:
            path.chmod(0o600)
        try:
            conduct(service, embedded)
            return 0
        except Exception:
            log.exception("a fault of the pool itself ends it")
            return 1
        finally:
            service.close()
    finally:
        lock.release(*sockets)
        kept.close()


def conduct(service: Service, embedded: int | None) -> None:
    """Signals, systemd and whoever embeds the pool, around the loop."""
    notifier = Notifier(os.environ, os.getpid())
    caught: list[int] = []
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and a shell's background jobs say so
            signal.signal(number, lambda number, _: caught.append(number))

    def signalled() -> None:
        os.read(reader, 64)
        while caught:
            number = caught.pop()
            if service.is_stopping:
                log.warning("a second %s: the pool ends at once", signal.Signals(number).name)
                service.fleet.kill_all()
            service.stop()

    def left() -> None:
        service.forget(embedded if embedded is not None else -1)
        service.stop()

    told = [""]

    def turned(now: float) -> float:
        state = service.questions.state
        if state != told[0]:
            ready = sum(bool(seat.worker and seat.worker.core) for seat in service.fleet.seats)
            line = f"{ready} of {len(service.fleet.seats)} slots at {service.endpoint}"
            is_first = told[0] in ("", "STARTING")
            told[0] = state
            if state in ("READY", "DEGRADED"):
                log.info("%s: %s", "ready" if is_first or state == "READY" else "degraded", line)
                notifier.tell(line, "READY=1" if is_first else "")
            elif state == "DRAINING":
                notifier.tell("stopping", "STOPPING=1")
        notifier.alive(now)
        return notifier.next_alive

    service.watch(reader, signalled)
    if embedded is not None:
        service.watch(embedded, left)
    service.turned = turned
    log.info("starting %d slots at %s", len(service.fleet.seats), service.endpoint)
    service.run()
    log.info("stopped after %.0f s", time.monotonic() - service.started)


def raise_descriptors() -> None:
    """libzmq ends the process where it finds no descriptor, so the pool takes all that it may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    if most < FEWEST_DESCRIPTORS:
        raise InvalidConfig(f"the limit of open files is {most}; raise it to {FEWEST_DESCRIPTORS}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def state_folder(config: Config) -> Path:
    """`[pool] state`, else systemd's folder for the service, else the user's."""
    if config.pool.state:
        return Path(config.pool.state)
    if given := os.environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "pool"
