"""What a running pool is told of the folders of its models, and what it makes of versions that break."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pool.config import parse_settings
from pool.plan import versions
from pool.plan.planning import make_plan, plan
from pool.plan.version_watch import VersionWatch
from pool.plan.world import Failure, World
from pool.wire.versions import versions_in
from support.fake_nvml import eight_gpus
from support.processes import eventually


def put(folder: Path, number: int) -> None:
    (folder / str(number)).mkdir(parents=True)
    (folder / str(number) / "saved_model.pb").write_text("echo")


class Pool:
    """What a pool does between two rollouts; a version in `bad` does not come up."""

    def __init__(self, folder: Path, *names: str, every_s: float | None = 0.01, versions: str = "newest") -> None:
        models = [{"name": name, "path": f"stub:files?{folder / name}", "versions": versions} for name in names]
        settings = parse_settings({"pool": {"devices": ["cpu"]}, "model": models}, "f.toml", folder)
        first = make_plan(settings, {}, eight_gpus())
        self.world: World = first.world.run_by(first)
        self.watch = VersionWatch(lambda: None)
        self.watch.every(every_s)
        self.bad: set[str] = set()
        self.unfit = False
        self.rolls: list[dict[str, tuple[int, ...]]] = []

    def turn(self) -> None:
        former = self.world
        after = self.watch.tend(former, rolling=False)
        if after is None:
            return
        new = {name: found for name, found in after.found.items() if found != former.found[name]}
        if not new:
            self.world = after
            return
        self.rolls.append({name: tuple(served.number for served in found) for name, found in new.items()})
        came = tuple((name, each) for name, found in new.items() for each in found if each not in former.found[name])
        if self.unfit:
            self.world = former.failed(Failure("there is no room for it", broken=came))
            return
        self.world = after.run_by(plan(after))
        if any(served.path in self.bad for _, served in came):
            self.world = self.world.failed(Failure("a worker could not load it", broken=came))
            self.watch.failed(came)

    def until(self, said: Callable[[], bool]) -> None:
        def looked() -> bool:
            self.turn()
            return said()

        eventually(looked)

    def served(self) -> dict[str, int]:
        return {name: found[-1].number for name, found in self.world.found.items()}


def test_a_new_version_is_in_the_plan_that_workers_are_told_of(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a")
    put(tmp_path / "a", 2)
    pool.until(lambda: pool.served() == {"a": 2})
    made = plan(pool.world)
    (model,) = made.welcome(0).models
    assert (model.version, model.path) == (2, f"stub:files?{tmp_path}/a/2")
    assert made.slots()[0].versions == {"a": 2}


def test_twenty_models_are_watched_beside_each_other(tmp_path: Path) -> None:
    names = [f"model-{number}" for number in range(20)]
    for name in names:
        put(tmp_path / name, 1)
    pool = Pool(tmp_path, *names)
    for name in names[::2]:
        put(tmp_path / name, 2)
    pool.until(lambda: pool.served() == {name: 1 + (number % 2 == 0) for number, name in enumerate(names)})
    assert sorted(name for roll in pool.rolls for name in roll) == sorted(names[::2]), "each once, and nobody else"


def test_of_several_that_broke_a_roll_each_is_tried_by_itself(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path / name, 1)
    pool = Pool(tmp_path, *"abc")
    pool.bad = {f"stub:files?{tmp_path}/b/2"}
    for name in "abc":
        put(tmp_path / name, 2)
    pool.until(lambda: pool.served() == {"a": 2, "b": 1, "c": 2} and len(pool.rolls) >= 5)
    assert {"b": (2,)} in pool.rolls, "it was tried by itself"
    assert sorted(pool.world.broken) == [f"stub:files?{tmp_path}/b/2"]
    rolls = len(pool.rolls)
    looked = threading.Event()
    threading.Timer(0.2, looked.set).start()
    pool.until(looked.is_set)
    assert len(pool.rolls) == rolls, "and not again"


def test_a_reload_forgets_what_was_broken(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a")
    pool.bad = {f"stub:files?{tmp_path}/a/2"}
    put(tmp_path / "a", 2)
    pool.until(lambda: pool.rolls == [{"a": (2,)}, {"a": (1,)}])
    pool.bad.clear()
    pool.watch.forget()
    pool.world = replace(pool.world, broken={})
    pool.until(lambda: pool.served() == {"a": 2})


def test_nobody_looks_where_that_was_not_asked_for(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a", every_s=None)
    put(tmp_path / "a", 2)
    for _ in range(3):
        pool.turn()
    assert pool.watch.next_deadline(0.0, rolling=False) is None
    assert pool.served() == {"a": 1}
    pool.watch.every(0.01)
    pool.until(lambda: pool.served() == {"a": 2})


def test_while_slots_are_rolled_nobody_looks(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a", every_s=1e-9)
    assert pool.watch.tend(pool.world, rolling=True) is None
    assert pool.watch.next_deadline(0.0, rolling=True) is None


def test_a_disk_that_does_not_answer_holds_up_nobody_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a")
    answers = threading.Event()
    monkeypatch.setattr(versions, "versions_in", lambda folder: answers.wait(20) and versions_in(folder))
    monkeypatch.setattr("pool.plan.version_watch.SLOW_S", 0.05)
    put(tmp_path / "a", 2)
    with caplog.at_level(logging.WARNING, "pool"):
        pool.until(lambda: "have not answered for 0.05 s" in caplog.text)
    assert pool.watch.next_deadline(time.monotonic(), rolling=False) is None, "the thread rings"
    assert pool.served() == {"a": 1}
    monkeypatch.setattr("pool.plan.version_watch.SLOW_S", 60.0)  # the next look may take as long by itself
    for _ in range(3):
        pool.turn()
    answers.set()
    pool.until(lambda: pool.served() == {"a": 2})
    assert caplog.text.count("have not answered") == 1


def test_a_trouble_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a")
    with caplog.at_level(logging.WARNING, "pool"):
        (tmp_path / "a").rename(tmp_path / "away")
        pool.until(lambda: pool.watch.troubles != {})
        (tmp_path / "away").rename(tmp_path / "a")
        pool.until(lambda: pool.watch.troubles == {})
    assert caplog.text.count("the loaded versions still serve") == 1


def test_of_a_model_of_which_all_are_served_one_new_version_is_found_at_a_time(tmp_path: Path) -> None:
    for number in (1, 3):
        put(tmp_path / "a", number)
    pool = Pool(tmp_path, "a", versions="all")
    for number in (2, 4):
        put(tmp_path / "a", number)
    pool.unfit = True
    pool.until(lambda: bool(pool.rolls))
    assert pool.rolls == [{"a": (1, 3, 4)}], "the newest first"
    assert sorted(pool.world.broken) == [f"stub:files?{tmp_path}/a/4"]
    pool.until(lambda: pool.rolls[-1] == {"a": (1, 2, 3)})
    (tmp_path / "a" / "4" / "saved_model.pb").write_text("another")
    pool.until(lambda: pool.rolls[-1] == {"a": (1, 3, 4)})


def test_of_several_a_version_that_goes_is_told_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    for number in (1, 3):
        put(tmp_path / "a", number)
    pool = Pool(tmp_path, "a", versions="all")
    shutil.rmtree(tmp_path / "a" / "3")
    pool.until(lambda: pool.rolls == [{"a": (1,)}])
    shutil.rmtree(tmp_path / "a" / "1")
    pool.until(lambda: pool.watch.troubles == {"a": f"no version is left in {tmp_path}/a"})
    shutil.rmtree(tmp_path / "a")
    pool.until(lambda: "cannot be read" in str(pool.watch.troubles))


def test_several_that_do_not_change_are_no_news(tmp_path: Path) -> None:
    for number in (1, 3):
        put(tmp_path / "a", number)
    pool = Pool(tmp_path, "a", versions="all", every_s=0.001)
    (tmp_path / "a" / "5").mkdir()
    (tmp_path / "a" / "notes").mkdir()
    looked = threading.Event()
    threading.Timer(0.2, looked.set).start()
    pool.until(looked.is_set)
    assert pool.rolls == []


def test_what_was_seen_of_another_world_than_there_is_by_now_is_looked_for_again(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    rung = threading.Event()
    pool = Pool(tmp_path, "a", every_s=1e-9)
    pool.watch = VersionWatch(rung.set)
    pool.watch.every(1e-9)
    put(tmp_path / "a", 2)
    found = []
    for _ in range(4):  # the second look finds it at rest
        rung.clear()
        assert pool.watch.tend(pool.world, rolling=False) is None
        assert rung.wait(20)
        pool.world = replace(pool.world)
        found.append(pool.watch.tend(pool.world, rolling=False))
    assert found == [None] * 4
    pool.until(lambda: pool.served() == {"a": 2})


def test_a_rollout_that_fails_at_something_else_is_tried_again_after_a_pause_that_grows(tmp_path: Path) -> None:
    put(tmp_path / "a", 1)
    pool = Pool(tmp_path, "a", every_s=100.0)
    pauses = []
    for _ in range(3):
        pool.watch.failed([])
        due = pool.watch.next_deadline(0.0, rolling=False)
        assert due is not None
        pauses.append(round((due - time.monotonic()) / 100.0))
    assert pauses == [2, 4, 8]
