"""What `pool bench` submits: inputs as the command line gives them, recorded ones, or made ones that fit."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool.cli.bench_job import BenchJob
from pool.client.client import Client
from pool.errors import PoolError

__all__ = ["Feed", "bench_job"]

LOADING_S = 120.0


@dataclass(frozen=True, slots=True)
class Feed:
    """The options that say what the jobs are made of."""

    inputs: tuple[str, ...] = ()
    input_data: Path | None = None
    shapes: tuple[str, ...] = ()
    zero_data: bool = False
    string_length: int | None = None
    rows: int = 1
    seed: int = 0


def bench_job(client: Client, model: str, signature: str | None, feed: Feed) -> BenchJob:
    """Raises the pool's own error where it would, and `BadValue`."""
    # numpy comes with the first job; a mistake in the options does not wait for it.
    from pool.cli.signature import inputs_of
    from pool.client.payload import to_inputs

    found = inputs_of(client, model, signature, LOADING_S)
    if found is None:
        client.run(model, {}, signature=signature)
        raise PoolError(f"model {model} changed while it was looked up")
    name, specs = found
    jobs = _jobs(feed, specs)
    # As arrays already: what the sender does once it need not do for each job.
    inputs = tuple(to_inputs(model, feeds) for feeds in jobs)
    from pool.cli.random_inputs import rows_of

    return BenchJob(model, name, inputs, rows_of(specs, jobs[0]))


def _jobs(feed: Feed, specs: Mapping[str, Any]) -> list[dict[str, object]]:
    from pool.cli.input_data import read_input_data
    from pool.cli.random_inputs import STRING_LENGTH, Making, made_inputs, repeated, shapes_of
    from pool.cli.values import read_inputs

    if feed.input_data is not None:
        return read_input_data(feed.input_data, specs, feed.rows)
    given = read_inputs(feed.inputs, specs, sys.stdin.buffer)
    feeds: dict[str, object] = {key: repeated(value, specs[key], feed.rows) for key, value in given.items()}
    length = STRING_LENGTH if feed.string_length is None else feed.string_length
    making = Making(feed.rows, feed.seed, feed.zero_data, length, shapes_of(feed.shapes))
    feeds.update(made_inputs({key: spec for key, spec in specs.items() if key not in feeds}, making))
    return [feeds]
