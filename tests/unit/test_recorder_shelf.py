"""Bundles on the disk: bounded, without the loop ever waiting for it, and read with suspicion."""

import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from pool.kept.files import MOST_WAITING
from pool.recorder.shelf import FORMAT, NEWEST, Shelf

ENDPOINT = "ipc:///run/pool.sock"
BUNDLE: dict[str, Any] = {
    "format": FORMAT,
    "endpoint": ENDPOINT,
    "slot": 3,
    "incarnation": 1,
    "device": "gpu:3",
    "died_at": "2026-01-31T08:15:02.417+00:00",
    "exit": "SIGSEGV",
    "killed_for": None,
    "state": "READY",
    "batches": [],
    "beats": [],
    "deaths": [],
    "last_output": [],
    "stacks": "",
    "threads": [],
    "note": "",
}


@pytest.fixture(autouse=True)
def _log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("pool"), "propagate", True)


def shelf(state: Path | None, keep: int = 100, max_bytes: int = 1 << 20) -> Shelf:
    made = Shelf(state, keep, max_bytes, ENDPOINT)
    made.wait_read(10.0)
    return made


def put(kept: Shelf, **changed: object) -> list[Path]:
    """The files that are there then, the oldest first."""
    kept.put({**BUNDLE, **changed})
    kept.close(10.0)
    assert kept.folder is not None
    return sorted(kept.folder.iterdir()) if kept.folder.exists() else []


def test_the_oldest_go_first_by_number(tmp_path: Path) -> None:
    kept = shelf(tmp_path, keep=2)
    for incarnation in range(4):
        files = put(kept, incarnation=incarnation)
        for age, path in enumerate(reversed(files)):
            os.utime(path, (1000 - age, 1000 - age))
    assert [json.loads(path.read_text())["incarnation"] for path in files] == [2, 3]
    assert shelf(tmp_path).former[3]["incarnation"] == 3


def test_the_oldest_go_first_by_bytes_and_one_that_is_too_large_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = shelf(tmp_path, max_bytes=5000)
    for incarnation in range(4):
        files = put(kept, incarnation=incarnation, stacks="x" * 2000)
        assert sum(path.stat().st_size for path in files) <= 5000
    assert len(files) == 1 or len(files) == 2
    assert put(kept, stacks="x" * 5000) == files
    assert "slot 3: the crash report of incarnation 1 is not stored: the file is too large: " in caplog.text
    assert "exceeds [crash_reports] max_bytes (4.9 KiB)" in caplog.text


@pytest.mark.parametrize("keep", [0, 5])
def test_without_a_folder_or_a_wish_nothing_is_written(tmp_path: Path, keep: int) -> None:
    kept = shelf(tmp_path if keep == 0 else None, keep)
    kept.put(BUNDLE)
    kept.close(1.0)
    assert kept.folder is None
    assert kept.former == {}
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_a_file_is_a_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "crash_reports").write_text("mine")
    kept = shelf(tmp_path)
    kept.put(BUNDLE)
    kept.close(10.0)
    assert "slot 3: the crash report of incarnation 1 is not stored: " in caplog.text
    assert (tmp_path / "crash_reports").read_text() == "mine"


def test_a_disk_that_is_full_leaves_no_half_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert put(shelf(tmp_path)) == []
    assert "No space left on device" in caplog.text


def test_a_disk_that_does_not_answer_holds_up_nobody_and_few(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    taken: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda _: taken.append(answers.wait(60)))
    kept = shelf(tmp_path)
    for incarnation in range(MOST_WAITING + 5):
        kept.put({**BUNDLE, "incarnation": incarnation})
    kept.close(0.05)
    assert not taken, "somebody has waited for the disk"
    assert caplog.text.count("the disk has not yet written the 16 before it") == 5
    answers.set()
    kept.close(10.0)
    assert kept.folder is not None
    assert len(list(kept.folder.iterdir())) == MOST_WAITING


def test_of_a_former_pool_the_newest_of_each_slot_is_read_and_nothing_else(tmp_path: Path) -> None:
    kept = shelf(tmp_path)
    put(kept, incarnation=1)
    put(kept, incarnation=2)
    put(kept, slot=4, endpoint="ipc:///another")
    files = put(kept, slot=5)
    folder = files[0].parent

    def beside(name: str, text: str) -> None:
        (folder / f"29990101-000000.000000-slot{name}-1.json").write_text(text)

    for number, text in enumerate(["", "{", "[]", "{}", "[" * 100_000, json.dumps({**BUNDLE, "format": 2}), "\0\xff"]):
        beside(f"{number + 10}", text)
    beside("20", json.dumps({**BUNDLE, "slot": 20, "stacks": None}))
    beside("21", json.dumps(BUNDLE))  # another slot's
    beside("3", "half")  # the one before it is read instead
    beside("22", " " * (5 << 20))
    os.mkfifo(folder / "29990101-000000.000000-slot23-1.json")
    (folder / "notes.txt").write_text("mine")
    found = shelf(tmp_path)
    assert sorted(found.former) == [3, 5]
    assert found.former[3]["incarnation"] == 2
    assert [(death["slot"], death["incarnation"]) for death in found.former_deaths] == [(5, 1), (3, 2), (3, 1)]


def test_what_a_newer_release_wrote_is_neither_read_nor_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It stands before an older one of the same slot, which is read."""
    (mine,) = put(shelf(tmp_path), incarnation=7)
    newer = [mine.with_name(f"20990131-081502.41700{number}-slot3-{number}.json") for number in (1, 2)]
    for path in newer:
        path.write_text(json.dumps({**BUNDLE, "format": NEWEST + 1, "incarnation": 9}))
    kept = shelf(tmp_path, keep=1)
    assert kept.former[3]["incarnation"] == 7
    files = put(kept, incarnation=8)
    assert set(newer) < set(files)
    assert [json.loads(path.read_text())["incarnation"] for path in files if path not in newer] == [8]
    assert caplog.text.count("of a newer release") == 1
