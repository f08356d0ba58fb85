"""From a configuration to a running pool, and to its end."""

import logging
import math
import os
import resource
import signal
import time
from pathlib import Path
from selectors import EVENT_READ

from pool.config import Config
from pool.devices import slots
from pool.devices.monitor import Monitor
from pool.endpoint import admit, hold, ipc_path, own, prepare_folder
from pool.errors import InvalidConfig
from pool.log import Log
from pool.plan.facts import Facts, completed, rested
from pool.plan.footprints import NAME, Footprints
from pool.plan.wanted import Plan, planned
from pool.serve.service import Service

APART_S = 0.3  # a terminal that closes, and who passes Ctrl-C on, send two signals for one
FEWEST_DESCRIPTORS, MOST_DESCRIPTORS = 4096, 1 << 16

log = logging.getLogger("pool.serve")


def run(config: Config, source: Path | None, embedded: int | None = None) -> int:
    """Until the pool has stopped; the exit status. `source`: the file that the configuration is of.

    `embedded`: a descriptor whose end of file stops the pool. Raises `InvalidConfig`, and `PoolError` where another
    pool holds the endpoint.
    """
    # Whoever embeds a pool has named its endpoint in the environment, and looks for it there.
    endpoint = (config.pool.endpoint if embedded is None else None) or own(os.environ, os.getuid())
    path = ipc_path(endpoint)
    raise_descriptors()
    state, monitor = state_folder(config), Monitor()
    plan = planned_at_start(config, monitor)
    prepare_folder(path, config.pool.group)
    hold(path)
    kept = Log(2, os.environ)
    sockets = (path, path.with_name(f"{path.name}.link"))
    try:
        service = Service(plan, source, path, state, kept, monitor)
        if config.pool.group:
            admit(config.pool.group, *sockets)
        try:
            conduct(service, embedded)
            return 0
        except Exception:
            log.exception("a fault of the pool itself ends it")
            return 1
        finally:
            service.close()
    finally:
        for each in sockets:
            each.unlink(missing_ok=True)
        kept.close()


def planned_at_start(config: Config, monitor: Monitor) -> Plan:
    """What a pool would run where. Starts the monitor if GPUs are wanted. Raises `InvalidConfig`."""
    sections = [each.model_dump() for each in config.device]
    devices = slots(config.pool.devices, os.environ, monitor, config.pool.workers_per_device, sections)
    footprints = Footprints(state_folder(config) / NAME)
    return planned(completed(Facts(config, devices, rested(config, {})), footprints), {}, ())


def conduct(service: Service, embedded: int | None) -> None:
    """Signals, and whoever embeds the pool, around the loop."""
    began = time.monotonic()
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and a shell's background jobs say so
            signal.signal(number, lambda *_: None)

    first = math.inf

    def signalled() -> None:
        nonlocal first
        now = time.monotonic()
        for number in os.read(reader, 64):
            if now - first > APART_S:
                log.warning("a second %s: the pool ends at once", signal.Signals(number).name)
                service.fleet.kill_all()
            first = min(first, now)
            service.stop()

    def left() -> None:
        service.sources.unregister(embedded or 0)
        service.stop()

    service.sources.register(reader, EVENT_READ, signalled)
    if embedded is not None:
        service.sources.register(embedded, EVENT_READ, left)
    log.info("starting %d slots at %s", len(service.fleet.plan.slots), service.endpoint)
    service.run()
    log.info("stopped after %.0f s", time.monotonic() - began)


def raise_descriptors() -> None:
    """libzmq ends the process where it finds no descriptor, so the pool takes many, and keeps a reserve for it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = min(hard, MOST_DESCRIPTORS) if hard != resource.RLIM_INFINITY else MOST_DESCRIPTORS
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
