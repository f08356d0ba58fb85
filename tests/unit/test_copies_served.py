"""What becomes of further copies while a pool serves: they give way, and they fill what is empty."""

from pathlib import Path

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
