"""What lies at a model's path, by names and first bytes."""

from pathlib import Path
from typing import Any

import pytest

from pool.cli.servable import look_at
from pool.plan.footprints import model_bytes
from pool.wire.model_files import Format, ModelFiles, NotServed, checkpoint_prefix, is_whole, look, misfit
from pool.wire.versions import Version, newest, versions_in
from pool.wire.worker_messages import ModelSettings


def saved_model(folder: Path, name: str = "saved_model.pb") -> Path:
    folder.mkdir(parents=True)
    (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("graph.pb", Format.FROZEN_GRAPH),
        ("graph.PB", Format.FROZEN_GRAPH),
        ("graph.pbtxt", Format.FROZEN_GRAPH),
        ("model.graphdef", Format.FROZEN_GRAPH),
        ("model.ckpt-5.meta", Format.META_GRAPH),
        (".meta", Format.META_GRAPH),
        (".pbtxt", Format.FROZEN_GRAPH),
        ("model.keras", Format.KERAS),
        ("model.h5", Format.KERAS),
    ],
)
def test_files(tmp_path: Path, name: str, expected: Format) -> None:
    (tmp_path / name).touch()
    assert look(str(tmp_path / name)) == ModelFiles(expected, tmp_path / name)


@pytest.mark.parametrize("name", ["saved_model.pb", "saved_model.pbtxt"])
def test_a_saved_model(tmp_path: Path, name: str) -> None:
    saved_model(tmp_path / "m", name)
    (tmp_path / "m" / "1").mkdir()
    assert look(str(tmp_path / "m")) == ModelFiles(Format.SAVED_MODEL, tmp_path / "m")


def test_the_newest_version_by_number(tmp_path: Path) -> None:
    for name in ("9", "0010", "latest"):
        saved_model(tmp_path / name)
    (tmp_path / "11").mkdir()
    (tmp_path / "12").touch()
    (tmp_path / "²").mkdir()  # a digit, and no number
    found = look(str(tmp_path))
    assert found == ModelFiles(Format.SAVED_MODEL, tmp_path / "0010", 10, ("11",))
    assert str(found) == "version 10, a SavedModel"
    assert versions_in(tmp_path) == [
        Version(9, tmp_path / "9"),
        Version(10, tmp_path / "0010"),
        Version(11, tmp_path / "11"),
    ]


@pytest.mark.parametrize(
    ("variables", "whole"),
    [
        ((), True),
        (("index", "data-00000-of-00001"), True),
        (("index", "data-00000-of-00002", "data-00001-of-00002"), True),
        (("index", "data-00000-of-00002"), False),
        (("index",), False),
        (("data-00000-of-00001",), False),
    ],
)
def test_a_version_that_is_being_copied_makes_way_for_the_one_before(
    tmp_path: Path, variables: tuple[str, ...], whole: bool
) -> None:
    for number in (1, 2):
        saved_model(tmp_path / str(number))
        (tmp_path / str(number) / "saved_model.pb").write_bytes(b"graph")
    (tmp_path / "2" / "variables").mkdir()
    for name in variables:
        (tmp_path / "2" / "variables" / f"variables.{name}").write_bytes(b"values")
    assert is_whole(tmp_path / "2") is whole
    found = look(str(tmp_path))
    assert (found.version, found.incomplete) == ((2, ()) if whole else (1, ("2",)))
    (tmp_path / "2" / "saved_model.pb").write_bytes(b"")
    assert look(str(tmp_path)).version == 1


def test_no_version_is_whole(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    assert newest(versions_in(tmp_path), lambda _: False) is None
    with pytest.raises(NotServed, match=r"it has no saved_model\.pb"):
        look(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("m.tflite", "TensorFlow Lite model, which is not served here"),
        ("m.onnx", "ONNX model, which is not served here"),
        ("m.pt", "PyTorch model, which is not served here"),
        ("m.ckpt-5.data-00000-of-00001", "give its .meta file"),
        (".data-00000-of-00001", "give its .meta file"),
        (".index", "give its .meta file"),
        ("m.txt", "a file of an unknown kind"),
        ("saved_model.pb", "is the file inside a SavedModel: give its folder"),
    ],
)
def test_what_is_not_served(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(NotServed, match=told):
        look(str(tmp_path / name))


@pytest.mark.parametrize(("prefix", "other"), [("", "m"), ("m.ckpt-5", "m.ckpt-50"), ("[a]", "a")])
def test_what_belongs_to_a_checkpoint(tmp_path: Path, prefix: str, other: str) -> None:
    """`Saver.save(session, "folder/")` names its files by their suffixes alone."""
    for name in (prefix, other):
        for suffix, size in ((".meta", 1), (".index", 2), (".data-00000-of-00002", 10), (".data-00001-of-00002", 20)):
            (tmp_path / f"{name}{suffix}").write_bytes(bytes(size))
    meta = tmp_path / f"{prefix}.meta"
    assert checkpoint_prefix(meta) == prefix
    assert model_bytes(str(meta)) == 30
    with pytest.raises(NotServed, match=r"is a folder with a meta graph with its checkpoint in it: give .*\.meta$"):
        look(str(tmp_path))


def test_keys_that_fit_the_format() -> None:
    assert misfit(Format.SAVED_MODEL, ("serve",), (), ()) is None
    assert misfit(Format.META_GRAPH, (), ("x",), ("y",)) is None
    assert "leave `tags` out" in str(misfit(Format.KERAS, ("serve",), (), ()))
    assert "leave `inputs` and `outputs` out" in str(misfit(Format.KERAS, (), (), ("y",)))


def test_what_check_says_of_a_path(tmp_path: Path) -> None:
    def said(path: object, **settings: Any) -> tuple[str, str]:
        found = look_at(ModelSettings("m", str(path), True, **settings))
        return found.kind, found.problem

    saved_model(tmp_path / "m" / "3")
    (tmp_path / "graph.pb").touch()
    assert said("stub:echo") == ("a stub for tests", "")
    assert said(tmp_path / "m") == ("version 3, a SavedModel", "")
    assert said(tmp_path / "graph.pb") == ("a frozen graph", "")
    kind, problem = said(tmp_path / "graph.pb", tags=("serve",))
    assert (kind, problem.startswith(f"{tmp_path / 'graph.pb'} is a frozen graph: leave `tags` out")) == (
        "a frozen graph",
        True,
    )
    assert said(tmp_path / "none")[1].startswith(f"{tmp_path / 'none'} does not exist: give a SavedModel's folder")
