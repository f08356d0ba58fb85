"""What the pool reads of a job's `Table`: how long its buffers are."""

import msgpack
import pytest
import zmq

from pool.serve.layouts import FORM_BYTES, MOST_EMPTY_ROWS, form_of, read
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import BadFrame, pack


def table(*tensors: tuple[str, tuple[int, ...]]) -> bytes:
    """One of inputs a, b, … of these dtypes and shapes."""
    return pack(Table(tuple(TensorHeader(chr(97 + i), *tensor, False) for i, tensor in enumerate(tensors))))


def frames(*buffers: bytes) -> list[zmq.Frame]:
    return [zmq.Frame(buffer) for buffer in buffers]


def strings(*elements: bytes, base: int = 0) -> bytes:
    ends = [base + sum(map(len, elements[: i + 1])) for i in range(len(elements))]
    return b"".join([end.to_bytes(8, "little") for end in ends]) + b"".join(elements)


FLOATS = table(("float32", (ROWS, 2)))
TEXTS = table(("string", (ROWS, 2)))


@pytest.mark.parametrize(
    ("packed", "rows", "buffers"),
    [
        (FLOATS, 3, [bytes(24)]),
        (FLOATS, 1, [bytes(8)]),
        (table(("bool", (ROWS,)), ("complex128", (ROWS, 1, 3))), 2, [bytes(2), bytes(96)]),
        (table(("float32", (ROWS, 0, 1 << 62))), MOST_EMPTY_ROWS, [b""]),
        (TEXTS, 1, [strings(b"", b"ab")]),
        (TEXTS, 2, [strings(b"a", b"", b"", b"bc", base=7)]),
        (table(("string", (ROWS, 0))), 2, [b""]),
    ],
)
def test_buffers_that_are_the_rows_they_claim(packed: bytes, rows: int, buffers: list[bytes]) -> None:
    read(packed).check(rows, frames(*buffers))


@pytest.mark.parametrize(
    ("packed", "rows", "buffers", "told"),
    [
        (FLOATS, 3, [bytes(23)], "input 'a', float32 [?, 2]: 23 bytes where 3 rows have 24"),
        (FLOATS, 0, [b""], "it has 0 rows"),
        (FLOATS, -1, [b""], "it has -1 rows"),
        (FLOATS, (1 << 31) + 1, [b""], "it has 2147483649 rows"),
        (FLOATS, 1, [], "0 buffers for 1 tensors"),
        (FLOATS, 1, [bytes(8), bytes(8)], "2 buffers for 1 tensors"),
        (TEXTS, 2, [bytes(31)], "input 'a', string [?, 2]: 31 bytes are too few for the strings of 2 rows"),
        (TEXTS, 1, [bytes(16) + b"abc"], "input 'a', string [?, 2]: 3 bytes belong to no string"),
        (table(("string", (ROWS, 0))), 1, [b"abc"], "input 'a', string [?, 0]: 3 bytes belong to no string"),
        (table(("bool", (ROWS, 0))), 1 << 31, [b""], "it has 2147483648 rows without a byte in them"),
    ],
)
def test_buffers_that_are_not(packed: bytes, rows: int, buffers: list[bytes], told: str) -> None:
    layout = read(packed)
    with pytest.raises(BadFrame) as caught:
        layout.check(rows, frames(*buffers))
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (b"\xc1", "its table is not msgpack"),
        (b"", "its table is not msgpack"),
        (msgpack.packb({}), "its table is not a list of tensors"),
        (msgpack.packb([[], []]), "its table is not a list of tensors"),
        (table(), "it has rows and 0 tensors"),
        (msgpack.packb([[[]] * 4096]), "it has rows and 4096 tensors"),
        (msgpack.packb([[1]]), "its table has an entry that is not a tensor"),
        (msgpack.packb([[["a", "bool", [-1], 0]]]), "its table has an entry that is not a tensor"),
        (table(("object", (ROWS,))), "input 'a': no dtype 'object'"),
        (table(("bool", ())), "input 'a': no shape of rows: []"),
        (table(("bool", (3, 2))), "input 'a': no shape of rows: [3, 2]"),
        (table(("bool", (ROWS,)), ("bool", (3,))), "input 'b': no shape of rows: [3]"),
        (table(("bool", (ROWS, 2, -1))), "input 'a': no shape of rows: [-1, 2, -1]"),
        (table(("bool", (ROWS, *[1] * 64))), "input 'a': no shape of rows: [-1, 1, 1"),
        (msgpack.packb([[["a", "bool", [-1.0, 2], False]]]), "input 'a': no shape of rows: [-1.0, 2]"),
        (msgpack.packb([[["a", "bool", [-1, True], False]]]), "input 'a': no shape of rows: [-1, True]"),
    ],
)
def test_a_table_that_has_no_rows(packed: bytes, told: str) -> None:
    with pytest.raises(BadFrame) as caught:
        read(packed)
    assert str(caught.value).startswith(told)
    assert len(str(caught.value)) < 200


def test_a_form_is_short_and_as_different_as_its_table() -> None:
    assert form_of(FLOATS) == FLOATS
    long = [bytes(FORM_BYTES + 1), bytes(FORM_BYTES + 2)]
    assert len({form_of(packed) for packed in long}) == 2
    assert all(len(form_of(packed)) < FORM_BYTES for packed in long)
