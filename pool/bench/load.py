"""What a benchmark sends: which jobs, how many of them, for how long, and what is not measured of it."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from pool import Client
from pool.client.payload import to_inputs
from pool.errors import InvalidInput, ModelNotFound, PoolError, PoolUnreachable
from pool.terminal import numeric
from pool.wire.packing import pack_answer, unpack_answer
from pool.wire.tensors import Array

__all__ = ["BenchJob", "Load", "Submit"]

Submit = Callable[[], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class BenchJob:
    """`inputs`: of one job or of several, which take turns, each with as many rows."""

    model: str
    signature: str
    inputs: Sequence[Mapping[str, Array]]

    def __str__(self) -> str:
        return f"{self.model} {self.signature}"

    @property
    def rows(self) -> int:
        return next((len(array) for array in self.inputs[0].values() if array.ndim), 1)

    def named(self) -> dict[str, Any]:
        """What it is, as JSON says it."""
        return {"model": self.model, "signature": self.signature, "rows": self.rows}

    def submitter(self, client: Client, timeout_s: float | None, first: int = 0) -> Submit:
        """Submits one job after the other, without blocking, beginning with number `first`."""
        prepared = [to_inputs(self.model, feeds) for feeds in self.inputs]  # once, and not for each job
        turns = itertools.islice(itertools.cycle(prepared), first, None)
        return lambda: client.submit(self.model, next(turns), signature=self.signature, timeout=timeout_s)

    def try_once(self, client: Client) -> None:
        """One job first: where the caller is wrong, that is said once and not measured for seconds."""
        try:
            client.run(self.model, self.inputs[0], signature=self.signature)
        except (InvalidInput, ModelNotFound, PoolUnreachable):
            raise
        except PoolError:
            pass  # what the model or the load does to a job is what is measured

    def packed(self) -> dict[str, Any]:
        """For another process, in msgpack's types."""
        return {**self.named(), "jobs": [list(map(bytes, pack_answer(feeds))) for feeds in self.inputs]}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> "BenchJob":
        return cls(packed["model"], packed["signature"], list(map(unpack_answer, packed["jobs"])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A closed loop has so many jobs `in_flight`; an open one has a `rate`, of jobs a second.

    It warms up for `warmup_s`, or shorter where windows of `window_s` have come to agree within `tolerance`, a
    fraction; without one nothing is asked. Then it lasts `duration_s`, or until `jobs` answers where that is given.
    `timeout_s`: of each job; an open loop's answer counts as good within it. `seed`: of an open loop's Poisson process,
    as independent callers make one; None for arrivals at even distances.
    """

    duration_s: float
    in_flight: int = 0
    rate: float = 0.0
    warmup_s: float = 0.0
    tolerance: float | None = None
    window_s: float = 1.0
    jobs: int | None = None
    timeout_s: float | None = None
    seed: int | None = 0

    @property
    def is_open(self) -> bool:
        return self.rate > 0

    def __str__(self) -> str:
        return f"{numeric(self.rate)}/s" if self.is_open else f"{self.in_flight:,} in flight"

    def arrivals(self) -> Sequence[float]:
        """Of an open loop: seconds since the start, in order, all before the longest that it can last."""
        longest_s = self.warmup_s + self.duration_s
        if self.seed is None:
            return list((np.arange(np.ceil(longest_s * self.rate - 1e-9)) / self.rate).tolist())
        # A Poisson process on a stretch of time: their number is Poisson's, and each lies anywhere.
        rng = np.random.default_rng(self.seed)
        return sorted(rng.uniform(0.0, longest_s, rng.poisson(self.rate * longest_s)).tolist())
