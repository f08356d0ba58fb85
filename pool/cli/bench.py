"""`pool bench`: how fast a running pool answers jobs of one model."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import click

import pool
from pool.cli.screen import Texts, as_json, console, echo_json, endpoint_option, span, table
from pool.errors import PoolError

ALONE_S = 1.0
SHARES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99, "max_s": 1.0}


@click.command()
@click.argument("model")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="As of `pool submit`. Default: made up.")
@click.option("--signature", metavar="NAME", help="Default: serving_default, or the only one.")
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Of a job that is made up.")
@click.option("--in-flight", type=click.IntRange(1), default=64, show_default=True, help="Jobs at a time.")
@click.option("--rate", type=click.FloatRange(1), metavar="JOBS_PER_S", help="Send so many, whatever is in flight.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=10.0, show_default=True)
@as_json
@endpoint_option
def bench(
    model: str, inputs: Texts, signature: str | None, rows: int, as_json: bool, endpoint: str | None, **load: Any
) -> None:
    """Measure how fast a running pool answers jobs of MODEL.

    First one job at a time, then many. RUN is what of P50 is the model's own time: what Session.run takes there. With
    --rate, a job's time counts from the instant when it was due, even if it was sent later.
    """
    from pool.cli.values import made_up, read_inputs
    from pool.client.inputs import Request, chosen, signatures_of

    async def measured() -> list[dict[str, Any]]:
        async with pool.AsyncClient(endpoint) as client:
            known = chosen(Request(model, signature), signatures_of(await client.model(model)))
            values = read_inputs(inputs, known.inputs) if inputs else made_up(known, rows)
            submit = partial(client.submit, model, values, signature=signature)
            await submit()  # raises what is wrong with them
            alone = await drive(submit, ALONE_S, 1, None)
            return [alone, await drive(submit, **load)]

    loads = ("one at a time", f"{load['rate']:g} a second" if load["rate"] else f"{load['in_flight']} in flight")
    click.echo(f"{loads[0]} for {ALONE_S:g} s, then {loads[1]} for {load['seconds']:g} s …", err=True)
    found = asyncio.run(measured())
    if as_json:
        echo_json(dict(zip(("alone", "loaded"), found, strict=True)))
        return
    rows_shown = [
        (text, f"{each['jobs_per_s']:,.0f}", *(span(each[name]) for name in (*SHARES, "run_s")), each["errors"].total())
        for text, each in zip(loads, found, strict=True)
    ]
    console().print(table(("LOAD", ">JOBS/S", ">P50", ">P90", ">P99", ">MAX", ">RUN", ">ERRORS"), rows_shown))


async def drive(
    submit: Callable[[], Awaitable["pool.Result"]], seconds: float, in_flight: int, rate: float | None
) -> dict[str, Any]:
    """Sends jobs for so long, at a rate or as others end, and waits for all. Raises `PoolError` if none is answered."""
    answered: list[tuple[float, float]] = []  # seconds since a job was due, and of its run
    failed, began = Counter[str](), time.monotonic()

    async def one(due: float) -> None:
        try:
            result = await submit()
            answered.append((time.monotonic() - due, result.timeline.run_s))
        except PoolError as error:
            failed[type(error).__name__] += 1

    async def in_turn() -> None:
        while (now := time.monotonic()) < began + seconds:
            await one(now)

    tasks = [asyncio.ensure_future(in_turn()) for _ in range(0 if rate else in_flight)]
    while rate and (due := began + len(tasks) / rate) < began + seconds:
        await asyncio.sleep(due - time.monotonic())
        tasks.append(asyncio.ensure_future(one(due)))
    await asyncio.gather(*tasks)
    took_s = time.monotonic() - began
    if not answered:
        raise PoolError(f"no job was answered: {dict(failed)}")
    answered.sort()
    places = {name: int(share * (len(answered) - 1)) for name, share in SHARES.items()}
    figures = {name: answered[place][0] for name, place in places.items()}
    run_s = sorted(run for _, run in answered)[places["p50_s"]]
    return {"jobs_per_s": len(answered) / took_s, **figures, "run_s": run_s, "errors": failed}
