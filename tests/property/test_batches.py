"""Jobs that are run together get what they would have got alone, whatever their sizes, dtypes and padding."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.lent import Lent, rounded_up
from pool.wire.packing import unpack_answer
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import Failed, Run
from support.encoded import encode_tensor
from support.outcomes import PartDone, outcomes_of
from support.segment_worker import NUMBER, Worker
from workers.memory import BatchMemory
from workers.runner import Runner

steady = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


class Elementwise:
    """Each input, backwards along its last axis past axis 0, plus a mark of the row's own bytes."""

    def __init__(self, inputs: Mapping[str, TensorSpec], bears: bool) -> None:
        self._bears = bears
        outputs = {**inputs, "mark": TensorSpec("string", (-1,))}
        self.info = ModelInfo("m", "stub:m", {"s": Signature(inputs, outputs)}, False)

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert signature == "s"
        rows = len(next(iter(feeds.values())))
        mark = np.empty(rows, object)
        mark[:] = [b"|".join(_bytes(array[row]) for array in feeds.values()) for row in range(rows)]
        given = {name: array[..., ::-1] if array.ndim > 1 else array for name, array in feeds.items()}
        return {name: ({**given, "mark": mark})[name] for name in outputs}

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:
        assert (signature, [name for name in outputs if name != "mark"]) == ("s", list(inputs))
        return self._bears

    def warm_up(self) -> None:
        pass


def _bytes(row: Array) -> bytes:
    return repr(row.tolist()).encode() if isinstance(row, np.ndarray) else repr(row).encode()


@st.composite
def jobs(draw: st.DrawFn) -> tuple[dict[str, TensorSpec], list[tuple[int, list[Array]]]]:
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    rows_of = draw(st.lists(st.integers(1, 4), min_size=1, max_size=6))
    specs, arrays = {}, []
    for name in names:
        dtype = draw(st.sampled_from(list(DTYPES)))
        tail = tuple(draw(st.lists(st.integers(0, 3), max_size=2)))
        specs[name] = TensorSpec(dtype, (-1, *draw(st.sampled_from([tail, (-1,) * len(tail)]))))
        arrays.append([draw(tensors(dtype, (rows, *tail))) for rows in rows_of])
    return specs, [(rows, [column[number] for column in arrays]) for number, rows in enumerate(rows_of)]


@st.composite
def tensors(draw: st.DrawFn, dtype: str, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    if dtype == "string":
        array = np.empty(size, object)
        array[:] = draw(st.lists(st.binary(max_size=4), min_size=size, max_size=size))
        return array.reshape(shape)
    most = 1 if dtype == "bool" else 255
    count = size * DTYPES[dtype].itemsize
    octets = draw(st.lists(st.integers(0, most), min_size=count, max_size=count))
    return np.array(octets, np.uint8).view(DTYPES[dtype]).reshape(shape)


def table_of(specs: Mapping[str, TensorSpec], arrays: Sequence[Array]) -> bytes:
    headers = zip(specs.items(), arrays, strict=True)
    return pack(
        Table(tuple(TensorHeader(name, spec.dtype, (ROWS, *array.shape[1:]), False) for (name, spec), array in headers))
    )


@cache
def worker() -> Worker:
    """With a segment that all examples share; it gets no other one."""
    found = Worker()
    for end in (found.ours, found.theirs):
        end.close()
    return found


def lend(buffers: list[list[bytes]], lent: set[int]) -> tuple[Lent, ...]:
    """Moves these, counted over all parts, into the segment."""
    places, offset = [], 0
    for index in sorted(lent):
        part, number = divmod(index, len(buffers[0]))
        if part < len(buffers) and (buffer := buffers[part][number]):
            worker().memory[offset : offset + len(buffer)] = buffer
            places.append(Lent(index, NUMBER, offset, len(buffer)))
            buffers[part][number] = b""
            offset += rounded_up(len(buffer))
    return tuple(places)


@settings(steady, max_examples=300)
@given(
    jobs(), st.integers(0, 12), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 17)), st.booleans(), st.booleans()
)
def test_batched_and_cut_is_what_each_gets_alone(
    drawn: tuple[dict[str, TensorSpec], list[tuple[int, list[Array]]]],
    padding: int,
    broken: set[int],
    lent: set[int],
    bears: bool,
    marked: bool,
) -> None:
    specs, parts = drawn
    outputs = (*specs, "mark") if marked else tuple(specs)  # numbers alone are packed otherwise
    models: dict[str, Any] = {"m": Elementwise(specs, bears)}  # it has what a run asks of it, and no more
    runner = Runner(models, worker().shared_memory)
    table = table_of(specs, parts[0][1])
    rows = tuple(count for count, _ in parts)
    buffers = [[bytes(encode_tensor("", array)[1]) for array in arrays] for _, arrays in parts]
    sent = [[each + b"." for each in part] if number in broken else [*part] for number, part in enumerate(buffers)]
    places = lend(sent, lent)
    together = runner.run(
        Run(1, "m", "s", outputs, rows, sum(rows) + padding, True, places),
        [table, *(each for part in sent for each in part)],
        BatchMemory(),
    )
    assert len(outcomes_of(together)) == len(parts)
    frames = iter(together.payload)
    for number, outcome in enumerate(outcomes_of(together)):
        if number in broken:
            assert isinstance(outcome, Failed)
            continue
        assert isinstance(outcome, PartDone)
        alone = runner.run(
            Run(2, "m", "s", outputs, rows[number : number + 1], 0, False), [table, *buffers[number]], BatchMemory()
        )
        expected = unpack_answer(alone.payload)
        found = unpack_answer([next(frames) for _ in range(outcome.frames)])
        assert list(found) == list(expected) == list(outputs)
        for name, array in found.items():
            assert array.dtype == expected[name].dtype
            assert array.shape == expected[name].shape
            same = array.tolist() if array.dtype.hasobject else array.tobytes()
            assert same == (expected[name].tolist() if array.dtype.hasobject else expected[name].tobytes())
    assert next(frames, None) is None
