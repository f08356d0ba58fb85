"""The jobs that `pool bench` submits again and again."""

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pool.client.client import Client
from pool.errors import InvalidInput, ModelNotFound, PoolError, PoolUnreachable

if TYPE_CHECKING:
    from pool.client.payload import Inputs

__all__ = ["BenchJob", "Submit", "unpacked"]

Submit = Callable[[], "Future[Any]"]


@dataclass(frozen=True, slots=True)
class BenchJob:
    """`inputs`: of one job or of several, which take turns, each with `rows`."""

    model: str
    signature: str
    inputs: "tuple[Inputs, ...]"
    rows: int

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


def _packed(inputs: "Inputs") -> dict[str, Any]:
    from pool.wire.packing import pack_answer

    frames = pack_answer({name: array for name, (array, _) in inputs.tensors.items()})
    weak = [name for name, (_, weak) in inputs.tensors.items() if weak]
    return {"frames": [bytes(frame) for frame in frames], "weak": weak, "rows": inputs.rows}


def unpacked(packed: Mapping[str, Any]) -> "Inputs":
    """The inputs of one job, as `BenchJob.packed` has them."""
    from pool.client.payload import Inputs
    from pool.wire.packing import unpack_answer

    tensors = {name: (array, name in packed["weak"]) for name, array in unpack_answer(packed["frames"]).items()}
    return Inputs(tensors, packed["rows"])
