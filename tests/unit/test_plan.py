"""From settings to what the pool is started with."""

from pathlib import Path
from types import MappingProxyType

from fakes import pynvml

from pool.config import parse_settings
from pool.core.policy import ModelPolicy
from pool.devices import discover_gpus
from pool.plan import Plan, make_plan
from pool.wire.worker_messages import ModelSettings

HOME = MappingProxyType({"HOME": "/home/somebody", "XDG_RUNTIME_DIR": "/run/user/1000"})


def plan(pool: dict[str, object] | None = None, **sections: object) -> Plan:
    data = {
        "model": [{"name": "m", "path": "stub:echo", "devices": "all"}],
        "pool": {"devices": ["cpu", "cpu"], **(pool or {})},
        **sections,
    }
    return make_plan(parse_settings(data, "config", Path("/base")), HOME, discover_gpus(pynvml))  # type: ignore[arg-type]


def test_each_model_has_the_policy_that_its_section_says() -> None:
    models = [
        {"name": "plain", "path": "stub:echo"},
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
        "plain": ModelPolicy(),
        "tuned": ModelPolicy(16, 0.005, (1, 4, 16), 2.5, 7, 1 << 20),
    }


def test_the_bounds_of_a_client_are_a_share_unless_they_are_said() -> None:
    policy = plan().policy
    assert (policy.client_max_jobs, policy.client_max_bytes) == (None, None)
    policy = plan(queue={"client_max_jobs": 3, "client_max_bytes": 4}).policy
    assert (policy.client_max_jobs, policy.client_max_bytes) == (3, 4)


def test_a_job_can_ask_for_a_slot_by_each_of_its_names() -> None:
    slots = plan({"devices": ["cpu", 6, [0, 1], "cpu"]}).slots()
    first, second, seventh = (gpu.uuid for gpu in (discover_gpus(pynvml).gpus[index] for index in (0, 1, 6)))
    assert [slot.device for slot in slots] == ["cpu:0", "gpu:6", "gpu:0+1", "cpu:1"]
    assert [slot.names for slot in slots] == [
        {"slot:0", "cpu:0", "cpu"},
        {"slot:1", "gpu:6", "6", seventh},
        {"slot:2", "gpu:0+1", "0", "1", first, second},
        {"slot:3", "cpu:1", "cpu"},
    ]
    assert all(slot.models == ("m",) for slot in slots)


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
    assert plan().state == Path("/home/somebody/.local/state/pool")
    assert plan({"state": "kept"}).state == Path("/base/kept")


def test_how_many_bundles_are_kept_is_said() -> None:
    made = plan(recorder={"keep": 3, "max_bytes": "1MiB"})
    assert (made.recorder_keep, made.recorder_max_bytes) == (3, 1 << 20)


def test_a_plan_can_be_printed() -> None:
    made = plan(quarantine={"keep": 3, "max_bytes": "1MiB"})
    assert (made.quarantine_keep, made.quarantine_max_bytes) == (3, 1 << 20)
    assert "quarantine_keep=3" in repr(made)
