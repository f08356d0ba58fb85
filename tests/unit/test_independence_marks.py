"""A comparison that may end its process is written down before it runs."""

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from pool.wire.independence import Judgement, RowsCompared, RowsJudged
from pool.wire.signatures import ModelInfo, Signature, TensorSpec
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from unit.caches import new_cache
from workers.backend import ProcessUnusable
from workers.independence.checks import Checks
from workers.independence.known import Known
from workers.independence.samples import Sample, Sampler
from workers.trial_marks import AGAIN_S, ENOUGH

X = TensorSpec("float32", (-1,))
INFO = ModelInfo("m", "stub:m", {"s": Signature({"x": X}, {"y": X})}, False, identity="files")
DIED = f"{ENOUGH} workers died while they ran rows together"


class Lane:
    """Of a model that doubles each row; `ends` is called in the middle of each run that compares."""

    def __init__(self, cache: str, identity: str = "files") -> None:
        self.ends: Callable[[], object] = lambda: None
        self.told: list[RowsCompared] = []
        self.known = Known([ModelSettings("m", "stub:m", True, cache=cache)])
        self.known.load("m", identity)
        self.sampler = Sampler(self.known)
        self.checks = Checks(self.sampler, self._run, self.told.append, self.known.marks, 0)
        self._identity = identity

    def _run(self, _: Sample, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.ends()
        return {"y": feeds["x"] * 2}

    def compare(self, *rows: float, proven: bool = False) -> list[str]:
        """What differed in a job of these rows, if anything was told."""
        self.told.clear()
        x = np.array(rows)
        sample = Sample("m", self._identity, "s", ("y",), {"x": x}, {"y": x * 2}, proven)
        self.checks.served(sample, 32)
        while self.checks.waits:
            self.checks.step()
        return [each.differs for each in self.told]


def marks(cache: str) -> dict[str, int]:
    """How many are in each file."""
    folder = Path(cache).parent / "trials"
    return {path.name: path.stat().st_size for path in folder.iterdir()} if folder.exists() else {}


def die(cache: str, *before: float) -> None:
    """A worker compares these jobs, which agree, and then dies in the middle of the next comparison."""
    pid = os.fork()
    if not pid:
        lane = Lane(cache)
        agreed = [lane.compare(each) for each in before]
        lane.ends = lambda: os._exit(9)
        if agreed == [[""]] * len(before):
            lane.compare(1.0, 2.0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_it_is_written_down_while_it_runs_and_no_longer() -> None:
    cache, found = new_cache(), []
    lane = Lane(cache)
    lane.ends = lambda: found.append(list(marks(cache).values()))
    assert lane.compare(1.0, 2.0) == [""]
    assert found == [[1], [1]], "in each of its runs"
    assert list(marks(cache).values()) == [0]


def test_workers_that_die_of_it_end_joining_though_others_agreed_between() -> None:
    cache = new_cache()
    die(cache)
    assert Lane(cache).compare(1.0, 2.0) == [""]
    die(cache, 5.0, 6.0)
    lane = Lane(cache)
    lane.ends = lambda: pytest.fail("it is not run a third time")
    assert lane.compare(1.0, 2.0) == [DIED]


def test_a_process_that_broke_counts_as_one_that_died() -> None:
    cache = new_cache()
    for _ in range(ENOUGH):
        lane = Lane(cache)

        def broken() -> None:
            raise ProcessUnusable("it broke")

        lane.ends = broken
        with pytest.raises(ProcessUnusable):
            lane.compare(1.0, 2.0)
    assert Lane(cache).compare(1.0) == [DIED]


def test_other_files_are_tried_anew() -> None:
    cache = new_cache()
    for _ in range(ENOUGH):
        die(cache)
    assert Lane(cache).compare(1.0) == [DIED]
    assert Lane(cache, "other files").compare(1.0) == [""]


def test_a_day_later_one_that_agrees_forgives() -> None:
    cache = new_cache()
    for _ in range(ENOUGH):
        die(cache)
    (path,) = (Path(cache).parent / "trials").iterdir()
    then = time.time() - AGAIN_S - 60
    os.utime(path, (then, then))
    assert Lane(cache).compare(1.0) == [""]
    assert marks(cache) == {path.name: 0}


def test_one_that_agrees_does_not_make_a_death_younger() -> None:
    cache = new_cache()
    die(cache)
    (path,) = (Path(cache).parent / "trials").iterdir()
    then = time.time() - AGAIN_S / 2
    os.utime(path, (then, then))
    assert Lane(cache).compare(1.0) == [""]
    assert marks(cache) == {path.name: 1}
    assert path.stat().st_mtime == pytest.approx(then)


def test_while_another_compares_nothing_is_found_out() -> None:
    cache = new_cache()
    busy, other = Lane(cache), Lane(cache)
    found: list[list[str]] = []
    busy.ends = lambda: found.append(other.compare(1.0))
    assert busy.compare(3.0) == [""]
    assert found == [[]]
    assert other.compare(1.0) == [""], "the next one"


def test_where_it_cannot_be_written_down_nothing_is_compared(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the place of the state folder")
    lane = Lane(str(tmp_path / "file" / "converted"))
    lane.ends = lambda: pytest.fail("nobody would remember it")
    assert lane.compare(1.0) == []


def test_a_full_disk_is_no_reason_to_join_nothing_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    lane = Lane(new_cache())
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert lane.compare(1.0) == []
    assert lane.compare(1.0) == [""]


def test_without_a_state_folder_nothing_is_kept_to_be_compared() -> None:
    assert Lane(new_cache()).sampler.watch(INFO, "s", ("y",)).alone
    assert not Lane("").sampler.watch(INFO, "s", ("y",)).alone


def test_rows_that_ran_joined_may_run_joined_again() -> None:
    cache = new_cache()
    lane = Lane(cache)
    lane.known.judge(RowsJudged("m", "files", "s", ("y",), Judgement.PROVEN))
    ran: list[int] = []
    lane.ends = lambda: ran.append(1)
    assert lane.compare(1.0, 2.0, 3.0, proven=True) == []
    assert ran
    assert marks(cache) == {}
