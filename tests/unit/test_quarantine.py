"""Files of quarantined jobs: written whole or not at all, bounded, private, and read with suspicion."""

import dataclasses
import logging
import os
import shlex
import stat
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.errors import InvalidInput
from pool.kept import quarantine
from pool.kept.quarantine import MAGIC, SUFFIX, KeptJob, Quarantine, load, state_folder
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.sizes import exceeds

JOB = KeptJob("digits", "predict", ("classes",), 3, "0.000 s arrived\n0.100 s its worker died", (), 81)
TABLE = pack(Table((TensorHeader("x", "int8", (ROWS, 2), True), TensorHeader("", "string", (ROWS,), False))))
PAYLOAD: list[bytes | memoryview] = [TABLE, memoryview(bytes(range(256))), b""]

texts = st.text(st.characters(codec="utf-8"), max_size=20)
kept_jobs = st.builds(
    KeptJob,
    texts,
    st.none() | texts,
    st.none() | st.lists(texts, max_size=3).map(tuple),
    st.none() | st.integers(1, 1 << 31),
    texts,
    st.builds(
        lambda headers, buffers: (pack(Table(tuple(headers))), *buffers),
        st.lists(
            st.builds(TensorHeader, texts, texts, st.lists(st.integers(-1, 9)).map(tuple), st.booleans()), max_size=3
        ),
        st.lists(st.binary(max_size=50), max_size=3),
    ),
    st.integers(0, 1 << 40),
    st.just("2026-01-31T08:15:02+00:00"),
)


def kept(keeper: Quarantine, job: KeptJob = JOB, payload: list[bytes | memoryview] | None = None) -> list[Path]:
    """Keeps a job and returns the files that are there then, the oldest first."""
    keeper.keep(job, PAYLOAD if payload is None else payload)
    keeper.close(10.0)
    assert keeper.folder is not None
    return sorted(keeper.folder.iterdir()) if keeper.folder.exists() else []


def test_a_job_is_kept_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (path,) = kept(Quarantine(tmp_path, 20, 1 << 20))
    found = load(path)
    assert found == dataclasses.replace(JOB, payload=(TABLE, bytes(range(256)), b""), kept_at=found.kept_at)
    assert found.kept_at.endswith("+00:00")
    assert path.name.endswith("-digits-81.job")
    assert caplog.messages == [
        f"the inputs of job 81 of model digits are stored: try it again with `pool submit --replay {path}`"
    ]


def test_the_command_that_is_told_can_be_pasted_whatever_the_folder_is_called(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        (path,) = kept(Quarantine(tmp_path / "it's $HOME", 20, 1 << 20))
    command = caplog.messages[0].split("`")[1]
    assert shlex.split(command) == ["pool", "submit", "--replay", str(path)]


def test_what_is_kept_is_this_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (path,) = kept(Quarantine(tmp_path / "new" / "state", 20, 1 << 20))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_a_folder_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "quarantine").mkdir(mode=0o755)
    (path,) = kept(Quarantine(tmp_path, 20, 1 << 20))
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "quarantine").symlink_to(elsewhere)
    assert kept(Quarantine(tmp_path, 20, 1 << 20)) == []
    assert "are not stored" in caplog.text
    assert "a link is refused too" in caplog.text


def test_the_oldest_go_first_by_number(tmp_path: Path) -> None:
    keeper = Quarantine(tmp_path, 3, 1 << 20)
    for number in range(6):
        files = kept(keeper, dataclasses.replace(JOB, number=number))
        for age, path in enumerate(reversed(files)):
            os.utime(path, (1000 - age, 1000 - age))
    assert [load(path).number for path in files] == [3, 4, 5]


def test_the_oldest_go_first_by_bytes_and_one_that_is_too_large_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Quarantine(tmp_path, 100, 10_000)
    overhead = 0
    for number in range(10):
        files = kept(keeper, dataclasses.replace(JOB, number=number), [TABLE, bytes(3000)])
        overhead = files[0].stat().st_size - 3000
        assert sum(path.stat().st_size for path in files) <= 10_000
        for age, path in enumerate(reversed(files)):
            os.utime(path, (1000 - age, 1000 - age))
    assert [load(path).number for path in files] == [7, 8, 9]
    assert kept(keeper, dataclasses.replace(JOB, number=99), [TABLE, bytes(10_001)]) == files
    told = exceeds(10_001 + overhead, "[quarantine] max_bytes", 10_000)
    assert f"the inputs of job 99 of model digits are not stored: the file is too large: {told}" in caplog.messages


def test_it_can_be_switched_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keeper = Quarantine(tmp_path, 0, 1 << 20)
    keeper.keep(JOB, PAYLOAD)
    keeper.close(10.0)
    assert keeper.folder is None
    assert list(tmp_path.iterdir()) == []
    assert not caplog.messages


def test_without_a_state_folder_it_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    Quarantine(None, 20, 1 << 20).keep(JOB, PAYLOAD)
    assert "there is no state folder; set [pool] state" in caplog.text


def test_a_folder_that_cannot_be_made_is_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    Quarantine(tmp_path / "file", 20, 1 << 20).close(1.0)
    keeper = Quarantine(tmp_path / "file" / "below", 20, 1 << 20)
    keeper.keep(JOB, PAYLOAD)
    keeper.close(10.0)
    assert "are not stored" in caplog.text
    assert "Not a directory" in caplog.text


def test_a_disk_that_is_full_leaves_no_half_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert kept(Quarantine(tmp_path, 20, 1 << 20)) == []
    assert "No space left on device" in caplog.text


def test_what_a_killed_pool_left_unfinished_is_removed_once_it_is_old(tmp_path: Path) -> None:
    keeper = Quarantine(tmp_path, 20, 1 << 20)
    (first,) = kept(keeper)
    old, young = first.with_name("old.part"), first.with_name("young.part")
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    foreign = first.with_name("notes.txt")
    foreign.write_text("mine")
    names = {path.name for path in kept(keeper, dataclasses.replace(JOB, number=82))}
    assert "old.part" not in names
    assert {"young.part", "notes.txt", first.name} < names


# --- reading


def refused(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path / "missing") == "cannot be read: No such file or directory"
    assert refused(tmp_path) == "cannot be read: Is a directory"
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == "is not a file"
    assert refused(Path("/dev/zero")) == "is not a file"


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\x80\x04\x95")
    assert refused(path) == "is not a stored job: it does not begin like one"
    path.write_bytes(MAGIC)
    assert refused(path) == "is not a stored job: it is cut short"


def test_tensors_of_another_form_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "TENSORS", 1)
    (path,) = kept(Quarantine(tmp_path, 20, 1 << 20))
    monkeypatch.undo()
    assert refused(path).endswith("its tensors have form 1; this release reads 7")


def test_what_a_newer_release_wrote_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(MAGIC[:-1] + b"\x02" + b"whatever is in it")
    assert refused(path).endswith("a newer release wrote it in format 2; this release reads 1")


@pytest.mark.parametrize("age", [1.0, 2e9], ids=["the oldest", "the newest"])
def test_what_a_newer_release_wrote_is_let_be_and_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, age: float
) -> None:
    folder = tmp_path / "quarantine"
    folder.mkdir(mode=0o700)
    newer = [folder / f"newer-{number}{SUFFIX}" for number in range(3)]
    for path in newer:
        path.write_bytes(MAGIC[:-1] + b"\x02")
        os.utime(path, (age, age))
    keeper = Quarantine(tmp_path, 2, 1 << 20)
    for number in range(5):
        files = set(kept(keeper, dataclasses.replace(JOB, number=number)))
        assert files.issuperset(newer)
        assert len(files) - len(newer) <= 2
    assert len(files) - len(newer) == 2, "the bound is for its own"
    assert caplog.text.count("of a newer release") == 1


def test_a_table_that_cannot_be_read_is_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    over = threading.Event()
    keeper = Quarantine(tmp_path, 20, 1 << 20)
    keeper.keep(JOB, [b"no table"], over.set)
    keeper.close(10.0)
    assert "are not stored" in caplog.text
    assert over.is_set()


def one_file(data: bytes) -> KeptJob | None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        try:
            return load(Path(file.name))
        except InvalidInput:
            return None


def file_of(job: KeptJob) -> bytes:
    return b"".join(quarantine._packed(job, job.payload))


@given(kept_jobs)
def test_any_job_is_read_as_it_was_written(job: KeptJob) -> None:
    assert one_file(file_of(job)) == job


@given(st.binary(max_size=200))
def test_any_bytes_are_a_job_or_the_error(data: bytes) -> None:
    for whole in (data, MAGIC + data):
        found = one_file(whole)
        assert found is None or isinstance(found, KeptJob)


@given(kept_jobs, st.data())
def test_any_change_of_a_file_is_a_job_or_the_error(job: KeptJob, data: st.DataObject) -> None:
    octets = bytearray(file_of(job))
    octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(octets[: data.draw(st.integers(0, len(octets)))])
    found = one_file(cut)
    if found is not None:
        assert found.payload
        assert found.rows is None or found.rows >= 1


# --- where


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"STATE_DIRECTORY": "/var/lib/pool:/var/lib/other", "HOME": "/h"}, "/var/lib/pool"),
        ({"XDG_STATE_HOME": "/state", "HOME": "/h"}, "/state/pool"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/pool"),
        ({"HOME": "/h"}, "/h/.local/state/pool"),
        ({"HOME": "nowhere"}, None),
    ],
)
def test_the_state_folder(environ: dict[str, str], folder: str | None) -> None:
    assert state_folder(environ) == (None if folder is None else Path(folder))


def test_a_folder_among_the_files_is_no_reason_to_keep_nothing(tmp_path: Path) -> None:
    keeper = Quarantine(tmp_path, 1, 1 << 20)
    (tmp_path / "quarantine" / f"a folder{SUFFIX}").mkdir(parents=True)
    for number in (1, 2):
        files = kept(keeper, dataclasses.replace(JOB, number=number))
    assert [load(path).number for path in files if path.is_file()] == [2]


def test_the_bound_in_bytes_counts_the_whole_file(tmp_path: Path) -> None:
    assert kept(Quarantine(tmp_path, 10, 300), JOB, [TABLE, bytes(200), bytes(10)]) == []


def test_who_lent_the_payload_hears_when_it_is_not_read_any_more(tmp_path: Path) -> None:
    """It is not copied, so it must stay as it is until then: while the disk takes it, or at once if it is not kept."""
    over = threading.Event()
    keeper = Quarantine(tmp_path, 10, 1 << 20)
    keeper.keep(JOB, PAYLOAD, over.set)
    assert over.wait(10)
    assert len(list((tmp_path / "quarantine").glob(f"*{SUFFIX}"))) == 1
    for unwilling in (Quarantine(tmp_path, 0, 1 << 20), Quarantine(None, 10, 1 << 20), Quarantine(tmp_path, 10, 3)):
        over.clear()
        unwilling.keep(JOB, PAYLOAD, over.set)
        assert over.is_set()
    over.clear()
    Quarantine(tmp_path / "quarantine" / "no" / "\0", 10, 1 << 20).keep(JOB, PAYLOAD, over.set)
    assert over.wait(10), "nor is it held where it cannot be written"
