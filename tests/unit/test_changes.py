"""What is another in a configuration, and how far it reaches."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pool.config import parse_settings
from pool.keys import make_pair
from pool.plan.changes import Change, Reach, differences, needs_new_pool


def dump(*models: Mapping[str, Any], **sections: object) -> dict[str, Any]:
    data = {"model": [{"path": "stub:echo", **model} for model in (models or ({"name": "m"},))], **sections}
    return parse_settings(data, "config", Path("/base")).model_dump()


def lines(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [change.line for change in differences(before, after)]


def test_nothing_is_another_in_the_same_file_nor_in_another_order() -> None:
    assert differences(dump(), dump()) == []
    assert differences(dump({"name": "a"}, {"name": "b"}), dump({"name": "b"}, {"name": "a"})) == []
    assert differences(dump(queue={"default_timeout": "60s"}), dump(queue={"default_timeout": "1m"})) == []


@pytest.mark.parametrize(
    ("section", "values", "line"),
    [
        ("queue", {"max_jobs": 20000}, "[queue] max_jobs: 10000 → 20000"),
        ("queue", {"max_bytes": "512MiB"}, "[queue] max_bytes: 2GiB → 512MiB"),
        ("queue", {"client_max_bytes": 1000}, '[queue] client_max_bytes: "auto" → 1000B'),
        ("queue", {"default_timeout": "250ms"}, "[queue] default_timeout: 60s → 250ms"),
        ("health", {"hung_after": "90s"}, '[health] hung_after: "auto" → 90s'),
        ("crash_reports", {"keep": "off"}, "[crash_reports] keep: 100 → off"),
        ("pool", {"drain_timeout": 1.5}, "[pool] drain_timeout: 30s → 1.5s"),
    ],
)
def test_what_the_pool_itself_decides_is_applied_at_once(section: str, values: dict[str, object], line: str) -> None:
    (change,) = differences(dump(), dump(**{section: values}))
    assert (change.line, change.reach) == (line, Reach.RUNNING)


def test_of_a_model_its_scheduling_too() -> None:
    after = dump({"name": "m", "batch_wait": "2ms", "allowed_batch_sizes": [1, 8], "max_bytes": "1KiB", "weight": 2.0})
    changes = differences(dump(), after)
    assert {change.reach for change in changes} == {Reach.RUNNING}
    assert [change.line for change in changes] == [
        "[[model]] m max_batch: 32 → 8",
        "[[model]] m batch_wait: off → 2ms",
        "[[model]] m allowed_batch_sizes: [] → [1, 8]",
        "[[model]] m weight: 1.0 → 2.0",
        "[[model]] m max_bytes: unlimited → 1KiB",
    ]


def test_what_a_worker_is_told_reaches_the_next_one() -> None:
    after = dump(
        {"name": "m", "path": "stub:rows", "warmup": False, "stateful": True},
        pool={"lanes": 3},
        tensorflow={"jit": True, "device_count": {"CPU": 1}},
        health={"heartbeat": "2s"},
    )
    changes = differences(dump(), after)
    assert {change.reach for change in changes} == {Reach.RUNNING}
    assert [change.line for change in changes] == [
        "[pool] lanes: 2 → 3",
        '[tensorflow] device_count: {} → {"CPU": 1}',
        "[tensorflow] jit: false → true",
        "[health] heartbeat: 1s → 2s",
        '[[model]] m path: "stub:echo" → "stub:rows"',
        "[[model]] m warmup: true → false",
        "[[model]] m stateful: auto → true",
    ]


def test_overrides_come_and_go_with_new_workers() -> None:
    before = dump(
        {"name": "m", "tensorflow": {"jit": False}}, device=[{"use": 0, "tensorflow": {"jit": True}}, {"use": "cpu"}]
    )
    rule = {"layers": "a/.*", "device": "/cpu:1"}
    after = dump(
        {"name": "m", "layer_devices": [rule], "advanced": {"clear_devices": "off"}},
        device=[{"use": [1, 2], "tensorflow": {"allow_growth": False}}],
    )
    changes = differences(before, after)
    assert {change.reach for change in changes} == {Reach.RUNNING}
    assert [change.line for change in changes] == [
        '[[device]] 0 tensorflow: {"jit": true} → {}',
        '[[device]] [1, 2] tensorflow: {} → {"allow_growth": false}',
        '[[model]] m advanced clear_devices: "missing" → "off"',
        '[[model]] m tensorflow: {"jit": false} → {}',
        '[[model]] m layer_devices: [] → [{"layers": "a/.*", "device": "/cpu:1"}]',
    ]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"endpoint": "ipc:///x"}, '[pool] endpoint: auto → "ipc:///x"'),
        ({"listen": ["tcp://127.0.0.1:5"]}, '[pool] listen: [] → ["tcp://127.0.0.1:5"]'),
        ({"devices": [0, [1, 2]]}, '[pool] devices: "auto" → [0, [1, 2]]'),
        ({"state": "/s"}, '[pool] state: auto → "/s"'),
    ],
)
def test_what_the_pool_is_made_of_takes_a_new_one(values: dict[str, object], line: str) -> None:
    (change,) = differences(dump(), dump(pool=values))
    assert change.reach is Reach.POOL
    refusal = f"f.toml: {line}: this needs a new pool; run `systemctl restart`, or `pool stop` and `pool start`"
    assert needs_new_pool("f.toml", change) == refusal


def test_models_come_and_go_with_new_workers() -> None:
    changes = differences(dump({"name": "a"}, {"name": "b"}), dump({"name": "b"}, {"name": "c"}))
    assert [change.line for change in changes] == ["[[model]] a: is gone", "[[model]] c: is new"]
    assert {change.reach for change in changes} == {Reach.RUNNING}
    assert all(change.is_of_model for change in changes)


def test_where_a_model_may_be_matters_only_if_it_moves() -> None:
    changes = differences(dump(), dump({"name": "m", "devices": "auto", "replicas": 2, "device_memory": "1GiB"}))
    assert {change.reach for change in changes} == {Reach.PLACEMENT}
    assert [change.line for change in changes] == [
        '[[model]] m replicas: "auto" → 2',
        "[[model]] m device_memory: auto → 1GiB",
    ]


@pytest.mark.parametrize(("before", "after"), [("off", "30s"), ("30s", "off")])
def test_whether_nvml_is_asked_at_all_takes_a_new_pool(before: str, after: str) -> None:
    (change,) = differences(dump(health={"device_free_timeout": before}), dump(health={"device_free_timeout": after}))
    assert change.reach is Reach.POOL
    (change,) = differences(dump(), dump(health={"device_free_timeout": "9s"}))
    assert change.reach is Reach.RUNNING


def test_a_key_that_nobody_knows_is_not_said_to_be_applied() -> None:
    before, after = dump(), dump()
    before["pool"]["novelty"], after["pool"]["novelty"] = 1, 2
    assert differences(before, after) == [Change("[pool] novelty", 1, 2, Reach.POOL)]


def test_every_key_of_today_is_known_but_those_of_the_pool_itself() -> None:
    """A key that is added is to be given its reach, or to be named here."""
    before = _whole()
    unknown = {
        f"{section} {name}"
        for section, table in [*before.items(), *((many, before[many][0]) for many in ("client", "model"))]
        if isinstance(table, dict)
        for name in table
        if _reach_of(section, name) is Reach.POOL
    }
    assert unknown == {
        "pool endpoint",
        "pool group",
        "pool listen",
        "pool devices",
        "pool workers_per_device",
        "advanced spin_us",
        "gateway listen",
        "pool state",
        "pool cpu_affinity",
        *(f"cluster {name}" for name in before["cluster"]),
    }


def _whole() -> dict[str, Any]:
    """With one of all that may be left out."""
    return dump(gateway={}, client=[{"name": "c"}])


def _reach_of(section: str, name: str) -> Reach:
    one, other = _whole(), _whole()
    tables = [dumped[section][0] if section in ("client", "model") else dumped[section] for dumped in (one, other)]
    if name == "advanced":  # its keys are told one by one
        tables, name = [table["advanced"] for table in tables], "tolerance" if section == "model" else "max_headers"
    for table, value in zip(tables, (5, 6), strict=True):
        table[name] = value
    return differences(one, other)[0].reach


def test_a_bound_of_recycling_that_there_is_not_is_off() -> None:
    before, after = dump(), dump()
    after["recycle"]["jobs"] = 1000
    (change,) = differences(before, after)
    assert (change.line, change.reach) == ("[recycle] jobs: off → 1000", Reach.RUNNING)


def test_keys_that_come_go_or_lie_elsewhere_need_a_new_pool(tmp_path: Path) -> None:
    make_pair(tmp_path, "server")
    section = {"key": str(tmp_path / "server.key_secret"), "clients": str(tmp_path)}
    none, some = dump(), dump(security=section)
    for before, after, line in ((none, some, "[security]: is new"), (some, none, "[security]: is gone")):
        (change,) = differences(before, after)
        assert (change.reach, change.line) == (Reach.POOL, line)
    (change,) = differences(some, dump(security={**section, "max_connections": 5}))
    assert (change.reach, change.key) == (Reach.POOL, "[security] max_connections")


def test_the_rights_of_a_client_change_at_once() -> None:
    (change,) = differences(dump(client=[{"name": "c"}]), dump(client=[{"name": "c", "may": ["stop"]}]))
    assert (change.reach, change.line) == (Reach.RUNNING, '[[client]] c may: [] → ["stop"]')
