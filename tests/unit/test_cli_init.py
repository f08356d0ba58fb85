"""`pool init`: which files it takes for models, and that what it writes is a configuration."""

import os
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.cli import init as command
from pool.config import demo_folder, load_settings
from support.commands import in_process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved_model(folder: Path, pb: bytes = b"\x08\x01") -> None:
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(pb)


def written(*arguments: str) -> dict[str, str]:
    """The path of each model."""
    status, out, err = in_process("init", *arguments)
    assert (status, err) == (0, ""), err
    assert out.endswith("next: pool check\n")
    return {model.name: os.path.relpath(model.path) for model in load_settings(Path("config.toml")).model}


def test_each_kind_of_model_is_found_and_is_checked_and_told(folder: Path) -> None:
    shutil.copytree(demo_folder() / "digits", folder / "deep/er/digits")
    saved_model(folder / "text" / "1")
    saved_model(folder / "text" / "2")
    (folder / "text" / "3").mkdir()
    saved_model(folder / "v1", b"")
    for name, begins in {"frozen.pb": b"\n\x10", "m.keras": b"PK", "old.H5": b"\x89HDF", "c.meta": b""}.items():
        (folder / name).write_bytes(begins)
    for part in ("c.index", "c.data-00000-of-00001", "notes.txt"):
        (folder / part).touch()
    assert written() == {
        "digits": "deep/er/digits",
        "text": "text",
        "v1": "v1",
        "frozen": "frozen.pb",
        "m": "m.keras",
        "old": "old.H5",
        "c": "c.meta",
    }
    text = Path("config.toml").read_text()
    assert 'Version 2 is served, the newest; versions = "all"' in text
    assert "# 3 is newer, and holds no whole model.\n" in text
    assert text.count("Some of its files are missing") == 1
    assert text.count("Not told: whether it has a model, or weights alone") == 2
    assert text.count("Not told: its inputs and outputs") == 2
    assert "Left out" not in text
    assert in_process("check").status == 0


def test_a_folder_may_be_named_or_be_a_model_itself(folder: Path) -> None:
    saved_model(folder / "models" / "m")
    saved_model(folder / "other")
    assert written("models") == {"m": "models/m"}
    Path("config.toml").unlink()
    assert written("models/m") == {"m": "models/m"}
    Path("config.toml").unlink()
    os.chdir("models/m")
    assert written() == {"m": "."}


def test_what_is_left_out_is_told_with_its_reason(folder: Path) -> None:
    saved_model(folder / "m")
    (folder / "labels.pbtxt").write_text("item { }")
    (folder / "words.pb").write_bytes(b"PK")
    (folder / "empty.h5").touch()
    (folder / "a\n[[model]].onnx").touch()
    (folder / "gone.keras").symlink_to("nowhere")
    (folder / os.fsdecode(b"\xff.keras")).write_bytes(b"PK")
    assert written() == {"m": "m"}
    said = [line for line in Path("config.toml").read_text().splitlines() if line.startswith("# Left out: ")]
    assert [line.partition("# Left out: ")[2].split(" ", 1) for line in said] == [
        ["a\\n[[model]].onnx", "is an ONNX model, which is not served here: give a SavedModel folder."],
        ["empty.h5", "does not begin as a Keras file does."],
        ["gone.keras", said[2].partition("gone.keras ")[2]],
        ["labels.pbtxt", "does not begin as a frozen graph does."],
        ["words.pb", "does not begin as a frozen graph does."],
        ["\\udcff.keras", "has a name that is not UTF-8; rename it, or write a link to it."],
    ]
    assert "does not exist" in said[2]


def test_hidden_folders_environments_and_what_links_lead_to_are_not_looked_through(folder: Path) -> None:
    saved_model(folder / ".hidden" / "m")
    saved_model(folder / "venv" / "m")
    (folder / "venv" / "pyvenv.cfg").touch()
    saved_model(folder / "far" / "below")
    (folder / "models").mkdir()
    (folder / "models" / "up").symlink_to(folder)
    (folder / "models" / "current").symlink_to(folder / "far" / "below")
    assert written("models") == {"current": "models/current"}


def test_two_of_one_name_get_two_names(folder: Path) -> None:
    for parent in ("a", "b"):
        saved_model(folder / parent / "my model")
    saved_model(folder / "c" / "…")
    assert written() == {"my-model": "a/my model", "my-model-2": "b/my model", "model": "c/…"}


@pytest.mark.parametrize("there", ["file", "link", "folder"])
def test_what_is_there_stays(folder: Path, there: str) -> None:
    saved_model(folder / "m")
    config = folder / "config.toml"
    match there:
        case "file":
            config.write_text("mine")
        case "link":
            config.symlink_to("nowhere")
        case _:
            config.mkdir()
    status, out, err = in_process("init")
    assert (status, out) == (1, "")
    assert err.startswith("pool: config.toml is there already, and stays as it is; ")
    assert not (folder / "nowhere").exists()
    assert there != "file" or config.read_text() == "mine"


def test_a_file_that_comes_meanwhile_stays_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved_model(folder / "m")
    (folder / "config.toml").write_text("mine")
    monkeypatch.setattr("os.path.lexists", lambda _: False)
    status, _, err = in_process("init")
    assert (status, (folder / "config.toml").read_text()) == (1, "mine")
    assert "is there already" in err


def test_without_a_model_nothing_is_written(folder: Path) -> None:
    (folder / "m.onnx").touch()
    status, out, err = in_process("init")
    assert (status, out) == (1, "")
    assert err.startswith("pool: no model was found in ., so nothing is written; m.onnx is an ONNX model")
    assert not Path("config.toml").exists()


def test_it_ends_in_a_folder_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MOST_ENTRIES", 5)
    saved_model(folder / "m")
    for number in range(9):
        (folder / "many" / str(number)).mkdir(parents=True)
    assert written() == {"m": "m"}
    assert "# Left out: many and what follows was not looked at" in Path("config.toml").read_text()


def test_neither_tensorflow_nor_the_workers_are_imported(folder: Path) -> None:
    saved_model(folder / "m")
    code = (
        "import sys\nfrom pool.cli import main\ntry:\n    main(['init'])\nexcept SystemExit as end:\n"
        "    assert end.code == 0\nassert not {'tensorflow', 'workers', 'h5py', 'keras'} & set(sys.modules)"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-P", "-c", code]) == 0
    assert Path("config.toml").exists()


@given(st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=20))
def test_any_name_of_a_file_is_written_as_it_is(name: str) -> None:
    before = os.getcwd()
    with tempfile.TemporaryDirectory(prefix="pt-") as folder:
        os.chdir(folder)
        try:
            Path(f"x{name}.keras").write_bytes(b"PK")
            assert in_process("init").status == 0
            (model,) = tomllib.loads(Path("config.toml").read_text(encoding="utf-8"))["model"]
            assert model["path"] == f"x{name}.keras"
            assert load_settings(Path("config.toml")).model[0].path == os.path.abspath(f"x{name}.keras")
        finally:
            os.chdir(before)
