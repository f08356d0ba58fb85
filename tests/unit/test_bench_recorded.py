"""Recorded inputs for a benchmark: what a file may hold, and what is said of one that is wrong."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool.bench.inputs import read_input_data
from pool.wire.signatures import TensorSpec

PIXELS = {"pixels": TensorSpec("float32", (-1, 4))}
CUBE = {"cube": TensorSpec("float32", (-1, 2, 2))}
TEXT = {"text": TensorSpec("string", (-1,))}
TWO = {**PIXELS, "size": TensorSpec("int64", (-1,))}


def npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "jobs.npz"
    np.savez(path, **arrays)
    return path


def data(folder: Path, *entries: object) -> Path:
    path = folder / "jobs.json"
    path.write_text(json.dumps({"data": list(entries)}))
    return path


def test_each_row_is_a_job(tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.float32).reshape(3, 4)
    jobs = read_input_data(npz(tmp_path, pixels=pixels), PIXELS, 1)
    assert [np.asarray(job["pixels"]).tolist() for job in jobs] == [[row] for row in pixels.tolist()]


def test_rows_in_turn_are_a_job(tmp_path: Path) -> None:
    pixels = np.arange(12, dtype=np.float32).reshape(3, 4)
    first, second = read_input_data(npz(tmp_path, pixels=pixels, size=[1, 2, 3]), TWO, 2)
    assert np.array_equal(np.asarray(first["pixels"]), pixels[:2])
    assert np.array_equal(np.asarray(second["pixels"]), pixels[[2, 0]])
    assert np.asarray(second["size"]).tolist() == [3, 1]


def test_flat_values_of_one_row_are_joined_as_rows_are(tmp_path: Path) -> None:
    (job,) = read_input_data(data(tmp_path, {"cube": [1, 2, 3, 4]}, {"cube": [5, 6, 7, 8]}), CUBE, 2)
    assert np.asarray(job["cube"]).tolist() == [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]


def test_jobs_with_rows_of_their_own(tmp_path: Path) -> None:
    path = npz(tmp_path, pixels=np.zeros((3, 7, 4), np.float32))
    assert [np.asarray(job["pixels"]).shape for job in read_input_data(path, PIXELS, 1)] == [(7, 4)] * 3
    with pytest.raises(ValueError, match="leave out --rows"):
        read_input_data(path, PIXELS, 2)


def test_strings_of_numpy(tmp_path: Path) -> None:
    jobs = read_input_data(npz(tmp_path, text=np.array(["a", "bé"])), TEXT, 1)
    assert [np.asarray(job["text"]).tolist() for job in jobs] == [[b"a"], ["bé".encode()]]


def test_json_of_perf_analyzer(tmp_path: Path) -> None:
    blob = base64.b64encode(np.array([1, 2, 3, 4], np.float32).tobytes()).decode()
    path = data(
        tmp_path,
        {"pixels": [1, 2, 3, 4]},
        {"pixels": {"content": [1, 2, 3, 4], "shape": [4]}},
        {"pixels": {"content": list(range(8)), "shape": [2, 4]}},
        {"pixels": {"b64": blob}},
        [{"pixels": [[1, 2, 3, 4]]}, {"pixels": list(range(8))}],
    )
    jobs = read_input_data(path, PIXELS, 1)
    assert [np.asarray(job["pixels"]).dtype for job in jobs] == [np.float32] * 6
    assert [np.asarray(job["pixels"]).shape for job in jobs] == [(1, 4), (1, 4), (2, 4), (1, 4), (1, 4), (2, 4)]
    for number in (0, 1, 3):
        assert np.asarray(jobs[number]["pixels"]).tolist() == [[1, 2, 3, 4]]


def test_json_of_strings(tmp_path: Path) -> None:
    blob = base64.b64encode(b"\xff\x00").decode()
    path = data(tmp_path, {"text": ["a"]}, {"text": "b"}, {"text": {"b64": blob}}, {"text": ["c", "d"]})
    jobs = read_input_data(path, TEXT, 1)
    assert [np.asarray(job["text"]).tolist() for job in jobs] == [[b"a"], [b"b"], [b"\xff\x00"], [b"c", b"d"]]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([], "it has no jobs"),
        ([5], "an entry of its data is int"),
        ([{"pixel": [1, 2, 3, 4]}], "entry 0: no input 'pixel'; there are: pixels"),
        ([{}], r"entry 0: input 'pixels' \(float32 \[\?, 4\]\) is missing"),
        (
            [{"pixels": [1, 2, 3, 4]}, {"pixels": [1, 2, 3]}],
            r"entry 1, pixels: expected float32 \[\?, 4\], got float32 \[3\]",
        ),
        ([{"pixels": [[1, 2], [3]]}], "its rows differ in length"),
        ([{"pixels": ["a", "b", "c", "d"]}], r"expected float32 \[\?, 4\], got string \[4\]"),
        ([{"pixels": {"content": [1, 2], "shape": [4]}}], r"cannot reshape array of size 2 into shape \(4,\)"),
        ([{"pixels": {"content": [1, 2, 3, 4], "shape": "4"}}], "cannot be interpreted as an integer"),
        ([{"pixels": {"b64": "!"}}], "base64"),
        ([{"pixels": {"b64": "AAAA"}}], "buffer size must be a multiple of element size"),
        ([{"pixels": {"values": [1]}}], "neither"),
    ],
)
def test_json_that_is_wrong(tmp_path: Path, entries: list[Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        read_input_data(data(tmp_path, *entries), PIXELS, 1)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("--input-data jobs.json")


def test_numbers_that_are_no_integers(tmp_path: Path) -> None:
    specs = {"size": TensorSpec("int32", (-1,))}
    assert np.asarray(read_input_data(data(tmp_path, {"size": [5]}), specs, 1)[0]["size"]).dtype == np.int32
    for value in (1.5, 2**31, -(2**31) - 1):
        with pytest.raises(ValueError, match="its values are not int32"):
            read_input_data(data(tmp_path, {"size": [value]}), specs, 1)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({}, "it has no jobs"),
        ({"pixels": np.zeros((0, 4))}, "it has no jobs"),
        ({"pixels": np.float32(1)}, "has no axis 0"),
        ({"pixels": np.zeros((2, 4)), "size": [1]}, "different numbers of jobs: pixels has 2, size has 1"),
        ({"pixels": np.array([b"a", None], object)}, "an array of objects"),
        ({"pixels": np.zeros((2, 5), np.float32)}, r"entry 0, pixels: expected float32 \[\?, 4\], got float32 \[5\]"),
    ],
)
def test_archives_that_are_wrong(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_input_data(npz(tmp_path, **arrays), PIXELS, 1)


def test_files_that_are_neither(tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    for content, reason in (
        (b"", "neither an .npz archive nor JSON"),
        (b"\x93NUMPY", "neither"),
        (b"[" * 100_000, "neither"),
        (b"[]", "expected {"),
        (b'{"data": 5}', "expected {"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=reason):
            read_input_data(path, PIXELS, 1)


def test_an_archive_that_is_cut_short(tmp_path: Path) -> None:
    path = npz(tmp_path, pixels=np.zeros((100, 4), np.float32))
    whole = bytearray(path.read_bytes())
    whole[60] ^= 0xFF
    whole[300] ^= 0xFF
    path.write_bytes(whole)
    with pytest.raises(ValueError, match="--input-data"):
        read_input_data(path, PIXELS, 1)
