"""A job's arrays as payload frames, and an answer's frames as arrays. Here numpy is imported."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import zmq

from pool.client.request import check_name
from pool.errors import InvalidInput
from pool.wire.calls import ROWS, TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import BadFrame, pack
from pool.wire.packing import unpack_answer
from pool.wire.tensors import Array, dtype_name, encode_tensor, to_array

__all__ = ["Inputs", "concatenated", "decode_answer", "encode_call", "to_inputs"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a job is given, as arrays; with each, whether it is weak (see `TensorHeader`).

    `rows`: the axis 0 that all of them have in common, at least 1; None if there is none.
    """

    tensors: Mapping[str, tuple[Array, bool]]
    rows: int | None

    def cut(self, start: int, stop: int) -> "Inputs":
        """Some of the rows, over the same memory. `rows` must not be None."""
        return Inputs({name: (array[start:stop], weak) for name, (array, weak) in self.tensors.items()}, stop - start)


def to_inputs(model: str, inputs: object) -> Inputs:
    """`inputs` maps input names to anything array-like, or is the only input itself. Raises `InvalidInput`."""
    if isinstance(inputs, Inputs):
        return inputs
    named: Mapping[object, object] = inputs if isinstance(inputs, Mapping) else {"": inputs}
    tensors: dict[str, tuple[Array, bool]] = {}
    for name, value in named.items():
        check_name(f"model {model}: an input's name", name)
        try:
            tensors[str(name)] = to_array(value)
        except Exception as error:  # numpy runs the `__array__` of anything
            raise InvalidInput(f"model {model}, input {name!r}: cannot be sent as a tensor: {error}") from None
    heights = {array.shape[0] if array.ndim else 0 for array, _ in tensors.values()}
    rows = heights.pop() if len(heights) == 1 else 0
    return Inputs(tensors, rows or None)


def encode_call(model: str, inputs: object) -> tuple[int | None, list[bytes]]:
    """The rows and the payload of a SUBMIT: a `Table` and a buffer a tensor.

    All of it are copies, so the caller may change its arrays. `inputs` as in `to_inputs`. Raises `InvalidInput`.
    """
    prepared = to_inputs(model, inputs)
    headers = []
    buffers = []
    for name, (array, weak) in prepared.tensors.items():
        header, buffer = encode_tensor(name, array, weak)
        if prepared.rows is not None:
            header = TensorHeader(name, header.dtype, (ROWS, *header.shape[1:]), weak)
        headers.append(header)
        buffers.append(bytes(buffer))
    table = pack(Table(tuple(headers)))
    if len(table) > TABLE_BYTES:
        raise InvalidInput(f"model {model}: {len(headers)} inputs are more than one job can have")
    return prepared.rows, [table, *buffers]


def decode_answer(pieces: Sequence[int], frames: Sequence[zmq.Frame]) -> dict[str, Array]:
    """The arrays of a RESULT; of a single piece over the memory they arrived in. Raises `BadFrame`.

    `pieces`: how many of the frames belong to each.
    """
    if not pieces or min(pieces) < 0 or sum(pieces) != len(frames):
        raise BadFrame(f"{len(frames)} frames in pieces of {list(pieces)!s:.80}")
    buffers = [frame.buffer for frame in frames]
    answers = []
    start = 0
    for count in pieces:
        answers.append(unpack_answer(buffers[start : start + count]))
        start += count
    if len(answers) == 1:
        return answers[0]
    try:
        return concatenated(answers)
    except ValueError as error:
        raise BadFrame(f"its {len(answers)} pieces do not belong together: {error}") from None


def concatenated(answers: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Answers of the same names joined along axis 0. Raises `ValueError`, which says why, where they cannot be."""
    first = answers[0]
    for answer in answers:
        if answer.keys() != first.keys():
            raise ValueError(f"one has the outputs {', '.join(first)}, another {', '.join(answer)}")
        for name, array in answer.items():
            if not array.ndim:
                raise ValueError(f"output {name!r} has no axis 0")
            if (array.dtype, array.shape[1:]) != (first[name].dtype, first[name].shape[1:]):
                raise ValueError(
                    f"output {name!r} is {dtype_name(first[name].dtype)} {list(first[name].shape)} in one,"
                    f" {dtype_name(array.dtype)} {list(array.shape)} in another"
                )
    return {name: np.concatenate([answer[name] for answer in answers]) for name in first}
