"""From the words of `--input` to what a model's input takes."""

import io
from pathlib import Path

import numpy as np
import pytest

from pool.cli.values import BadValue, read_inputs
from pool.wire.signatures import TensorSpec

PIXELS = {"pixels": TensorSpec("float32", (-1, 4))}
TEXT = {"content": TensorSpec("string", (-1,))}
SCALAR_TEXT = {"content": TensorSpec("string", ())}
ANY = {"x": TensorSpec("float32", None)}
TWO = {"left": TensorSpec("int64", ()), "right": TensorSpec("int64", ())}


def read(text: str, specs: dict[str, TensorSpec] | None, stdin: bytes = b"") -> object:
    (value,) = read_inputs([text], specs, io.BytesIO(stdin)).values()
    return value


@pytest.mark.parametrize(
    ("text", "specs", "value"),
    [
        ("pixels=[[1, 2, 3, 4]]", PIXELS, [[1, 2, 3, 4]]),
        ("pixels=[1, 2, 3, 4]", PIXELS, [[1, 2, 3, 4]]),  # one image is a batch of one
        ("[1, 2, 3, 4]", PIXELS, [[1, 2, 3, 4]]),
        ("3.5", ANY, 3.5),
        ("x=[[1], [2]]", ANY, [[1], [2]]),
        ("true", {"x": TensorSpec("bool", ())}, True),
        ("content=import os", TEXT, [b"import os"]),
        ("import os", TEXT, [b"import os"]),
        ("import os", SCALAR_TEXT, b"import os"),
        ('"3"', SCALAR_TEXT, "3"),
        ("3", SCALAR_TEXT, b"3"),
        ("null", SCALAR_TEXT, b"null"),
        ('{"a": 1}', SCALAR_TEXT, b'{"a": 1}'),
        ('["a", "b"]', TEXT, ["a", "b"]),
        ("content=x = 1", TEXT, [b"x = 1"]),
        ("a b = 1", TEXT, [b"a b = 1"]),  # no input could have this name
        ('["a=b"]', TEXT, ["a=b"]),
        ("\udcff", SCALAR_TEXT, b"\xff"),  # what a shell gives that is not UTF-8
        ("", SCALAR_TEXT, b""),
    ],
)
def test_words(text: str, specs: dict[str, TensorSpec], value: object) -> None:
    assert read(text, specs) == value


def test_several_inputs_keep_their_names() -> None:
    assert read_inputs(["left=1", "right=2"], TWO, io.BytesIO()) == {"left": 1, "right": 2}


def test_a_fixed_axis_of_more_than_one_is_not_a_batch() -> None:
    assert read("[1, 2]", {"x": TensorSpec("float32", (3, 2))}) == [1, 2]


@pytest.mark.parametrize(
    ("text", "specs", "words"),
    [
        ("pixel=1", PIXELS, "no input 'pixel'; did you mean 'pixels'?"),
        ("z=1", TWO, "no input 'z'; there are: left, right"),
        ("1", TWO, "NAME=VALUE with one of these names: left, right"),
        ("x=1", TEXT, "needs the name: --input content="),
        ("pixels=[1, 2", PIXELS, "'[1, 2' is not JSON; the input takes float32 [?, 4]"),
        ("hello", PIXELS, "'hello' is not JSON"),
        ("[[1], [1, 2]]", PIXELS, "its rows differ in length"),
        ("null", PIXELS, "not a tensor"),
        ('["a", 1]', TEXT, "a string input takes a list of strings"),
        ("@/no/such/file.npy", PIXELS, "/no/such/file.npy: No such file or directory"),
        ("[" * 100_000, PIXELS, "is not JSON"),
    ],
)
def test_refused_words(text: str, specs: dict[str, TensorSpec], words: str) -> None:
    with pytest.raises(BadValue) as caught:
        read(text, specs)
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 200
    assert caught.value.exit_code == 2


def test_an_input_is_given_once() -> None:
    with pytest.raises(BadValue, match="left is given twice"):
        read_inputs(["left=1", "left=2"], TWO, io.BytesIO())


def test_a_json_file(tmp_path: Path) -> None:
    file = tmp_path / "seven.json"
    file.write_text("[1, 2, 3, 4]")
    assert read(f"pixels=@{file}", PIXELS) == [[1, 2, 3, 4]]
    file.write_text("[1, 2")
    with pytest.raises(BadValue, match="is not JSON"):
        read(f"@{file}", PIXELS)


def test_an_npy_file_keeps_its_dtype(tmp_path: Path) -> None:
    file = tmp_path / "image.npy"
    np.save(file, np.arange(4, dtype=np.float32))
    value = read(f"pixels=@{file}", PIXELS)
    assert isinstance(value, np.ndarray)
    assert value.dtype == np.float32
    assert value.tolist() == [[0, 1, 2, 3]]


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    file = tmp_path / "evil.npy"
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(BadValue, match="not an array of numbers"):
        read(f"pixels=@{file}", PIXELS)


def test_any_other_file_is_its_bytes_for_a_string_input(tmp_path: Path) -> None:
    file = tmp_path / "image.jpg"
    file.write_bytes(b"\xff\xd8\x00")
    assert read(f"content=@{file}", TEXT) == [b"\xff\xd8\x00"]
    with pytest.raises(BadValue, match=r"give JSON, or an array in \.npy"):
        read(f"pixels=@{file}", PIXELS)


def test_standard_input() -> None:
    assert read("@-", TEXT, b"import os\n") == [b"import os\n"]
    assert read("@-", PIXELS, b"[1, 2, 3, 4]\n") == [[1, 2, 3, 4]]
    npy = io.BytesIO()
    np.save(npy, np.ones(4, np.float32))
    value = read("@-", PIXELS, npy.getvalue())
    assert isinstance(value, np.ndarray)
    assert value.shape == (1, 4)


def test_without_a_signature_no_value_is_complained_of() -> None:
    texts = ["a=1", "b=[1]", 'c={"k": 1}', "d=[[1], [1, 2]]", "e=null", "x"]
    read = read_inputs(texts, None, io.BytesIO())
    assert list(read) == ["a", "b", "c", "d", "e", ""]
    assert (read["a"], read["b"], read[""]) == (1, [1], b"x")
