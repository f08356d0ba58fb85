"""`pool status`: what runs where, now."""

import contextlib
import sys
import time
from collections.abc import Sequence

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pool import Client
from pool.cli.cluster import ClusterCommand
from pool.cli.model_loads import model_loads, model_notes
from pool.cli.options import IMPATIENT, as_json, endpoints_option, print_json
from pool.cli.pools import one_pool, show_each
from pool.terminal import (
    Column,
    count_of,
    gibibytes,
    numeric,
    plain_console,
    short_uuid,
    show,
    size,
    span,
    styled_state,
    table,
)
from pool.wire.entries import entry_name, is_entry
from pool.wire.readiness import left_out
from pool.wire.records import Account, Failover, Gateway, Slot, Status

__all__ = ["status"]


@click.command(cls=ClusterCommand)
@click.option(
    "--watch",
    type=click.FloatRange(0.1),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show it again every 2 seconds, or as often as you say, until Ctrl-C.",
)
@endpoints_option
@as_json
def status(watch: float | None, endpoints: tuple[str, ...], as_json: bool) -> None:
    """Show each slot (device, process, state, models) and the load of each model.

    JOBS/S, P50, P99 and ERRORS of a model are those of the last minute. `pool top` shows the same, live. Of several
    pools, each is shown in turn; --watch is for one.
    """
    if watch is not None:
        _watch(one_pool(endpoints, "`pool status --watch`"), watch, as_json)
        return
    with Client(endpoints or None, **IMPATIENT) as client:
        show_each(
            client,
            Client.status,
            lambda found: show(_all(found)),
            (lambda found: found.to_dict()) if as_json else None,
        )


def _watch(endpoint: str | None, seconds: float, as_json: bool) -> None:
    with (
        Client(endpoint, **IMPATIENT) as client,
        contextlib.suppress(KeyboardInterrupt),
        _screen(as_json) as screen,
    ):
        while True:
            found = client.status()
            if as_json:
                print_json(found.to_dict(), indent=None)
            elif screen is None:
                show(_all(found))
            else:
                screen.update(_all(found), refresh=True)
            time.sleep(seconds)


def _screen(as_json: bool) -> contextlib.AbstractContextManager[Live | None]:
    """Whole, and nothing of it stays; None where no person looks at it."""
    if as_json or not sys.stdout.isatty():
        return contextlib.nullcontext()
    return Live(console=plain_console(), screen=True, auto_refresh=False, vertical_overflow="crop")


def _all(found: Status) -> Group:
    parts: list[RenderableType] = [_headline(found), _queue_line(found)]
    if found.gateway is not None:
        parts.append(_gateway_line(found.gateway))
    if found.restart_needed:
        parts.append(Text(found.restart_needed, "bold red"))
    parts += ["", _table(found.slots)]
    if found.models:
        parts += ["", model_loads(found.models)]
    if len(found.accounts) > 1:
        parts += ["", _accounts(found.accounts)]
    for slot in found.slots:
        if slot.reason:
            parts.append(Text.assemble(f"\nslot {slot.slot} is ", styled_state(slot.state), f": {slot.reason}"))
    for process in found.gateway.processes if found.gateway is not None else ():
        if process.reason:
            died = Text.assemble(f"\ngateway {process.number} is ", styled_state(process.state), f": {process.reason}")
            parts.append(died)
    notes = (
        *left_out(found.unloadable),
        *_failovers(found.failover, found.slots),
        *model_notes(found.models),
    )
    return Group(*parts, *(Text(f"\n{note}") for note in notes))


def _failovers(failover: Failover, slots: Sequence[Slot]) -> list[str]:
    """Of models whose device is gone, and what brings them home."""
    away = [f"model {each.model} is on {each.device} while {each.home} is gone" for each in failover.away]
    homes = {each.home for each in failover.away}
    gone = [str(slot.slot) for slot in slots if slot.device in homes and slot.state in ("FATAL", "STOPPED")]
    back = [f"when it is back, `pool restart {number}` tries slot {number} again" for number in gone]
    return [*away, *failover.stays, *back]


def _headline(found: Status) -> Text:
    about = f"pool {found.version} at {found.endpoint}, pid {found.pid}, up {span(found.uptime_s)}: "
    return Text(about).append_text(styled_state(found.state))


def _queue_line(found: Status) -> Text:
    queue = found.queue
    answered = ", ".join(f"{number:,} {outcome.replace('-', ' ')}" for outcome, number in found.answered.items())
    if not queue.jobs:
        return Text(f"no jobs now; answered: {answered or 'none yet'}")
    running = queue.jobs - queue.queued
    now = f"{queue.queued:,} queued, {running:,} running, {size(queue.bytes)}"
    return Text(f"{count_of(queue.jobs, 'job')}: {now}; answered: {answered or 'none yet'}")


def _gateway_line(gateway: Gateway) -> Text:
    """Each process with its state and pid."""
    line, restarts = Text(f"gateway at {gateway.url}: "), sum(each.restarts for each in gateway.processes)
    for process in gateway.processes:
        line.append_text(styled_state(process.state)).append(f" pid {process.pid or '–'}, ")
    return line.append(f"{count_of(restarts, 'restart')}")


def _table(slots: Sequence[Slot]) -> Table:
    return table(
        slots,
        Column("SLOT", lambda slot: str(slot.slot)),
        Column("DEVICE", lambda slot: slot.device),
        Column("UUID", lambda slot: "\n".join(map(short_uuid, slot.uuids)), below="DEVICE", optional=True),
        Column(">PID", lambda slot: str(slot.pid or "")),
        Column(">INC.", lambda slot: str(slot.incarnation), below=">PID"),
        Column("STATE", lambda slot: styled_state(slot.state)),
        Column("DOING", _doing, below="STATE"),
        Column(">JOBS", lambda slot: f"{slot.jobs_done:,}"),
        Column(">GPU MEM", _gpu_memory, optional=True),
        Column(">LOAD", _gpu_load, below=">GPU MEM", optional=True),
        Column(">HOST MEM", lambda slot: size(slot.memory_bytes), below=">JOBS"),
        Column("MODELS", _models),
    )


def _accounts(accounts: Sequence[Account]) -> Table:
    return table(
        accounts,
        Column("CLIENT", lambda each: each.name),
        Column(">CONNECTIONS", lambda each: f"{each.connections:,}"),
        Column(">JOBS NOW", lambda each: f"{each.jobs:,}"),
        Column(">BYTES NOW", lambda each: size(each.bytes)),
        Column(">JOBS", lambda each: f"{each.taken:,}"),
        Column(">DEVICE TIME", lambda each: f"{numeric(each.device_s)} s"),
    )


def _gpu_memory(slot: Slot) -> str:
    """Used by all processes there, and all that there is, as NVML tells it."""
    return "\n".join(
        gibibytes(gpu.used_bytes, gpu.total_bytes) if gpu.used_bytes is not None and gpu.total_bytes else "not told"
        for gpu in slot.gpus
    )


def _gpu_load(slot: Slot) -> str:
    """How much of the time a kernel runs, and how warm the GPU is."""
    return "\n".join(
        " ".join(
            [
                *([f"{gpu.utilization:.0%}"] if gpu.utilization is not None else []),
                *([f"{gpu.temperature_c} °C"] if gpu.temperature_c is not None else []),
            ]
        )
        for gpu in slot.gpus
    )


def _doing(slot: Slot) -> str:
    """And what those do that are beside it."""
    phrases = [str(slot.doing)] if slot.doing else []
    if (replacement := slot.replacement) is not None:
        doing = replacement.doing or replacement.state
        phrases.append(f"incarnation {replacement.incarnation} beside it: {doing}")
    if (standby := slot.standby) is not None:
        phrases.append(f"standby: {standby.doing or standby.state}")
    return "; ".join(phrases)


def _models(slot: Slot) -> str:
    versions = slot.versions
    return ", ".join(
        entry_name(name, versions[name]) if name in versions and not is_entry(name) else name for name in slot.models
    )
