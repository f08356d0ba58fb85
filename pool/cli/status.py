"""`pool status`: what runs where, now."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from pool.cli.model_loads import model_loads, model_notes
from pool.cli.options import as_json, endpoint_option
from pool.client.client import Client
from pool.terminal import count_of, fitting, new_table, short_uuid, show, size, span, styled_state
from pool.wire.entries import entry_name, is_entry

__all__ = ["status"]

Slot = Mapping[str, Any]

CONNECT_S = 2.0  # a question about what runs is not worth a longer wait for it


@click.command()
@endpoint_option
@as_json
def status(endpoint: str | None, as_json: bool) -> None:
    """What each slot is and does: device, process, state, models; and what waits for each model."""
    with Client(endpoint, connect_timeout=CONNECT_S, reconnect_timeout=0.0) as client:
        found = client.status()
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    show(_headline(found))
    show(_queue_line(found))
    if found.get("restart_needed"):
        show(Text(found["restart_needed"], "bold red"))
    click.echo()
    slots: Sequence[Slot] = found["slots"]
    show(fitting(_wide(slots), lambda: _narrow(slots)))
    models = found.get("models")
    if models:
        click.echo()
        show(model_loads(models))
    for slot in slots:
        if slot["reason"]:
            show(Text.assemble(f"\nslot {slot['slot']} is ", styled_state(slot["state"]), f": {slot['reason']}"))
    for note in (*_moved(found.get("moved"), slots), *model_notes(models or ())):
        show(Text(f"\n{note}"))


def _moved(moved: Mapping[str, Any] | None, slots: Sequence[Slot]) -> list[str]:
    """Of models whose device is gone, and what brings them home."""
    if not moved:
        return []
    away = [f"model {each['model']} is on {each['to']} while {each['from']} is gone" for each in moved["away"]]
    homes = {each["from"] for each in moved["away"]}
    gone = [str(slot["slot"]) for slot in slots if slot["device"] in homes and slot["state"] in ("FATAL", "STOPPED")]
    back = [f"when it is back, `pool restart {number}` tries slot {number} again" for number in gone]
    return [*away, *moved["stays"], *back]


def _headline(found: Mapping[str, Any]) -> Text:
    about = f"pool {found['version']} at {found['endpoint']}, pid {found['pid']}, up {span(found['uptime_s'])}: "
    return Text(about).append_text(styled_state(found["state"]))


def _queue_line(found: Mapping[str, Any]) -> Text:
    queue = found["queue"]
    answered = ", ".join(f"{number:,} {outcome.replace('-', ' ')}" for outcome, number in found["answered"].items())
    if not queue["jobs"]:
        return Text(f"no job now; answered: {answered or 'none yet'}")
    running = queue["jobs"] - queue["queued"]
    now = f"{queue['queued']:,} queued, {running:,} running, {size(queue['bytes'])}"
    return Text(f"{count_of(queue['jobs'], 'job')}: {now}; answered: {answered or 'none yet'}")


def _wide(slots: Sequence[Slot]) -> Table:
    uuids = any(slot["uuids"] for slot in slots)
    headings = ["SLOT", "DEVICE", "UUID", ">PID", ">INC.", "STATE", "DOING", ">JOBS", ">MEMORY", "MODELS"]
    table = new_table([heading for heading in headings if uuids or heading != "UUID"])
    for slot in slots:
        table.add_row(
            str(slot["slot"]),
            slot["device"],
            *([_uuids(slot, ",") or "–"] if uuids else []),
            _pid(slot),
            str(slot["incarnation"]),
            styled_state(slot["state"]),
            _doing(slot) or "–",
            f"{slot['jobs_done']:,}",
            size(slot["memory_bytes"]),
            _models(slot),
        )
    return table


def _narrow(slots: Sequence[Slot]) -> Table:
    """Two lines a slot: related facts stand over each other."""
    uuids = any(slot["uuids"] for slot in slots)
    table = new_table(
        ["SLOT\n", "DEVICE\nuuid" if uuids else "DEVICE\n", ">PID\ninc.", "STATE\ndoing", ">JOBS\nmemory", "MODELS\n"]
    )
    for slot in slots:
        table.add_row(
            str(slot["slot"]),
            f"{slot['device']}\n{_uuids(slot, chr(10))}".strip(),
            f"{_pid(slot)}\n{slot['incarnation']}",
            styled_state(slot["state"]).append(f"\n{doing}" if (doing := _doing(slot)) else "", "not bold default"),
            f"{slot['jobs_done']:,}\n{size(slot['memory_bytes'])}",
            _models(slot),
        )
    return table


def _uuids(slot: Slot, separator: str) -> str:
    return separator.join(map(short_uuid, slot["uuids"]))


def _doing(slot: Slot) -> str:
    """And what those do that are beside it."""
    phrases = [str(slot["doing"])] if slot["doing"] else []
    if (successor := slot["successor"]) is not None:
        doing = successor["doing"] or successor["state"]
        phrases.append(f"incarnation {successor['incarnation']} beside it: {doing}")
    if (standby := slot["standby"]) is not None:
        phrases.append(f"standby: {standby['doing'] or standby['state']}")
    return "; ".join(phrases)


def _pid(slot: Slot) -> str:
    return "–" if slot["pid"] is None else str(slot["pid"])


def _models(slot: Slot) -> str:
    versions = slot.get("versions", {})
    return (
        ", ".join(
            entry_name(name, versions[name]) if name in versions and not is_entry(name) else name
            for name in slot["models"]
        )
        or "–"
    )
