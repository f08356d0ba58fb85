"""Tensors as text and as JSON."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pool.cli.outputs import as_text, as_values


def strings(*values: bytes) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([7]), "x int64 [1]: 7"),
        (np.array(0.5, np.float32), "x float32 []: 0.5"),
        (np.array([1, 2], np.float32), "x float32 [2]: [1., 2.]"),
        (np.array([1.5, 2], ml_dtypes.bfloat16), "x bfloat16 [2]: [1.5, 2]"),
        (np.empty((0, 3), np.float32), "x float32 [0, 3]: empty"),
        (strings("é".encode()), "x string [1]: é"),
        (strings(b"\xff"), "x string [1]: b'\\xff'"),
        (strings(b"a", b"b\n"), 'x string [2]: ["a", "b\\n"]'),
        (strings(b"a\nb"), "x string [1]:\n  a\n  b"),
        (np.array([[1, 2], [3, 4]]), "x int64 [2, 2]:\n  [[1, 2],\n   [3, 4]]"),
    ],
)
def test_text(array: Any, text: str) -> None:
    assert as_text({"x": array}, 80) == text


def test_a_long_array_is_elided() -> None:
    text = as_text({"x": np.arange(10_000)}, 80)
    assert "..." in text
    assert max(map(len, text.splitlines())) <= 80


def test_terminal_codes_are_made_harmless() -> None:
    for array in (strings(b"\x1b[31mred"), strings(b"\x1b[31mred", b"\x9b1m", "\x9b".encode())):
        assert as_text({"x": array}, 80).isprintable()


def test_a_long_string_among_others_is_cut() -> None:
    text = as_text({"x": strings(b"a" * 1000, b"b")}, 80)
    assert len(text) < 400
    assert 'a…"' in text


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (np.array(3), 3),
        (np.array([[1, 2], [3, 4]], np.uint8), [[1, 2], [3, 4]]),
        (np.array([0.1, 1e30], np.float32), [0.1, 1e30]),
        (np.array([np.nan, np.inf, -np.inf]), ["NaN", "Infinity", "-Infinity"]),
        (np.array([np.nan, np.inf, -np.inf, 2], np.float16), ["NaN", "Infinity", "-Infinity", 2]),
        (np.array([1.5, 0.25], ml_dtypes.bfloat16), [1.5, 0.25]),
        (np.array([-8, 7], ml_dtypes.int4), [-8, 7]),
        (np.array([True, False]), [True, False]),
        (np.array([1 + 2j], np.complex64), ["1+2j"]),
        (strings(b"a", "é".encode()), ["a", "é"]),
        (strings(b"\xff\x00"), [{"b64": "/wA="}]),
        (np.empty((2, 0), np.float32), [[], []]),
        (np.empty((0, 2), np.float32), []),
    ],
)
def test_json_values(array: Any, values: object) -> None:
    made = as_values({"x": array})["x"]
    assert made["values"] == values
    assert made["shape"] == list(array.shape)
    assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_json_of_float32_is_exact() -> None:
    array = np.random.default_rng(1).random(100, np.float32)
    assert np.array_equal(np.array(as_values({"x": array})["x"]["values"], np.float32), array)
