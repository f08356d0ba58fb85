"""The jobs that a benchmark submits again and again."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pool import Client
from pool.bench.loop import Submit
from pool.client.payload import Inputs, to_inputs
from pool.errors import InvalidInput, ModelNotFound, PoolError, PoolUnreachable
from pool.wire.packing import pack_answer, unpack_answer

__all__ = ["BenchJob", "unpacked"]


@dataclass(frozen=True, slots=True)
class BenchJob:
    """`inputs`: of one job or of several, which take turns, each with `rows`."""

    model: str
    signature: str
    inputs: tuple[Inputs, ...]
    rows: int

    @classmethod
    def of(cls, model: str, signature: str, specs: Iterable[str], jobs: Sequence[Mapping[str, object]]) -> "BenchJob":
        """As arrays already: what the sender does once it need not do for each job. Raises `InvalidInput`."""
        inputs = tuple(to_inputs(model, feeds) for feeds in jobs)
        arrays = [inputs[0].tensors[name][0] for name in specs]
        return cls(model, signature, inputs, next((len(array) for array in arrays if array.ndim), 1))

    def submitter(self, client: Client, timeout_s: float | None, first: int = 0) -> Submit:
        """Submits one job after the other, without blocking, beginning with number `first`."""
        at = first % len(self.inputs)
        turns = itertools.cycle(self.inputs[at:] + self.inputs[:at])
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
        jobs = [_packed(inputs) for inputs in self.inputs]
        return {"model": self.model, "signature": self.signature, "rows": self.rows, "jobs": jobs}


def _packed(inputs: Inputs) -> dict[str, Any]:
    frames = pack_answer({name: array for name, (array, _) in inputs.tensors.items()})
    weak = [name for name, (_, weak) in inputs.tensors.items() if weak]
    return {"frames": [bytes(frame) for frame in frames], "weak": weak, "rows": inputs.rows}


def unpacked(packed: Mapping[str, Any]) -> Inputs:
    """The inputs of one job, as `BenchJob.packed` has them."""
    tensors = {name: (array, name in packed["weak"]) for name, array in unpack_answer(packed["frames"]).items()}
    return Inputs(tensors, packed["rows"])
