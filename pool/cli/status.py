"""`pool status` and `pool models`: what runs where, and what can be asked of it."""

import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import click
from rich.console import Group
from rich.filesize import decimal
from rich.live import Live
from rich.text import Text

import pool
from pool.cli.screen import as_json, console, echo_json, span, table, with_client
from pool.log import printable
from pool.wire.records import ModelRecord, SlotRecord, Status
from pool.wire.signatures import Signature

EVERY_S = 1.0
STYLES = {"READY": "green", "FATAL": "red", "STUCK": "red", "BACKOFF": "red", "FAILED": "red"}  # else yellow


@click.command()
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
@as_json
@with_client
def status(client: "pool.Client", watch: bool, as_json: bool) -> None:
    """Show each slot (device, process, state, models) and the load of each model.

    RATE (jobs a second), P50 and P99 (run times) are of the last minute.
    """
    on = console()
    is_live = watch and not as_json and on.is_terminal
    with Live(console=on, screen=True, auto_refresh=False) if is_live else nullcontext() as screen:
        while True:
            record: Status = client.status()
            if as_json:
                echo_json(record)
            elif screen is not None:
                screen.update(drawn(record), refresh=True)
            else:
                on.print(drawn(record))
            if not watch:
                return
            time.sleep(EVERY_S)


def drawn(record: Status) -> Group:
    about, queue = record["pool"], record["queue"]
    head = Text.assemble("pool ", state(about), f", up {span(about['uptime_s'])}, pid {about['pid']}")
    head.append(f", release {about['release']}\n{printable(about['endpoint'])}\njobs: {queue['jobs']:,} of ")
    head.append(f"{queue['max_jobs']:,}, {decimal(queue['bytes'])} of {decimal(queue['max_bytes'])}; ")
    head.append(f"clients: {record['clients']}\n")
    if addresses := record["door"]["addresses"]:
        head.append(f"door: {', '.join(addresses)}{'' if record['door']['pid'] else ', which is down'}\n")
    columns = 7 if any(each["gpus"] for each in record["slots"]) else 6
    slots = [
        (each["slot"], each["device"], each["pid"] or "–", state(each), versioned(each), each["doing"], gpus(each))
        for each in record["slots"]
    ]
    loads = [
        (
            *(each["name"], state(each), f"{each['waiting']:,}", f"{each['running']:,}", f"{each['done']:,}"),
            *(f"{each['failed']:,}", f"{each['rate']:,.0f}", span(each["p50_s"]), span(each["p99_s"])),
        )
        for each in record["models"]
    ]
    titles = (">SLOT", "DEVICE", ">PID", "STATE", "MODELS", "NOW", "GPU")
    above = table(titles[:columns], [row[:columns] for row in slots])
    below = table(("MODEL", "STATE", ">WAIT", ">RUN", ">DONE", ">FAILED", ">RATE", ">P50", ">P99"), loads)
    return Group(head, above, "", below, *map(printable, troubles(record)))


def versioned(slot: SlotRecord) -> str:
    """Its models, with their versions."""
    return ", ".join(f"{name} {slot['versions'].get(name, [''])[0]}".rstrip() for name in slot["models"]) or "–"


def gpus(slot: SlotRecord) -> str:
    """Memory in use, load and temperature of each."""
    shown = []
    for gpu in slot["gpus"]:
        used, total = ("?" if size is None else decimal(size) for size in (gpu["used_bytes"], gpu["total_bytes"]))
        rest = [f"{each}{unit}" for each, unit in ((gpu["utilization"], " %"), (gpu["temperature"], " °C")) if each]
        shown.append(", ".join([f"{used} of {total}", *rest]))
    return "; ".join(shown)


def state(of: Mapping[str, Any]) -> Text:
    """Of a slot also for how long."""
    since = f" {span(of['for_s'])}" if "for_s" in of else ""
    return Text.assemble((of["state"], STYLES.get(of["state"], "yellow")), since)


def troubles(record: Status) -> Iterator[str]:
    for slot in record["slots"]:
        if slot["why"]:
            yield f"Slot {slot['slot']} is {slot['state']}: {slot['why']}"
        for name, why in slot["failed"].items():
            yield f"Slot {slot['slot']} cannot load {name}: {why}"
    yield from record["missing"].values()
    for change in record["changes"]:
        yield f"Change: {change['what']} is {change['progress']}{''.join(f'; {line}' for line in change['lines'][-1:])}"
    for model in record["models"]:
        if model["errors"]:
            named = ", ".join(f"{count:,} {error}" for error, count in model["errors"].items())
            lately = f"{sum(model['recent_errors'].values()):,} in the last minute"
            yield f"Jobs of {model['name']} failed: {named}; {lately}"
    if deaths := record["deaths"]:
        where = f"{span(deaths[-1]['ago_s'])} ago in slot {deaths[-1]['slot']}: {deaths[-1]['why']}"
        yield f"Workers that died lately: {len(deaths)}, the last one {where}"


@click.command()
@as_json
@with_client
def models(client: "pool.Client", as_json: bool) -> None:
    """Show each model with its signatures, and what these take and give."""
    records: list[ModelRecord] = client.models()
    if as_json:
        echo_json(records)
        return
    for record in records:
        traits = f"batching {record['batching']}{', stateful' if record['is_stateful'] else ''}"
        lines = [f"{record['name']}: {record['path']}"]
        lines += [f"{traits}, slots: {', '.join(map(str, record['slots'])) or 'none yet'}"]
        lines += [f"{name} cannot be served: {why}" for name, why in record["left_out"].items()]
        lines += [*record["notes"], *filter(None, [record["why"]])]
        signatures = {name: Signature.from_record(each) for name, each in record["signatures"].items()}
        rows = [
            (name, way, key, str(info), note(each, key))
            for name, each in signatures.items()
            for way, infos in (("in", each.inputs), ("out", each.outputs))
            for key, info in infos.items()
        ]
        console().print(*map(printable, lines), table(("SIGNATURE", "", "NAME", "TENSOR", "NOTE"), rows), "", sep="\n")


@click.command()
@click.argument("model")
@click.option("--signature", metavar="NAME", default="", help="Default: serving_default, or the only one.")
@as_json
@with_client
def placement(client: "pool.Client", model: str, signature: str, as_json: bool) -> None:
    """Show on which devices of a worker the operations of MODEL run: it runs once on zeros, and is traced."""
    record = client.placement(model, signature)
    if as_json:
        echo_json(record)
        return
    click.echo(printable(f"{model} in slot {record['slot']} on {record['device']}"))
    rows = [
        (each["device"], each["ops"], span(each["seconds"]), ", ".join(each["names"][:5])) for each in record["devices"]
    ]
    console().print(table(("DEVICE", ">OPS", ">TIME", "SLOWEST"), rows))


def note(signature: Signature, name: str) -> str:
    """Of an output, whether jobs that ask for it share runs."""
    verdict = signature.verdicts.get(name)
    if verdict is None:
        return "has a default" if name in signature.defaults else ""
    return f"jobs run alone: {verdict}" if verdict else "jobs are joined"
