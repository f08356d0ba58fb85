"""The job that `pool bench` submits again and again."""

import itertools
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pool.client.client import Client
from pool.errors import InvalidInput, ModelNotFound, PoolError, PoolUnreachable

if TYPE_CHECKING:
    from pool.cli.signature import Inputs

__all__ = ["BenchJob", "Submit", "bench_job"]

LOADING_S = 120.0

Submit = Callable[[], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class BenchJob:
    model: str
    signature: str
    inputs: object
    rows: int

    def submitter(self, clients: Sequence[Client], timeout_s: float | None) -> Submit:
        """Submits the job by each client in turn, without blocking."""
        turns = itertools.cycle(clients)
        return lambda: next(turns).submit(self.model, self.inputs, signature=self.signature, timeout=timeout_s)

    def try_once(self, client: Client) -> None:
        """One job first: where the caller is wrong, that is said once and not measured for seconds."""
        try:
            client.run(self.model, self.inputs, signature=self.signature)
        except (InvalidInput, ModelNotFound, PoolUnreachable):
            raise
        except PoolError:
            pass  # what the model or the load does to a job is what is measured


def bench_job(client: Client, model: str, signature: str | None, texts: Sequence[str], rows: int) -> BenchJob:
    """Inputs as the command line gives them, random ones otherwise. Raises the pool's own error where it would."""
    # numpy comes with the first job; a mistake in the options does not wait for it.
    from pool.cli.random_inputs import random_inputs, repeated, rows_of
    from pool.cli.signature import inputs_of
    from pool.cli.values import read_inputs
    from pool.client.payload import to_inputs

    found = inputs_of(client, model, signature, LOADING_S)
    if found is None:
        client.run(model, {}, signature=signature)
        raise PoolError(f"model {model} changed while it was looked up")
    name, specs = found
    given = read_inputs(texts, specs, sys.stdin.buffer)
    feeds: dict[str, object] = {key: repeated(value, specs[key], rows) for key, value in given.items()}
    missing: Inputs = {key: spec for key, spec in specs.items() if key not in feeds}
    feeds.update(random_inputs(missing, rows))
    # As arrays already: what the sender does once it need not do for each job.
    return BenchJob(model, name, to_inputs(model, feeds), rows_of(specs, feeds))
