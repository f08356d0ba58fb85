"""From settings to what the pool is started with."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pool.config import parse_settings
from pool.core.policy import ModelPolicy
from pool.errors import InvalidConfig
from pool.plan.plan import Plan
from pool.plan.planning import make_plan
from pool.plan.planning import plan as planned
from pool.wire.independence import Batching
from pool.wire.optimizations import OptimizationSettings
from pool.wire.worker_messages import Clear, HandlerSettings, LayerRule, ModelSettings
from support.fake_nvml import eight_gpus

HOME = MappingProxyType({"HOME": "/home/somebody", "XDG_RUNTIME_DIR": "/run/user/1000"})


def plan(pool: dict[str, object] | None = None, **sections: object) -> Plan:
    data = {
        "model": [{"name": "m", "path": "stub:echo", "devices": "all"}],
        "pool": {"devices": ["cpu", "cpu"], **(pool or {})},
        **sections,
    }
    return make_plan(parse_settings(data, "config", Path("/base")), HOME, eight_gpus())


def refusal(pool: dict[str, object] | None = None, **sections: object) -> str:
    with pytest.raises(InvalidConfig) as caught:
        plan(pool, **sections)
    return str(caught.value)


def test_each_model_has_the_policy_that_its_section_says() -> None:
    models = [
        {"name": "plain", "path": "stub:echo"},
        {"name": "vouched", "path": "stub:echo", "batching": "always"},
        {"name": "whole", "path": "stub:echo", "batching": "off"},
        {
            "name": "tuned",
            "path": "stub:echo",
            "allowed_batch_sizes": [1, 4, 16],
            "batch_wait": "5ms",
            "weight": 2.5,
            "max_jobs": 7,
            "max_bytes": "1MiB",
        },
    ]
    assert plan(model=models).policy.models == {
        "plain": ModelPolicy(batching=Batching.AUTO),
        "vouched": ModelPolicy(batching=Batching.ALWAYS),
        "whole": ModelPolicy(batching=Batching.OFF),
        "tuned": ModelPolicy(16, 0.005, (1, 4, 16), 2.5, 7, 1 << 20, Batching.AUTO),
    }


def test_the_bounds_of_a_client_are_a_share_unless_they_are_said() -> None:
    policy = plan().policy
    assert (policy.client_max_jobs, policy.client_max_bytes) == (None, None)
    policy = plan(queue={"client_max_jobs": 3, "client_max_bytes": 4}).policy
    assert (policy.client_max_jobs, policy.client_max_bytes) == (3, 4)


def test_a_job_can_ask_for_a_slot_by_each_of_its_names() -> None:
    slots = plan({"devices": ["cpu", 6, [0, 1], "cpu"]}).slots()
    first, second, seventh = (gpu.uuid for gpu in (eight_gpus().gpus[index] for index in (0, 1, 6)))
    assert [slot.device for slot in slots] == ["cpu:0", "gpu:6", "gpu:0+1", "cpu:1"]
    assert [slot.names for slot in slots] == [
        {"slot:0", "cpu:0", "cpu"},
        {"slot:1", "gpu:6", "6", seventh},
        {"slot:2", "gpu:0+1", "0", "1", first, second},
        {"slot:3", "cpu:1", "cpu"},
    ]
    assert all(slot.models == ("m",) for slot in slots)


def models(*tensorflow: Mapping[str, Any], **others: object) -> list[dict[str, object]]:
    return [
        {"name": name, "path": "stub:echo", "devices": "all", "tensorflow": own, **others}
        for name, own in zip("abc", tensorflow, strict=False)
    ]


def test_nothing_is_another_where_nothing_is_overridden() -> None:
    made = plan({"devices": ["cpu", 6]})
    found = [(each.device.label, each.models, each.tensorflow, each.tensorflow_by_model) for each in made.shares]
    plain_session = made.settings.tensorflow.message()
    assert found == [("cpu:0", ("m",), plain_session, {}), ("gpu:6", ("m",), plain_session, {})]
    assert made.welcome(1).tensorflow == plain_session
    assert made.welcome(1).models == made.models
    plain = ModelSettings("m", "stub:echo", True)
    for each in (*made.models, plain):
        assert (each.tensorflow, each.layer_devices, each.clear_devices) == (None, (), Clear.MISSING)


def test_the_settings_of_a_model_override_that_of_its_device_and_that_the_pools() -> None:
    made = plan(
        {"devices": [0, 1, "cpu", "cpu"]},
        tensorflow={"allow_growth": False, "per_process_gpu_memory_fraction": 0.9, "inter_op_parallelism_threads": 1},
        device=[
            {"use": 1, "tensorflow": {"per_process_gpu_memory_fraction": 0.5, "jit": True}},
            {"use": "cpu:1", "tensorflow": {"intra_op_parallelism_threads": 7}},
        ],
        model=models({"per_process_gpu_memory_fraction": 0.25}),
    )
    found = [made.welcome(slot).tensorflow for slot in range(4)]
    assert [each.per_process_gpu_memory_fraction for each in found] == [0.25] * 4
    assert [each.jit for each in found] == [False, True, False, False]
    assert [each.intra_op_parallelism_threads for each in found] == [0, 0, made.cpu_share, 7]
    assert {(each.allow_growth, each.inter_op_parallelism_threads) for each in found} == {(False, 1)}


def test_slots_that_share_a_device_have_its_names_and_their_own() -> None:
    assert "would take all of its memory" in str(refusal({"devices": [0]}, model=models({}, {"allow_growth": False})))
    made = plan(
        {"devices": [0], "workers_per_device": 2},
        model=models({"per_process_gpu_memory_fraction": 0.5}, {"per_process_gpu_memory_fraction": 0.4}),
    )
    slots = made.slots()
    assert [(slot.models, slot.device) for slot in slots] == [(("a",), "gpu:0")] * 2 + [(("b",), "gpu:0")] * 2
    assert ["slot:3" in slot.names for slot in slots] == [False, False, False, True]
    assert all("gpu:0" in slot.names for slot in slots)
    fractions = [made.welcome(slot).tensorflow.per_process_gpu_memory_fraction for slot in range(4)]
    assert fractions == [0.25, 0.25, 0.2, 0.2]


def test_what_belongs_to_a_session_alone_travels_with_its_model() -> None:
    made = plan({"devices": ["cpu"]}, model=models({}, {"allow_soft_placement": False}))
    welcome = made.welcome(0)
    first, second = welcome.models
    assert (len(made.shares), welcome.tensorflow.allow_soft_placement, first.tensorflow) == (1, True, None)
    assert second.tensorflow == dataclasses.replace(welcome.tensorflow, allow_soft_placement=False)


def test_a_device_has_room_for_a_copy_in_each_of_its_workers() -> None:
    told = refusal({"devices": [0], "workers_per_device": 9}, model=models({}, device_memory="10GiB"))
    assert "90.0 GiB  device_memory  does not fit on gpu:0" in told


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (5, "[[device]] use: 5 is not a device of the pool; it has cpu:0, gpu:6"),
        ("cpu:3", '[[device]] use: "cpu:3" is not a device of the pool; it has cpu:0, gpu:6'),
    ],
)
def test_a_device_that_the_pool_does_not_have_cannot_be_overridden(use: object, told: str) -> None:
    assert refusal({"devices": ["cpu", 6]}, device=[{"use": use}]) == told


def test_a_device_is_overridden_once() -> None:
    told = refusal({"devices": ["cpu", 6]}, device=[{"use": "cpu"}, {"use": "cpu:0"}])
    assert told == "[[device]] use: cpu:0 is named by two sections; write the keys of both into one"


def test_the_rules_of_a_model_reach_its_workers() -> None:
    rules = [{"layers": "conv1/.*", "device": "/CPU:01"}, {"layers": ".*", "device": "/device:cpu:0"}]
    made = plan(
        {"devices": ["cpu"]},
        model=models({"device_count": {"CPU": 2}}, layer_devices=rules, advanced={"clear_devices": "all"}),
    )
    (model,) = made.welcome(0).models
    assert model.layer_devices == (LayerRule("conv1/.*", "/cpu:1"), LayerRule(".*", "/cpu:0"))
    assert model.clear_devices is Clear.ALL
    told = refusal({"devices": ["cpu", 6]}, model=models({}, layer_devices=[{"layers": "a", "device": "/gpu:0"}]))
    assert told.startswith("model a: its layer_devices name /gpu:0, but its worker on cpu:0 has /cpu:0;")


def test_a_model_may_be_spread_over_its_workers_devices() -> None:
    made = plan({"devices": [[0, 1]]}, model=models({}, layer_devices="least-loaded"))
    (model,) = made.welcome(0).models
    assert (model.layer_devices, model.least_loaded) == ((), True)
    assert not plan().models[0].least_loaded


def test_copies_need_the_memory_of_a_copy_on_each_gpu() -> None:
    made = plan({"devices": [[0, 1]]}, model=models({}, copy_per_device=True, device_memory="14GiB"))
    assert made.welcome(0).models[0].copy_per_device
    told = refusal({"devices": [[0, 1]]}, model=models({}, copy_per_device=True, device_memory="17GiB"))
    assert "34.0 GiB  device_memory  does not fit on gpu:0+1" in told
    assert plan({"devices": [[0, 1]]}, model=models({}, device_memory="17GiB")).placement == (("a",),)


@pytest.mark.parametrize("place_anew", [True, False])
def test_a_plan_that_is_made_again_has_the_same_slots(place_anew: bool) -> None:
    fractions = [{"per_process_gpu_memory_fraction": 0.1 * number} for number in (1, 2, 3)]
    data = {"pool": {"devices": [3, 1, "cpu"], "workers_per_device": 2}, "model": models(*fractions)}
    made = plan(data["pool"], model=data["model"])  # type: ignore[arg-type]
    settings = parse_settings({**data, "model": data["model"][::-1]}, "config", Path("/base"))  # type: ignore[index]
    again = planned(replace(made.world.run_by(made), settings=settings, may_move=place_anew))
    assert again.shares == made.shares
    assert again.cpu_share == made.cpu_share


def test_a_worker_is_told_how_to_load_and_warm_each_model() -> None:
    models = [
        {"name": "a", "path": "stub:a", "tags": ["t"], "allowed_batch_sizes": [2, 8]},
        {"name": "b", "path": "stub:b", "inputs": ["x"], "outputs": ["y"], "max_batch": 1, "warmup": False},
        {"name": "c", "path": "stub:c"},
    ]
    cache = "/home/somebody/.local/state/pool/converted"
    assert plan(model=models).models == (
        ModelSettings("a", "stub:a", True, tags=("t",), batch_sizes=(2, 8), cache=cache),
        ModelSettings("b", "stub:b", False, inputs=("x",), outputs=("y",), batch_sizes=(1,), cache=cache),
        ModelSettings("c", "stub:c", True, batch_sizes=(1, 32), cache=cache),
    )


def test_the_state_folder_is_the_users_unless_it_is_said() -> None:
    assert plan().world.here.state == Path("/home/somebody/.local/state/pool")
    assert plan({"state": "kept"}).world.here.state == Path("/base/kept")


def test_how_many_crash_reports_are_kept_is_said() -> None:
    made = plan(crash_reports={"keep": 3, "max_bytes": "1MiB"})
    assert (made.settings.crash_reports.keep, made.settings.crash_reports.max_bytes) == (3, 1 << 20)


def test_a_plan_can_be_printed() -> None:
    made = plan(quarantine={"keep": 3, "max_bytes": "1MiB"})
    assert (made.settings.quarantine.keep, made.settings.quarantine.max_bytes) == (3, 1 << 20)
    assert "quarantine=QuarantineSection(keep=3" in repr(made)


def test_a_handler_travels_with_its_model(tmp_path: Path) -> None:
    model = {"name": "m", "path": "stub:rows", "allowed_batch_sizes": [1, 8]}
    handler = {"handler": "a.b:C", "handler_path": str(tmp_path), "handler_options": {"names": ["x"]}}
    (made,) = plan(model=[{**model, **handler}]).models
    assert made.handler == HandlerSettings("a.b:C", str(tmp_path), '{"names": ["x"]}', (1, 8))
    told = refusal(model=[{**model, "handler": "a:B", "handler_path": "nowhere"}])
    assert told == "model m: handler_path: /base/nowhere is not a folder; write the folder of a:B's module"


def test_optimizations_travel_where_any_is_asked_for() -> None:
    keys = {
        "freeze": True,
        "advanced": {"grappler": {"remapping": "off", "layout_optimizer": "aggressive"}, "tolerance": 0.01},
    }
    models = [
        {"name": "a", "path": "stub:echo", **keys},
        {"name": "b", "path": "stub:echo", "advanced": {"tolerance": 0.1}},
    ]
    asked, plain = plan(model=models).models
    passes = {"remapping": "off", "layout_optimizer": "aggressive"}
    assert asked.optimizations == OptimizationSettings(freeze=True, grappler=passes, tolerance=0.01)
    assert plain.optimizations is None


def test_copies_and_optimizations_are_not_tried_together() -> None:
    told = refusal(model=[{"name": "m", "path": "stub:echo", "copy_per_device": True, "freeze": True}])
    assert told.startswith(
        "model m: copy_per_device and optimizations (freeze, xla, mixed_precision, grappler) cannot be combined;"
    )


def test_cpu_workers_are_bound_and_gpu_workers_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)))
    made = plan({"devices": ["cpu", 6, "cpu"], "cpu_affinity": ["0-3", "5"]})
    assert made.cores == ((0, 1, 2, 3), (), (5,))
    threads = [made.welcome(slot).tensorflow.intra_op_parallelism_threads for slot in range(3)]
    assert threads == [4, 0, 1]
    assert plan({"devices": ["cpu", 6, "cpu"]}).cores == ((), (), ())
    assert [len(cores) for cores in plan({"devices": ["cpu", 6, "cpu"], "cpu_affinity": "auto"}).cores] == [3, 0, 3]
    shared = plan({"devices": ["cpu"], "workers_per_device": 3, "cpu_affinity": "auto"})
    assert sorted(core for cores in shared.cores for core in cores) == list(range(6))
    told = refusal({"devices": ["cpu", 6, "cpu"], "cpu_affinity": ["0-3"]})
    assert told.startswith("[pool] cpu_affinity: 1 lists of cores for 2 CPU slots;")
