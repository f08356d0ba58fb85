"""Models are converted once, whoever else wants them at the same time, and are there whole or not at all."""

import fcntl
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workers.tf.conversions import Conversions


def copied(path: Path, folder: Path) -> None:
    (folder / "model").write_bytes(path.read_bytes())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "m.keras").write_bytes(b"weights")
    return tmp_path / "m.keras"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "state" / "converted"


def folders(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir() if entry.is_dir())


def test_one_of_many_converts(file: Path, cache: Path) -> None:
    made: list[Path] = []

    def slowly(path: Path, folder: Path) -> None:
        made.append(folder)
        threading.Event().wait(0.2)
        copied(path, folder)

    with ThreadPoolExecutor(4) as workers:
        found = set(workers.map(lambda _: Conversions(cache).of(file, slowly), range(4)))
    assert len(made) == 1
    assert [folder.name for folder in found] == folders(cache)
    assert (found.pop() / "model").read_bytes() == b"weights"


def test_where_the_disk_has_no_locks_the_first_wins(file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_lock(*_: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", no_lock)
    together = threading.Barrier(2, timeout=10)

    def at_once(path: Path, folder: Path) -> None:
        together.wait()
        copied(path, folder)

    with ThreadPoolExecutor(2) as workers:
        found = set(workers.map(lambda _: Conversions(cache).of(file, at_once), range(2)))
    assert [folder.name for folder in found] == folders(cache)


def test_another_content_is_another_model(file: Path, cache: Path) -> None:
    first = Conversions(cache).of(file, copied)
    file.write_bytes(b"other weights")
    second = Conversions(cache).of(file, copied)
    assert first != second
    assert (second / "model").read_bytes() == b"other weights"


def test_a_failure_leaves_nothing_and_may_be_tried_again(file: Path, cache: Path) -> None:
    def fail(_path: Path, folder: Path) -> None:
        (folder / "half").touch()
        raise ValueError("no model")

    with pytest.raises(ValueError, match="no model"):
        Conversions(cache).of(file, fail)
    assert folders(cache) == []
    assert (Conversions(cache).of(file, copied) / "model").exists()


def aged(folder: Path, days: float) -> Path:
    folder.mkdir(parents=True)
    (folder / "variables").touch()
    then = time.time() - days * 86400
    os.utime(folder, (then, then))
    return folder


def test_what_nobody_asks_for_goes(file: Path, cache: Path) -> None:
    old, recent = aged(cache / "old", 31), aged(cache / "recent", 29)
    dead, running = aged(cache / "dead.part", 0.1), aged(cache / "running.part", 0.04)
    Conversions(cache).of(file, copied)
    assert [folder.exists() for folder in (old, recent, dead, running)] == [False, True, False, True]


def test_what_is_asked_for_stays(file: Path, cache: Path) -> None:
    made = Conversions(cache).of(file, copied)
    then = time.time() - 40 * 86400
    os.utime(made, (then, then))
    Conversions(cache).of(file, lambda *_: pytest.fail("it is there"))
    assert time.time() - made.stat().st_mtime < 3600


def test_a_folder_that_others_may_write_is_closed_and_a_link_refused(file: Path, cache: Path, tmp_path: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    Conversions(cache).of(file, copied)
    assert cache.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(cache)
    with pytest.raises(OSError, match="is not a folder"):
        Conversions(tmp_path / "link").of(file, copied)
