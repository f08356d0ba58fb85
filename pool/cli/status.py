"""`pool status` and `pool models`: what runs where, and what can be asked of it."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from pool.cli.asking import as_json, connect, echo_json, endpoint_option
from pool.cli.screen import console, counted, printable, show, size, span, table
from pool.wire.signatures import Signature

__all__ = ["models", "status"]

EVERY_S = 1.0
STYLES = {"READY": "green", "FATAL": "red", "STUCK": "red", "BACKOFF": "red", "FAILED": "red"}  # else yellow
Record = Mapping[str, Any]


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@as_json
@endpoint_option
def status(watch: bool, as_json: bool, endpoint: str | None) -> None:
    """Show each slot (device, process, state, models) and the load of each model.

    RATE is in jobs a second over the last ten seconds; P50 and P99 are run times.
    """
    with connect(endpoint) as client:
        is_live = watch and not as_json and sys.stdout.isatty()
        with Live(console=console(), screen=True, auto_refresh=False) if is_live else nullcontext() as screen:
            while True:
                record = client.status()
                if screen is not None:
                    screen.update(drawn(record), refresh=True)
                else:
                    echo_json(record) if as_json else show(drawn(record))
                if not watch:
                    return
                time.sleep(EVERY_S)


def drawn(record: Record) -> Group:
    pool, queue = record["pool"], record["queue"]
    head = Text.assemble("pool ", state(pool), f", up {span(pool['uptime_s'])}")
    head.append(f", pid {pool['pid']}, release {pool['release']}\n{printable(pool['endpoint'])}\n")
    head.append(f"{queue['jobs']:,} of {counted(queue['max_jobs'], 'job')}, {size(queue['bytes'])} of ")
    head.append(f"{size(queue['max_bytes'])}, {counted(record['clients'], 'client')}\n")
    slots = [
        (each["slot"], each["device"], each["pid"] or "–", state(each), ", ".join(each["models"]) or "–", each["doing"])
        for each in record["slots"]
    ]
    loads = [
        (
            *(each["name"], state(each)),
            *(f"{each[key]:,.0f}" for key in ("waiting", "running", "done", "failed", "rate")),
            *(span(each["p50_s"]), span(each["p99_s"])),
        )
        for each in record["models"]
    ]
    told = [Text(f"\n{lines}")] if (lines := "\n".join(map(printable, troubles(record)))) else []
    on_slots = table((">SLOT", "DEVICE", ">PID", "STATE", "MODELS", "NOW"), slots)
    titles = ("MODEL", "STATE", ">WAIT", ">RUN", ">DONE", ">FAILED", ">RATE", ">P50", ">P99")
    return Group(head, on_slots, "", table(titles, loads), *told)


def state(of: Record) -> Text:
    """Of a slot also for how long."""
    since = f" {span(of['for_s'])}" if "for_s" in of else ""
    return Text.assemble((of["state"], STYLES.get(of["state"], "yellow")), since)


def troubles(record: Record) -> Iterator[str]:
    for slot in record["slots"]:
        if slot["why"]:
            yield f"Slot {slot['slot']} is {slot['state']}: {slot['why']}"
        for name, why in slot["failed"].items():
            yield f"Slot {slot['slot']} cannot load {name}: {why}"
    for model in record["models"]:
        if model["why"] and not any(model["name"] in slot["failed"] for slot in record["slots"]):
            yield f"Model {model['name']} is {model['state']}: {model['why']}"
        if errors := model.get("errors"):
            named = ", ".join(f"{count:,} {error}" for error, count in errors.items())
            yield f"Jobs of {model['name']} failed: {named}"
    if deaths := record.get("deaths"):
        yield f"{counted(len(deaths), 'worker')} died lately; the last one in {deaths[-1]}"


@click.command()
@as_json
@endpoint_option
def models(as_json: bool, endpoint: str | None) -> None:
    """Show each model with its signatures, and what these take and give."""
    with connect(endpoint) as client:
        records = client.models()
    if as_json:
        echo_json(records)
        return
    for number, record in enumerate(records):
        if number:
            click.echo()
        show(described(record))


def described(record: Record) -> Group:
    slots = ", ".join(map(str, record["slots"]))
    head = Text.assemble((printable(record["name"]), "bold"), f"  {f'in slot {slots}' if slots else 'in no slot yet'}")
    head.append(f", batching {record['batching']}" + (", stateful" if record["is_stateful"] else ""))
    head.append(f"\n{printable(record['path'])}")
    rows: list[tuple[str, str, str, str]] = []
    for name, each in record["signatures"].items():
        signature = Signature.from_record(each)
        rows += [
            (name if not number else "", "in", key, f"{info}{', has a default' if key in signature.defaults else ''}")
            for number, (key, info) in enumerate(signature.inputs.items())
        ]
        rows += [("" if signature.inputs else name, "out", key, str(info)) for key, info in signature.outputs.items()]
    lines = [f"{name} cannot be served: {why}" for name, why in record["left_out"].items()]
    lines += [*record["notes"], *([record["why"]] if record.get("why") else [])]
    signatures = [table(("SIGNATURE", "", "NAME", "TENSOR"), rows)] if rows else []
    return Group(head, *signatures, *(Text(printable(line)) for line in lines))
