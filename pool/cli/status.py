"""`pool status`: what runs where, now."""

from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from pool import Client
from pool.cli.model_loads import model_loads, model_notes
from pool.cli.options import IMPATIENT, as_json, endpoint_option, print_json
from pool.terminal import Column, count_of, short_uuid, show, size, span, styled_state, table
from pool.wire.entries import entry_name, is_entry
from pool.wire.records import Failover, Slot, Status

__all__ = ["status"]


@click.command()
@endpoint_option
@as_json
def status(endpoint: str | None, as_json: bool) -> None:
    """Show each slot (device, process, state, models) and the queue of each model."""
    with Client(endpoint, **IMPATIENT) as client:
        found = client.status()
    if as_json:
        print_json(found.to_dict())
        return
    show(_headline(found))
    show(_queue_line(found))
    if found.restart_needed:
        show(Text(found.restart_needed, "bold red"))
    click.echo()
    show(_table(found.slots))
    if found.models:
        click.echo()
        show(model_loads(found.models))
    for slot in found.slots:
        if slot.reason:
            show(Text.assemble(f"\nslot {slot.slot} is ", styled_state(slot.state), f": {slot.reason}"))
    for note in (*_failovers(found.failover, found.slots), *model_notes(found.models)):
        show(Text(f"\n{note}"))


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
        Column(">HOST MEM", lambda slot: size(slot.memory_bytes), below=">JOBS"),
        Column(">GPU MEM", _gpu_memory, optional=True),
        Column(">LOAD", _gpu_load, below=">GPU MEM", optional=True),
        Column("MODELS", _models),
    )


def _gpu_memory(slot: Slot) -> str:
    """Used by all processes there, and all that there is, as NVML tells it."""
    return "\n".join(
        f"{gpu.used_bytes / 2**30:.3g}/{gpu.total_bytes / 2**30:.3g} GiB"
        if gpu.used_bytes is not None and gpu.total_bytes
        else "not told"
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
