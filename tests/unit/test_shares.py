"""Which workers a device has, what each one's share of it is, and what cannot be met."""

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.devices import Device
from pool.plan.shares import ModelShare, Share, refusals, share_out
from pool.wire.worker_messages import LayerRule, TensorFlowSettings

GIB = 2**30
PLAIN = TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False)
GPU = Device("gpu", ("GPU-0",), "gpu:0", "H200", 8 * GIB, (0,))
CPU = Device("cpu", (), "cpu:0", "CPU", None)


def half(**others: object) -> TensorFlowSettings:
    return dataclasses.replace(PLAIN, **{"per_process_gpu_memory_fraction": 0.5, **others})  # type: ignore[arg-type]


def model(name: str, settings: TensorFlowSettings = PLAIN, size: int = 0, *devices: str) -> ModelShare:
    return ModelShare(name, [settings], tuple(LayerRule(".*", device) for device in devices), size)


def on(device: Device, models: Sequence[ModelShare], workers: int = 1) -> tuple[Share, ...]:
    return share_out([device], [[each.name for each in models]], models, [PLAIN], workers)


def refused(device: Device, *models: ModelShare, workers: int = 1) -> list[str]:
    return list(refusals(on(device, models, workers), models))


def test_models_that_differ_in_nothing_share_the_one_worker() -> None:
    assert on(GPU, [model("b"), model("a")]) == (Share(GPU, ("b", "a"), PLAIN, {}),)
    assert on(GPU, []) == (Share(GPU, (), PLAIN, {}),)


def test_models_whose_process_wide_options_differ_have_a_worker_each() -> None:
    greedy = half(allow_growth=False)
    assert on(GPU, [model("b"), model("c", greedy), model("a", greedy)]) == (
        Share(GPU, ("c", "a"), greedy, {}),
        Share(GPU, ("b",), PLAIN, {}),
    )


@pytest.mark.parametrize(
    "option",
    [
        {"allow_growth": False},
        {"per_process_gpu_memory_fraction": 0.5},
        {"intra_op_parallelism_threads": 3},
        {"inter_op_parallelism_threads": 3},
        {"device_count": {"CPU": 2}},
        {"op_libraries": ("/ops.so",)},
    ],
)
def test_what_belongs_to_the_process_is_known(option: dict[str, object]) -> None:
    other = dataclasses.replace(PLAIN, **option)  # type: ignore[arg-type]
    assert [share.tensorflow for share in on(CPU, [model("a"), model("b", other)])] == [PLAIN, other]


@pytest.mark.parametrize("option", ["allow_soft_placement", "log_device_placement", "jit"])
def test_what_belongs_to_a_session_takes_no_worker_of_its_own(option: str) -> None:
    changed: dict[str, Any] = {option: not getattr(PLAIN, option)}
    other = dataclasses.replace(PLAIN, **changed)
    assert on(GPU, [model("a"), model("b", other)]) == (Share(GPU, ("a", "b"), PLAIN, {"b": other}),)


def test_several_workers_a_device_divide_its_fraction() -> None:
    fraction = half(per_process_gpu_memory_fraction=0.25)
    assert on(GPU, [model("a", half())], workers=2) == (Share(GPU, ("a",), fraction, {}),) * 2
    assert not refused(GPU, model("a", half()), model("b", half(allow_growth=False)), workers=3)


def test_fractions_that_do_not_fit_are_refused() -> None:
    lines = refused(GPU, model("a", half()), model("b", half(per_process_gpu_memory_fraction=0.75)))
    assert lines == [
        "gpu:0: its 2 workers may take 1.25 times its memory (0.5 for a; 0.75 for b); lower"
        " per_process_gpu_memory_fraction, or give models that differ in [tensorflow] devices of their own"
    ]
    assert not refused(CPU, model("a", half()), model("b", half(per_process_gpu_memory_fraction=0.75)))


def test_a_worker_that_takes_all_memory_at_its_start_cannot_share_it() -> None:
    greedy = dataclasses.replace(PLAIN, allow_growth=False)
    assert not refused(GPU, model("a", greedy))
    for lines in (refused(GPU, model("a", greedy), model("b")), refused(GPU, model("a", greedy), workers=2)):
        (line,) = lines
        assert line.startswith(
            "gpu:0: the worker of a would take all of its memory when it starts, but 2 workers share"
        )


def test_models_that_a_fraction_has_no_room_for_are_refused() -> None:
    assert not refused(GPU, model("a", half(), 4 * GIB))
    (line,) = refused(GPU, model("a", half(), 3 * GIB), model("b", half(), 2 * GIB))
    assert line.startswith("gpu:0: a, b need 5.0 GiB, but their worker may take 4.0 GiB (")


def test_devices_that_a_worker_will_not_have_are_refused() -> None:
    (line,) = refused(GPU, model("a", dataclasses.replace(PLAIN, device_count={"GPU": 0})))
    assert line.startswith("gpu:0: device_count leaves the worker of a 0 of its 1 GPUs; leave GPU out")
    (line,) = refused(GPU, model("a", PLAIN, 0, "/gpu:1", "/cpu:0", "/cpu:1"), workers=2)
    assert line.startswith(
        "model a: its layer_devices name /cpu:1, /gpu:1, but its worker on gpu:0 has /cpu:0, /gpu:0;"
    )
    two = dataclasses.replace(PLAIN, device_count={"CPU": 2})
    assert not refused(CPU, model("a", two, 0, "/cpu:0", "/cpu:1"))


# --- properties

_SESSIONS = st.builds(
    dataclasses.replace,
    st.just(PLAIN),
    allow_growth=st.booleans(),
    per_process_gpu_memory_fraction=st.sampled_from((0.0, 0.1, 0.3, 0.5, 1.0)),
    jit=st.booleans(),
)


@st.composite
def _problems(draw: st.DrawFn) -> tuple[list[Device], list[list[str]], list[ModelShare], int]:
    devices = [
        Device("gpu", (f"GPU-{number}",), f"gpu:{number}", "H200", 8 * GIB, (number,))
        for number in range(draw(st.integers(1, 3)))
    ]
    models = [ModelShare(f"m{number}", [draw(_SESSIONS) for _ in devices]) for number in range(draw(st.integers(0, 5)))]
    placed = [[each.name for each in models if draw(st.booleans())] for _ in devices]
    return devices, placed, models, draw(st.integers(1, 3))


@given(_problems(), st.randoms(use_true_random=False))
def test_every_model_is_served_by_workers_of_its_own_options_and_no_device_is_given_twice(
    problem: tuple[list[Device], list[list[str]], list[ModelShare], int], chance: random.Random
) -> None:
    devices, placed, models, workers = problem
    plain = [PLAIN] * len(devices)
    shares = share_out(devices, placed, models, plain, workers)
    named = {each.name: each for each in models}
    for number, device in enumerate(devices):
        here = [share for share in shares if share.device == device]
        assert sorted(name for share in here for name in share.models) == sorted(placed[number] * workers)
        for share in here:
            for name in share.models:
                wanted = named[name].tensorflow[number]
                fraction = wanted.per_process_gpu_memory_fraction / workers
                given = share.tensorflow_by_model.get(name, share.tensorflow)
                assert given == dataclasses.replace(wanted, per_process_gpu_memory_fraction=fraction)
                assert share.tensorflow.per_process_gpu_memory_fraction == fraction
                assert share.tensorflow.allow_growth == wanted.allow_growth
        if not any(line.startswith(device.label) for line in refusals(shares, models)):
            taken = [share.tensorflow.per_process_gpu_memory_fraction for share in here if share.models]
            assert sum(taken) <= 1 + 1e-9
    assert [share.device for share in shares] == sorted((share.device for share in shares), key=devices.index)
    # The order in which the models are written decides nothing but the order in which a worker loads them.
    shuffled = chance.sample(models, len(models))
    again = share_out(devices, [chance.sample(names, len(names)) for names in placed], shuffled, plain, workers)
    assert [(share.device, set(share.models), share.tensorflow) for share in again] == [
        (share.device, set(share.models), share.tensorflow) for share in shares
    ]
