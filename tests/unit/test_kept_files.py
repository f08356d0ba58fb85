"""A folder of files: what is written last is what stays."""

import logging
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pool.kept.files import MOST_WAITING, KeptFiles


@pytest.fixture
def hindmost_first() -> Iterator[threading.Event]:
    """Of the threads that are started meanwhile, once it is set, the one that was started last runs first."""
    begin = threading.Event()
    threads: list[threading.Thread] = []

    def hold(*_: object) -> None:
        sys.setprofile(None)
        mine = len(threads)
        threads.append(threading.current_thread())
        assert begin.wait(10.0)
        for later in threads[mine + 1 :]:
            later.join(10.0)

    threading.setprofile(hold)
    yield begin
    threading.setprofile(None)  # which is its default
    assert threads


def test_of_what_is_written_under_one_name_the_newest_stays(tmp_path: Path, hindmost_first: threading.Event) -> None:
    kept = KeptFiles(tmp_path / "kept", ".txt", 10, 1 << 20, 1)
    told: list[tuple[int, str | None]] = []
    for number in range(MOST_WAITING):
        done = partial(lambda number, _, why: told.append((number, why)), number)
        kept.write("one", [str(number).encode()], done)
    hindmost_first.set()
    kept.close(10.0)
    assert (tmp_path / "kept" / "one.txt").read_text() == str(MOST_WAITING - 1)
    assert told == [(number, None) for number in range(MOST_WAITING)]


def test_who_raises_when_told_keeps_no_later_file_from_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = KeptFiles(tmp_path / "kept", ".txt", 10, 1 << 20, 1)

    def raises(*_: object) -> None:
        raise ValueError("not well told")

    for number in range(3):
        kept.write(str(number), [b"x"], raises)
    kept.close(10.0)
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["0.txt", "1.txt", "2.txt"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
