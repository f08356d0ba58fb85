"""A model in this process, batches that it runs, and what comes of each part."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.packing import unpack_answer
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import Array, to_array
from pool.wire.worker_messages import (
    Run,
)
from support.encoded import encode_tensor
from support.outcomes import Outcome, PartDone, outcomes_of
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

X = {"x": TensorSpec("float32", (-1, 2))}
Y = {"y": TensorSpec("float32", (-1, 2))}
Function = Callable[[Mapping[str, Array]], Any]


class Model:
    """One signature, whose feeds are remembered."""

    def __init__(self, function: Function, inputs: Any = X, outputs: Any = Y) -> None:
        self.info = ModelInfo("m", "stub:m", {"s": Signature(inputs, outputs)}, False)
        self.fed: list[Mapping[str, Array]] = []
        self._function = function

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert signature == "s"
        self.fed.append(feeds)
        fetched = self._function(feeds)
        return {name: fetched[name] for name in outputs}

    def warm_up(self) -> None:
        pass


Part = Mapping[str, Any]
Answer = dict[str, Array] | Outcome


def frames_of(part: Part, by_rows: bool = True) -> tuple[list[TensorHeader], list[bytes]]:
    headers, buffers = [], []
    for name, value in part.items():
        array, weak = to_array(value)
        header, buffer = encode_tensor(name, array, weak)
        shape = (ROWS, *header.shape[1:]) if by_rows else header.shape
        headers.append(TensorHeader(name, header.dtype, shape, weak))
        buffers.append(bytes(buffer))
    return headers, buffers


def run(
    model: Model,
    *parts: Part,
    rows: Sequence[int] | None = None,
    pad_to: int = 0,
    by_rows: bool = True,
    outputs: tuple[str, ...] | None = None,
    spoil: Callable[[list[list[bytes]]], None] = lambda _: None,
    microbatch: int = 0,
) -> list[Answer]:
    """The answers, decoded, or the other outcomes, of a batch of these parts."""
    encoded = [frames_of(part) for part in parts]
    tables = {pack(Table(tuple(headers))) for headers, _ in encoded}
    (table,) = tables
    buffers = [buffers for _, buffers in encoded]
    spoil(buffers)
    counts = tuple(len(np.atleast_1d(next(iter(part.values())))) for part in parts) if rows is None else tuple(rows)
    message = Run(1, "m", None, outputs, counts, max(pad_to, sum(counts)), by_rows, microbatch=microbatch)
    return answers(model, message, [table, *(buffer for each in buffers for buffer in each)])


def served(model: object) -> dict[str, Any]:
    """For a `Runner`: the model need not have more than the test's runs ask of it."""
    return {"m": model}


def answers(model: Model, message: Run, frames: Sequence[bytes]) -> list[Answer]:
    finished = Runner(served(model), SharedMemory()).run(message, frames, BatchMemory())
    assert finished.began <= finished.ended
    payload = [bytes(frame) for frame in finished.payload]
    found: list[Answer] = []
    for outcome in outcomes_of(finished):
        if isinstance(outcome, PartDone):
            found.append(unpack_answer(payload[: outcome.frames]))
            del payload[: outcome.frames]
        else:
            found.append(outcome)
    assert not payload
    return found


def floats(*rows: Sequence[float]) -> Array:
    return np.array(rows, np.float32)


def doubling(**options: Any) -> Model:
    return Model(lambda feeds: {"y": feeds["x"] * 2}, **options)


def values(found: Sequence[Answer]) -> list[Any]:
    return [answer["y"].tolist() if isinstance(answer, dict) else answer for answer in found]
