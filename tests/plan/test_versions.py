"""The versions of a model on its disk: whole, at rest, and the same as before or not; and how disks are asked."""

import os
import time
from pathlib import Path
from select import select
from threading import Event

import pytest

from pool.plan.versions import Look, look
from pool.serve.changes import Disk
from pool.wire.files import files_at

OLD = time.time_ns() + 10**12  # as if a long time had passed


def saved(folder: Path, parts: int = 0, of: int = 2) -> Path:
    """A SavedModel, of whose variables so many parts are there."""
    (folder / "variables").mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    if of:
        (folder / "variables" / "variables.index").write_bytes(b"index")
    for part in range(parts):
        (folder / "variables" / f"variables.data-{part:05}-of-{of:05}").write_bytes(b"data")
    return folder


def whole(found: Look) -> list[int | None]:
    return [each.number for each in found.versions if each.is_whole]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first look believes what is there, since it is old."""
    monkeypatch.setattr(time, "time_ns", lambda: OLD)


def test_a_copy_is_whole_once_all_of_its_parts_are_there(tmp_path: Path, later: None) -> None:
    for parts, expected in ((0, []), (1, []), (2, [7])):
        saved(tmp_path / "7", parts)
        assert whole(look(str(tmp_path), "newest", (), None)) == expected
    saved(tmp_path / "8", of=0)
    assert whole(look(str(tmp_path), "newest", (), None)) == [7, 8], "a model without variables"
    (tmp_path / "8" / "saved_model.pb").write_bytes(b"")
    assert whole(look(str(tmp_path), "newest", (), None)) == [7]
    assert whole(look(str(tmp_path / "7"), "newest", (), None)) == [None], "a folder that is the model itself"


def test_new_files_are_at_rest_once_two_looks_have_found_the_same(tmp_path: Path) -> None:
    saved(tmp_path / "1", of=0)
    first = look(str(tmp_path), "newest", (), None)
    assert whole(first) == []
    second = look(str(tmp_path), "newest", (), first)
    assert whole(second) == [1]
    (tmp_path / "1" / "assets").mkdir()
    (tmp_path / "1" / "assets" / "vocab.txt").write_text("half")
    third = look(str(tmp_path), "newest", (), second)
    assert whole(third) == []
    os.utime(tmp_path / "1" / "assets" / "vocab.txt", (1, 1))  # its time of modification may lie, as `cp -p` makes it
    fourth = look(str(tmp_path), "newest", (), third)
    assert whole(fourth) == []
    assert whole(look(str(tmp_path), "newest", (), fourth)) == [1]


def test_one_that_cannot_be_read_is_a_trouble_and_keeps_no_other_away(tmp_path: Path, later: None) -> None:
    for number in "123":
        saved(tmp_path / number, of=0)
    (tmp_path / "2" / "notes").symlink_to("nowhere")
    (tmp_path / "3" / "loop").symlink_to("loop")
    found = look(str(tmp_path), "newest", (), None)
    assert whole(found) == [1]
    assert [each.split(str(tmp_path))[-1] for each in found.troubles] == ["/2/notes'", "/3/loop'"]
    (tmp_path / "1" / "assets").symlink_to(tmp_path)
    assert files_at(f"{tmp_path}/1").digest != found.versions[0].files.digest, "a folder that is linked counts"
    (tmp_path / "1" / "loop").symlink_to("loop")
    found = look(str(tmp_path), "all", (), look(str(tmp_path), "all", (), found))
    assert [(each.number, each.is_whole) for each in found.versions] == [(1, False)], "what is served stays"


def test_one_that_has_gone_is_missed_once_before_it_counts(tmp_path: Path, later: None) -> None:
    saved(tmp_path / "1", of=0)
    saved(tmp_path / "2", of=0)
    before = look(str(tmp_path), "newest", (), None)
    (tmp_path / "2").rename(tmp_path / "away")
    between = look(str(tmp_path), "newest", (), before)
    assert [(each.number, each.is_whole) for each in between.versions] == [(1, True), (2, False)]
    assert [each.number for each in look(str(tmp_path), "newest", (), between).versions] == [1]


def test_a_disk_that_cannot_be_read_is_a_trouble_and_takes_nothing_away(tmp_path: Path, later: None) -> None:
    saved(tmp_path / "m" / "1", of=0)
    before = look(str(tmp_path / "m"), "newest", (), None)
    (tmp_path / "m").rename(tmp_path / "away")
    found = look(str(tmp_path / "m"), "newest", (), before)
    assert [(each.number, each.is_whole) for each in found.versions] == [(1, False)]
    assert "cannot be read: No such file" in found.troubles[0]
    with pytest.raises(OSError, match="No such file"):
        files_at(f"{tmp_path}/m")
    assert look(str(tmp_path / "m"), "newest", (), None).versions == ()


def test_a_disk_answers_when_it_can_and_says_where_it_fails() -> None:
    disk, gate, told = Disk(), Event(), list[object]()
    disk.read(lambda: gate.wait(60), told.append)  # this one hangs
    disk.read(lambda: 1 // 0, told.append)
    assert select([disk.reader], [], [], 60)[0]
    disk.hear()
    assert told == [None]
    gate.set()
    assert select([disk.reader], [], [], 60)[0]
    disk.hear()
    assert told == [None, True]
