"""`pool bench`: how fast a running pool answers the jobs of this one process."""

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import click

import pool
from pool.cli.screen import as_json, echo_json, endpoint_option, span
from pool.errors import PoolError

WARM_UP_S = 1.0
SHARES = {"p50_s": 0.5, "p90_s": 0.9, "p99_s": 0.99, "max_s": 1.0}
ABOVE_0 = click.FloatRange(0, 100_000, min_open=True)


@click.command()
@click.argument("model")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="As of `pool submit`. Default: made up.")
@click.option("--signature", metavar="NAME", help="Default: serving_default, or the only one.")
@click.option("--rows", type=click.IntRange(1), default=1, show_default=True, help="Of a job that is made up.")
@click.option("--in-flight", type=click.IntRange(1), default=64, show_default=True, help="Jobs at a time.")
@click.option("--rate", type=ABOVE_0, metavar="JOBS_PER_S", help="Send so many, whatever is in flight.")
@click.option("--seconds", type=ABOVE_0, default=10.0, show_default=True)
@as_json
@endpoint_option
def bench(
    model: str, inputs: tuple[str, ...], signature: str, rows: int, as_json: bool, endpoint: str | None, **load: Any
) -> None:
    """Measure how fast a running pool answers jobs of MODEL.

    With --rate, a job's time counts from the instant it was due, even if it was sent later.
    """
    from pool.cli.values import made_up, read_inputs, signature_of

    with pool.Client(endpoint) as client:
        known = signature_of(client, model, signature)
        values = read_inputs(inputs, known.inputs, sys.stdin.buffer) if inputs else made_up(known, rows)
        client.run(model, values, signature=signature)  # raises what is wrong with them

    async def measured() -> tuple[list[float], Counter[str], float]:
        async with pool.AsyncClient(endpoint) as client:
            submit = partial(client.submit, model, values, signature=signature)
            await drive(submit, **load | {"seconds": WARM_UP_S})
            return await drive(submit, **load)

    times, errors, took_s = asyncio.run(measured())
    if not times:
        raise PoolError(f"no job was answered: {dict(errors)}")
    figures = {name: sorted(times)[math.ceil(share * len(times)) - 1] for name, share in SHARES.items()}
    rate, shown = len(times) / took_s, ", ".join(f"{name[:-2]} {span(value)}" for name, value in figures.items())
    if as_json:
        echo_json({"jobs_per_s": rate, **figures, "errors": errors})
    else:
        click.echo(f"{rate:,.0f} jobs/s; {shown}; errors: {dict(errors) or 'none'}")


async def drive(
    submit: Callable[[], Awaitable[object]], seconds: float, in_flight: int, rate: float | None
) -> tuple[list[float], Counter[str], float]:
    """Sends jobs for so long, at a rate or as others end. When all have: how long each took, errors, and the time."""
    times, errors, began = list[float](), Counter[str](), time.monotonic()

    async def one(due: float) -> None:
        try:
            await submit()
            times.append(time.monotonic() - due)
        except PoolError as error:
            errors[type(error).__name__] += 1

    async def in_turn() -> None:
        while (now := time.monotonic()) < began + seconds:
            await one(now)

    tasks = [asyncio.ensure_future(in_turn()) for _ in range(0 if rate else in_flight)]
    while rate and (due := began + len(tasks) / rate) < began + seconds:
        await asyncio.sleep(due - time.monotonic())
        tasks.append(asyncio.ensure_future(one(due)))
    await asyncio.gather(*tasks)
    return times, errors, time.monotonic() - began
