"""The jobs that a benchmark submits again and again."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool import Client
from pool.bench.loop import Submit
from pool.errors import InvalidInput, ModelNotFound, PoolError, PoolUnreachable
from pool.wire.packing import pack_answer, unpack_answer
from pool.wire.tensors import Array

__all__ = ["BenchJob"]


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
        turns = itertools.islice(itertools.cycle(self.inputs), first, None)
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
