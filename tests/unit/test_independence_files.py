"""To which files it belongs what is known of a model's rows."""

import os
from pathlib import Path

import pytest

from pool.wire.signatures import ModelInfo
from pool.wire.worker_messages import ModelSettings
from workers.independence.warm_up import files_seen, identity_of


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    file = tmp_path / "m.pb"
    file.write_bytes(b"graph")
    return file


def identity(path: Path, before: object) -> str:
    return identity_of(ModelSettings("m", str(path), True), ModelInfo("m", str(path), {}, False), before)


def test_workers_that_load_the_same_files_have_one_identity(frozen: Path) -> None:
    assert identity(frozen, files_seen(str(frozen))) == identity(frozen, files_seen(str(frozen)))


def test_a_file_of_the_same_size_and_time_in_its_place_is_another_one(frozen: Path) -> None:
    seen = frozen.stat()
    former = identity(frozen, files_seen(str(frozen)))
    other = frozen.with_name("other")
    other.write_bytes(b"GRAPH")
    os.utime(other, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    other.replace(frozen)
    assert (frozen.stat().st_size, frozen.stat().st_mtime_ns) == (seen.st_size, seen.st_mtime_ns)
    assert identity(frozen, files_seen(str(frozen))) != former


def test_files_that_came_while_they_were_loaded_may_not_be_what_was_loaded(frozen: Path) -> None:
    before = files_seen(str(frozen))
    frozen.write_bytes(b"another graph")
    found = identity(frozen, before)
    assert found != identity(frozen, files_seen(str(frozen))), "the next worker loads these for sure"
    assert found != identity(frozen, before)


def test_files_that_nobody_can_look_at_are_never_the_same(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pb")
    assert files_seen(missing) != files_seen(missing)
