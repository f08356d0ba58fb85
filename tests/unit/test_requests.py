"""What of a changed file, or of what a client asks, a running pool takes."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.config import Settings, parse_settings
from pool.errors import InvalidConfig
from pool.plan.plan import Plan
from pool.plan.planning import make_plan
from pool.plan.requests import RELOAD, Outcome, Request, Requests, Source, grant, request_of
from pool.plan.world import World
from support.fake_nvml import eight_gpus


def settings(*models: Mapping[str, Any], **sections: object) -> Settings:
    data = {
        "pool": {"devices": [0, "cpu"]},
        "model": [{"path": "stub:echo", "devices": "all", **model} for model in models],
        **sections,
    }
    return parse_settings(data, "f.toml", Path("/base"))


def planned(settings: Settings) -> Plan:
    return make_plan(settings, {}, eight_gpus())


def running(settings: Settings) -> World:
    made = planned(settings)
    return made.world.run_by(made)


def reloaded(before: Settings, after: Settings) -> Plan:
    return grant(RELOAD, Source("f.toml", lambda: after), running(before)).plan


def rolled(before: Settings, after: Settings) -> list[bool]:
    """Of each slot, whether its worker is told something else."""
    former, latter = planned(before), reloaded(before, after)
    return [latter.welcome(slot) != former.welcome(slot) for slot in range(len(latter.shares))]


def test_an_override_that_changes_reaches_the_workers_that_it_concerns() -> None:
    before = settings({"name": "a"})
    device = [{"use": 0, "tensorflow": {"allow_growth": False}}]
    assert rolled(before, settings({"name": "a"}, device=device)) == [True, False]
    assert rolled(settings({"name": "a"}, device=device), before) == [True, False]
    assert rolled(before, settings({"name": "a", "tensorflow": {"jit": True}})) == [True, True]
    apart = {"name": "a", "tensorflow": {"intra_op_parallelism_threads": 1}}, {"name": "b"}
    more = {"name": "a", "tensorflow": {"intra_op_parallelism_threads": 2}}, {"name": "b"}
    assert rolled(settings(*apart), settings(*more)) == [True, False, True, False]


def test_models_in_another_order_stay_where_they_are() -> None:
    one, other = {"name": "a", "tensorflow": {"intra_op_parallelism_threads": 1}}, {"name": "b"}
    assert rolled(settings(one, other), settings(other, one)) == [False] * 4


@pytest.mark.parametrize("section", [{}, {"device": [{"use": 0, "tensorflow": {"inter_op_parallelism_threads": 2}}]}])
def test_models_that_come_to_need_workers_of_their_own_take_a_new_pool(section: dict[str, object]) -> None:
    before = settings({"name": "a"}, {"name": "b"})
    after = settings({"name": "a", "tensorflow": {"inter_op_parallelism_threads": 1}}, {"name": "b"}, **section)
    with pytest.raises(InvalidConfig) as caught:
        reloaded(before, after)
    lines = str(caught.value).splitlines()
    assert any(line.startswith('f.toml: [[model]] a tensorflow: {} → {"inter_op_') for line in lines)
    assert all(line.endswith("(the slots would change)") for line in lines)
    assert len(lines) == 1 + len(section)


def test_what_cannot_be_met_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="layer_devices name /gpu:3"):
        reloaded(
            settings({"name": "a"}), settings({"name": "a", "layer_devices": [{"layers": "x", "device": "/gpu:3"}]})
        )


def placed(plan: Plan) -> list[set[str]]:
    return [set(models) for models in plan.placement]


def test_a_model_more_goes_where_it_has_room_and_moves_no_other() -> None:
    big, small = {"device_memory": "12GiB", "devices": "auto"}, {"device_memory": "1GiB", "devices": "auto"}
    before = settings({"name": "a", **small}, {"name": "b", **big})
    first = planned(before)
    more = settings({"name": "new", **big}, {"name": "a", **small}, {"name": "b", **big})
    found = reloaded(before, more)
    assert [models - {"new"} for models in placed(found)] == placed(first)
    assert sum("new" in models for models in placed(found)) == 1
    less = grant(RELOAD, Source("f.toml", lambda: before), found.world.run_by(found)).plan
    assert placed(less) == placed(first)


def test_a_model_more_that_fits_nowhere_is_refused() -> None:
    before = settings({"name": "a"})
    with pytest.raises(InvalidConfig, match="the models do not fit the devices"):
        reloaded(before, settings({"name": "a"}, {"name": "new", "device_memory": "4000GiB", "devices": [0]}))


def test_a_model_more_that_needs_a_worker_of_its_own_takes_a_new_pool() -> None:
    before = settings({"name": "a"})
    apart = settings({"name": "a"}, {"name": "new", "tensorflow": {"inter_op_parallelism_threads": 1}})
    with pytest.raises(InvalidConfig, match=r"\[\[model\]\] new: is new: this needs a new pool") as caught:
        reloaded(before, apart)
    assert str(caught.value).endswith("(the slots would change)")


def test_wishes_of_clients_are_checked() -> None:
    assert request_of("load", '["m", "/models/m"]') == Request("load", "m", "/models/m")
    with_keys = Request("load", "m", "/models/m", {"max_batch": 8}, "/here")
    assert request_of("load", '["m", "/models/m", {"max_batch": 8}, "/here"]') == with_keys
    assert request_of("unload", "m") == Request("unload", "m")
    for about in ("", "m", "[]", '["m"]', '["m", 1]', '{"m": "p"}', '["m", "p", "q"]', "[" * 5000):
        with pytest.raises(ValueError, match="give the name and the path of a model"):
            request_of("load", about)


def test_a_model_without_a_path_is_as_the_file_has_it_and_no_other_changes() -> None:
    file = settings({"name": "a"}, {"name": "b"}, {"name": "c"})
    source = Source("f.toml", lambda: file)
    world = running(file)
    for request in (Request("unload", "a"), Request("unload", "b"), Request("load", "c", "stub:rows")):
        after = grant(request, source, world).plan
        world = after.world.run_by(after)
    file = settings({"name": "a", "max_batch": 7}, {"name": "b"}, {"name": "c"})
    after = grant(request_of("load", '["a", ""]'), source, world).plan
    assert _paths(after) == [("c", "stub:rows"), ("a", "stub:echo")]
    assert after.world.settings.model[1].max_batch == 7
    assert after.world.loaded.keys() == {"c"}
    back = grant(Request("load", "c"), source, after.world.run_by(after)).plan
    assert back.world.loaded == {}
    assert _paths(back) == [("c", "stub:echo"), ("a", "stub:echo")]
    with pytest.raises(InvalidConfig, match=r"f\.toml has no model 'd'; there are: a, b, c"):
        grant(Request("load", "d"), source, world)
    with pytest.raises(InvalidConfig, match="started without a configuration file"):
        grant(Request("load", "a"), Source("f.toml"), world)


def _paths(plan: Plan) -> list[tuple[str, str]]:
    return [(model.name, model.path) for model in plan.world.settings.model]


def test_what_is_loaded_is_beside_what_the_file_says() -> None:
    file = settings({"name": "a"})
    source = Source("f.toml", lambda: file)

    def then(world: World, request: Request) -> World:
        after = grant(request, source, world).plan
        return after.world.run_by(after)

    loaded = then(running(file), Request("load", "new", "stub:rows"))
    assert [model.name for model in loaded.settings.model] == ["a", "new"]
    again = then(loaded, RELOAD)
    assert [model.name for model in again.settings.model] == ["a", "new"]
    file = settings({"name": "a"}, {"name": "new", "path": "stub:echo"})
    again = then(again, RELOAD)
    assert [model.path for model in again.settings.model] == ["stub:echo", "stub:echo"]
    assert again.loaded == {}
    less = then(again, Request("unload", "a"))
    assert [model.name for model in less.settings.model] == ["new"]
    with pytest.raises(InvalidConfig, match="model new is the only one"):
        grant(Request("unload", "new"), source, less)


def test_what_was_read_for_another_world_than_there_is_by_now_is_read_again() -> None:
    """Models may move while a thread reads."""
    read = settings({"name": "a"})
    times: list[int] = []

    def again() -> Settings:
        times.append(1)
        return read

    requests = Requests(Source("f.toml", again), lambda: None)
    former = running(read)
    now = replace(former)
    requests.ask(RELOAD, None)
    outcomes: list[Outcome] = list(requests.tend(former))
    ends = time.monotonic() + 20
    while not outcomes and time.monotonic() < ends:
        outcomes += requests.tend(now)
    assert [outcome.refusal for outcome in outcomes] == [""]
    assert len(times) == 2


def on_two(folder: Path, *models: Mapping[str, Any]) -> Settings:
    several = [{"path": "stub:echo", **({} if "devices" in model else {"replicas": 1}), **model} for model in models]
    return parse_settings({"pool": {"devices": [0, 1]}, "model": several}, "f.toml", folder)


def frozen(folder: Path, name: str, size: int) -> str:
    path = folder / name
    with path.open("wb") as file:
        file.truncate(size)
    return str(path)


def test_a_model_that_becomes_the_largest_stays_where_it_is_and_moves_no_other(tmp_path: Path) -> None:
    """The largest has the first choice when a pool starts, which is none to be made again by one that serves."""
    large, small, larger = (frozen(tmp_path, name, size) for name, size in (("a.pb", 90), ("b.pb", 50), ("c.pb", 200)))
    before = on_two(tmp_path, {"name": "a", "path": large}, {"name": "b", "path": small})
    first, world = planned(before), running(before)
    assert first.placement == (("a",), ("b",))
    for after in (
        on_two(tmp_path, {"name": "a", "path": large}, {"name": "b", "path": larger}),
        on_two(tmp_path, {"name": "a", "path": large}, {"name": "b", "path": small, "device_memory": "9GiB"}),
    ):
        assert reloaded(before, after).placement == first.placement
    loaded = grant(Request("load", "b", larger), Source("f.toml"), world).plan
    assert loaded.placement == first.placement
    sizes = {name: size.size_bytes for name, size in loaded.sizes.items()}
    assert (loaded.welcome(0), sizes) == (first.welcome(0), {"a": 90, "b": 200})


def test_a_model_that_has_no_room_any_more_moves_and_the_others_stay() -> None:
    """Each of the cards has 15 GiB free."""
    home = Path("/base")
    before = on_two(
        home,
        {"name": "a", "device_memory": "8GiB"},
        {"name": "b", "device_memory": "5GiB"},
        {"name": "c", "device_memory": "2GiB"},
    )
    assert placed(planned(before)) == [{"a"}, {"b", "c"}]
    grown = on_two(
        home,
        {"name": "a", "device_memory": "8GiB"},
        {"name": "b", "device_memory": "5GiB"},
        {"name": "c", "device_memory": "11GiB"},
    )
    with pytest.raises(InvalidConfig, match="the models do not fit the devices"):
        reloaded(before, on_two(home, {"name": "a", "device_memory": "16GiB"}))
    assert placed(reloaded(before, grown)) == [{"a", "b"}, {"c"}], "there is no other way"
    little = on_two(
        home,
        {"name": "a", "device_memory": "8GiB"},
        {"name": "b", "device_memory": "5GiB"},
        {"name": "c", "device_memory": "6GiB"},
    )
    assert placed(reloaded(before, little)) == [{"a"}, {"b", "c"}]
    moved = on_two(
        home,
        {"name": "a", "device_memory": "4GiB"},
        {"name": "b", "device_memory": "5GiB"},
        {"name": "c", "device_memory": "10500MiB"},
    )
    assert placed(reloaded(before, moved)) == [{"a", "c"}, {"b"}]


def test_replicas_that_come_and_go_leave_the_others_where_they_are() -> None:
    home = Path("/base")
    one = on_two(home, {"name": "a", "device_memory": "4GiB"}, {"name": "b", "device_memory": "1GiB"})
    two = on_two(home, {"name": "a", "device_memory": "4GiB"}, {"name": "b", "device_memory": "1GiB", "replicas": 2})
    assert placed(reloaded(one, two)) == [{"a", "b"}, {"b"}]
    assert placed(reloaded(two, one)) == [{"a"}, {"b"}]
    pins = on_two(home, {"name": "a", "device_memory": "4GiB"}, {"name": "b", "device_memory": "1GiB", "devices": [0]})
    assert placed(reloaded(one, pins)) == [{"a", "b"}, set()]


def test_what_is_asked_without_the_file_is_not_refused_in_its_name() -> None:
    apart = {"name": "a", "tensorflow": {"inter_op_parallelism_threads": 1}}
    before = settings(apart, {"name": "b", "devices": ["cpu"]})
    source, world = Source("config.toml"), running(before)
    with pytest.raises(
        InvalidConfig, match=r"\Apool unload: \[\[model\]\] a: is gone: this needs a new pool"
    ) as caught:
        grant(Request("unload", "a"), source, world)
    assert "config.toml" not in str(caught.value)
    with pytest.raises(InvalidConfig, match=r"\Apool load: \[\[model\]\] c: is new: this needs a new pool"):
        grant(Request("load", "c", "stub:echo"), source, world)
