"""What becomes of further copies while a pool serves: they give way, and they fill what is empty."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pool.core.fleet import SlotState
from support.processes import eventually
from support.steady_clients import put
from unit.plan_house import House, settings

BIG = {"device_memory": "9GiB"}  # of 15: no two of them share a device


def house(folder: Path, *models: dict[str, object]) -> House:
    made = House(settings(folder, *models, devices=(0, 1, 2)))
    made.settle()
    return made


def test_a_model_is_on_all_devices_and_one_more_takes_the_place_of_a_copy(tmp_path: Path) -> None:
    pool = house(tmp_path, {"name": "a", **BIG})
    assert pool.served() == [{"a"}, {"a"}, {"a"}]
    pool.file = settings(tmp_path, {"name": "a", **BIG}, {"name": "b", **BIG}, devices=(0, 1, 2))
    pool.ask(1)
    pool.settle()
    assert pool.served() == [{"a"}, {"b"}, {"a"}], "a model that moved would have come to slot 2 for nothing"
    pool.ask(2, "unload", "b")
    pool.settle()
    assert pool.served() == [{"a"}, {"a"}, {"a"}]


def test_a_model_that_is_loaded_by_hand_takes_the_place_of_a_copy(tmp_path: Path) -> None:
    pool = house(tmp_path, {"name": "a", **BIG})
    pool.ask(1, "load", '["b", "stub:echo"]')
    pool.settle()
    assert "refused" not in pool.replies[1]
    assert pool.served() == [{"a"}, {"b"}, {"a"}]


def test_a_weight_that_changes_moves_copies(tmp_path: Path) -> None:
    pool = house(tmp_path, {"name": "a"}, {"name": "b"})
    assert pool.served() == [{"a"}, {"b"}, {"a"}]
    pool.file = settings(tmp_path, {"name": "a"}, {"name": "b", "weight": 2.0}, devices=(0, 1, 2))
    pool.ask(1)
    pool.settle()
    assert pool.served() == [{"a"}, {"b"}, {"b"}]


def test_a_model_that_keeps_state_has_one_copy_once_a_worker_has_said_so(tmp_path: Path) -> None:
    pool = House(settings(tmp_path, {"name": "a"}, devices=(0, 1, 2)))
    pool.stateful.add("a")
    pool.held |= {0, 2}
    pool.settle()
    assert pool.served() == [set(), {"a"}, set()], "the one that has said it, and has the state"
    pool.held.clear()
    pool.settle()
    assert [pool.state(slot) for slot in range(3)] == [SlotState.STOPPED, SlotState.READY, SlotState.STOPPED]
    assert pool.plan.copies() == [{"model": "a", "devices": ["gpu:1"], "why": "it keeps state"}]
    pool.restart(1)
    pool.settle()
    assert pool.served() == [set(), {"a"}, set()]
    pool.stateful.clear()
    pool.restart(1)
    pool.settle()
    assert pool.served() == [{"a"}, {"a"}, {"a"}], "the next version of it keeps none"


def test_what_a_model_with_state_leaves_goes_to_another(tmp_path: Path) -> None:
    pool = House(settings(tmp_path, {"name": "a"}, {"name": "b"}, devices=(0, 1, 2)))
    pool.stateful.add("a")
    pool.settle()
    assert pool.served() == [{"a"}, {"b"}, {"b"}]


def test_numbers_that_are_written_hold_for_models_with_state(tmp_path: Path) -> None:
    pool = House(settings(tmp_path, {"name": "a", "replicas": 2}, {"name": "b", "replicas": "all"}, devices=(0, 1, 2)))
    pool.stateful |= {"a", "b"}
    pool.settle()
    assert sorted(map(len, pool.served())) == [1, 2, 2]
    assert all("b" in models for models in pool.served())


def test_a_lost_copy_is_no_failover_while_another_serves(tmp_path: Path) -> None:
    pool = house(tmp_path, {"name": "a", **BIG}, {"name": "b", **BIG})
    assert pool.served() == [{"a"}, {"b"}, {"a"}]
    pool.lose("gpu:0")
    pool.settle()
    assert pool.served() == [set(), {"b"}, {"a"}]
    assert (pool.plan.failovers, pool.plan.stays) == ((), ())
    pool.come_back("gpu:0")
    pool.settle()
    assert pool.served() == [{"a"}, {"b"}, {"a"}]


def test_a_further_copy_gives_way_to_a_failover_until_the_device_is_back(tmp_path: Path) -> None:
    pool = house(tmp_path, {"name": "a", **BIG}, {"name": "b", **BIG})
    pool.lose("gpu:1")
    pool.settle()
    assert pool.served() == [{"a"}, set(), {"b"}]
    pool.ask(1)
    pool.settle()
    assert (pool.replies[1]["slots"], pool.served()) == ([], [{"a"}, set(), {"b"}])
    pool.lose("gpu:0")
    pool.settle()
    assert len(pool.plan.stays) == 1, "one device is left for two"
    pool.come_back("gpu:0")
    pool.settle()
    assert sorted(map(sorted, pool.served())) == [[], ["a"], ["b"]]
    pool.come_back("gpu:1")
    pool.settle()
    assert pool.served() == [{"a"}, {"b"}, {"a"}]


def test_a_model_whose_first_device_is_gone_is_not_pushed_from_its_last_copy(tmp_path: Path) -> None:
    pool = house(tmp_path, {"name": "a", **BIG}, {"name": "b", **BIG, "devices": [1]})
    assert pool.plan.homes["a"].devices == (0, 2)
    pool.lose("gpu:0")
    pool.settle()
    pool.ask(1, "load", '["c", "stub:echo"]')
    pool.ask(2, "load", '["d", "stub:echo"]')
    pool.settle()
    assert "a" in pool.served()[2]
    assert "b" in pool.served()[1]


def test_a_copy_gives_way_to_a_new_version_that_has_no_other_room(tmp_path: Path) -> None:
    put(tmp_path / "m", 1)
    m = {"name": "m", "path": f"stub:files?{tmp_path / 'm'}", "versions": "all", **BIG}
    pool = House(settings(tmp_path, m, devices=(0, 1), watch="50ms"))
    pool.settle()
    assert pool.served() == [{"m@1"}, {"m@1"}]
    put(tmp_path / "m", 2)

    def has_come() -> bool:
        pool.turn()
        return pool.served() == [{"m@1"}, {"m@2"}]

    eventually(has_come)


A: dict[str, object] = {"name": "a", "devices": [0], "device_memory": "1GiB"}
NEW: dict[str, object] = {"name": "b", "device_memory": "12GiB"}  # there is no room for it beside another


def comes(
    folder: Path,
    *more: dict[str, object],
    broken: Collection[int] = (),
    killed: Collection[int] = (),
    devices: tuple[int, ...] = (0, 1, 2),
) -> House:
    """Beside `a`, which is on the first device, other models come with a reload."""
    pool = House(settings(folder, A, devices=devices))
    pool.settle()
    pool.broken |= {(slot, "b") for slot in broken}
    pool.killed |= {(slot, "b") for slot in killed}
    pool.file = settings(folder, A, *more, devices=devices)
    pool.ask(1)
    pool.settle()
    return pool


def left_out(pool: House) -> list[tuple[str, int, str]]:
    told: Any = pool.reconciler.status()["unloadable"]
    return [(each["model"], each["slot"], each["why"]) for each in told]


def test_a_further_copy_of_a_new_model_that_cannot_be_loaded_leaves_the_others(tmp_path: Path) -> None:
    pool = comes(tmp_path, NEW, broken={2}, devices=(0, 1, 2, 3))
    assert pool.served() == [{"a"}, {"b"}, set(), {"b"}], "the next one comes, too"
    assert (left_out(pool), pool.failure()) == ([("b", 2, "it is broken")], "")
    assert pool.plan.copies()[1]["why"] == "it could not be loaded in slot 2"
    before = [slot.worker.incarnation for slot in pool.machine.fleet.slots]
    pool.ask(2)
    pool.settle()
    assert pool.replies[2] == {"changes": [], "slots": []}, "it is not tried again"
    assert before == [slot.worker.incarnation for slot in pool.machine.fleet.slots]


def test_so_it_is_with_a_model_that_is_loaded_by_hand_and_a_load_tries_again(tmp_path: Path) -> None:
    pool = comes(tmp_path)
    pool.broken.add((2, "b"))
    pool.ask(2, "load", '["b", "stub:echo"]')
    pool.settle()
    assert (pool.served(), pool.failure()) == ([{"a"}, {"b"}, set()], "")
    pool.broken.clear()
    pool.ask(3, "load", '["b", "stub:echo"]')
    pool.settle()
    assert (pool.served(), left_out(pool)) == ([{"a"}, {"b"}, {"b"}], [])


def test_a_further_copy_in_whose_load_the_worker_is_killed_is_left_out_at_once(tmp_path: Path) -> None:
    pool = comes(tmp_path, NEW, killed={2})
    assert (pool.served(), left_out(pool)) == ([{"a"}, {"b"}, set()], [("b", 2, "SIGKILL")])


def test_where_the_first_copy_cannot_be_loaded_no_further_one_is_tried(tmp_path: Path) -> None:
    pool = comes(tmp_path, NEW, broken={1, 2})
    assert (pool.served(), left_out(pool)) == ([{"a"}, set(), set()], [])
    assert "slot 1" in pool.failure()
    assert pool.machine.fleet.slots[2].worker.incarnation == 0


def test_the_first_copy_comes_before_further_ones_wherever_it_is(tmp_path: Path) -> None:
    """It has the largest device, so it may fit only there."""
    pool = comes(tmp_path, NEW, broken={1}, devices=(0, 1, 4))
    assert pool.plan.homes["b"].devices == (2, 1)
    assert (pool.served(), left_out(pool)) == ([{"a"}, set(), {"b"}], [("b", 1, "it is broken")])


def test_a_number_of_copies_is_a_number(tmp_path: Path) -> None:
    pool = comes(tmp_path, {**NEW, "replicas": 2}, broken={2})
    assert (pool.served(), left_out(pool)) == ([{"a"}, set(), set()], [])
    assert "slot 2" in pool.failure()


def test_a_model_that_is_served_already_changes_in_all_its_copies_or_in_none(tmp_path: Path) -> None:
    pool = comes(tmp_path, NEW)
    pool.broken.add((2, "b"))
    pool.file = settings(tmp_path, A, {**NEW, "path": "stub:rows"}, devices=(0, 1, 2))
    pool.ask(2)
    pool.settle()
    assert "slot 2" in pool.failure()
    assert {each.path for each in pool.plan.models if each.name == "b"} == {"stub:echo"}


def test_of_two_new_models_the_other_one_is_not_held_up(tmp_path: Path) -> None:
    pool = comes(tmp_path, NEW, {"name": "c", "device_memory": "1GiB", "replicas": "all"}, broken={2})
    assert pool.served() == [{"a", "c"}, {"b", "c"}, {"c"}]
