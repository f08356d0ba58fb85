import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.devices import Device, cpu_share, environment, fits_beside, merged, named, slots
from pool.devices.monitor import Level, Monitor
from pool.errors import InvalidConfig

ROOT = Path(__file__).parents[2]
T4, A100 = "GPU-1a000000-0000", "GPU-88000000-0000"
GPUS = [
    {"uuid": A100, "name": "NVIDIA A100", "bus": "00000000:88:00.0", "memory": 40 << 30},
    {"uuid": T4, "bus": "0000:1A:00.0", "memory": 16 << 30},
    {"uuid": "GPU-b1000000-0000", "bus": "00000000:B1:00.0"},
]
PARTS = [{"uuid": "MIG-1"}, None, {"uuid": "MIG-2", "name": "A100 3g.20gb", "memory": 20 << 30}]
SPLIT = [GPUS[0] | {"instances": PARTS}, GPUS[1]]
SECTION = {"memory": None, "tensorflow": {}}
TENSORFLOW = {"log_device_placement": False}

Slots = Callable[..., list[Device]]


@pytest.fixture
def found(told: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Slots:
    """`slots` with a fake NVML: `found(wanted, visible, gpus, (workers, sections))`."""
    monkeypatch.setattr("pool.devices.SIGNS", ())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def ask(
        wanted: Any = None, visible: str | None = None, gpus: Any = GPUS, more: Any = (), **state: Any
    ) -> list[Device]:
        told(*gpus, **state)
        with closing(Monitor()) as monitor:
            given = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
            return slots(wanted, os.environ | given, monitor, *more)

    return ask


def bare(wanted: Sequence[Any] | None, **environ: str) -> list[Device]:
    """Without NVML's module."""
    with closing(Monitor()) as monitor:
        return slots(wanted, {"PYTHONPATH": str(ROOT), **environ}, monitor)


def labels(devices: Sequence[Device]) -> list[str]:
    return [device.label for device in devices]


def test_auto_is_each_gpu_in_pci_order(found: Slots) -> None:
    first, second, third = found(None)
    assert first == Device("gpu", (T4,), (0,), "NVIDIA T4", 16 << 30, "gpu:0 (GPU-1a000000…)")
    assert second.name == "NVIDIA A100"
    assert third.memory_bytes == 0


@pytest.mark.parametrize(
    ("wanted", "visible", "expected"),
    [
        ([1, 0], None, ["gpu:1 (GPU-88000000…)", "gpu:0 (GPU-1a000000…)"]),
        ([[0, A100], 2, "cpu"], None, ["gpu:0+1 (GPU-1a000000…, GPU-88000000…)", "gpu:2 (GPU-b1000000…)", "cpu:0"]),
        (None, "2, GPU-1a", ["gpu:0 (GPU-b1000000…)", "gpu:1 (GPU-1a000000…)"]),
        # CUDA's own rules: what names nothing ends the list, and a GPU that is named twice is none.
        *((None, none, ["cpu:0", "cpu:1"]) for none in ("", "-1", "NoDevFiles", "7", "GPU-", "0,GPU-1a", "1,0,1")),
        *((None, one, ["gpu:0 (GPU-88000000…)"]) for one in ("1,-1,0", "1,7,0", "1,,0", "1,GPU-,0", "GPU-8,1x")),
    ],
)
def test_gpus_are_named_in_several_ways(
    found: Slots, wanted: Sequence[Any] | None, visible: str | None, expected: list[str]
) -> None:
    assert labels(found(wanted, visible)) == expected


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"wanted": [3]}, rf"3 is not there; there are {T4} \(NVIDIA T4\); {A100}"),
        ({"wanted": ["GPU-"]}, "'GPU-' is several GPUs"),
        ({"wanted": [["cpu"]]}, "'cpu' is not there"),
        ({"wanted": [0, T4]}, f"{T4} is in the list twice"),
        ({"wanted": [A100], "visible": "0"}, rf"'{A100}' is not there; there are {T4} \(NVIDIA T4\)$"),
        ({"wanted": [0], "visible": ""}, "0 is not there; there are none"),
        ({"wanted": [0], "visible": "1,1"}, "0 is not there; there are none"),
        (
            {"wanted": [1], "gpus": SPLIT},
            r"1 is in MIG mode; there are GPU.*; MIG-1 \(NVIDIA T4\); MIG-2 \(A100 3g.20gb\)",
        ),
        ({"wanted": ["MIG-3"], "gpus": SPLIT}, "'MIG-3' is not there"),
        ({"wanted": ["MIG-"], "gpus": SPLIT}, "'MIG-' is several GPUs"),
        ({"wanted": [0], "more": (1, [SECTION | {"device": 1}])}, "device.device: 1 has no slot in the pool"),
        ({"visible": "0", "fails": "Driver Not Loaded"}, "NVML does not list the GPUs: Driver Not Loaded"),
        ({"wanted": [0], "gpus": [{"uuid": T4, "lost": 15}]}, "the driver's GPU 0 does not answer: GPU is lost"),
    ],
)
def test_a_gpu_that_is_named_and_not_there_is_never_replaced_by_a_cpu(
    found: Slots, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        found(**given)


def test_one_gpu_that_fell_off_its_bus_does_not_hide_the_others(found: Slots, caplog: pytest.LogCaptureFixture) -> None:
    assert labels(found(None, None, [GPUS[0] | {"lost": 15}, GPUS[1]])) == ["gpu:0 (GPU-1a000000…)"]
    assert "the driver's GPU 0 does not answer" in caplog.text


def test_without_the_module_or_a_driver_auto_is_two_cpu_workers_unless_there_are_signs_of_a_gpu(
    found: Slots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert labels(found(None, fails="Driver Not Loaded")) == ["cpu:0", "cpu:1"]
    assert labels(bare(None)) == ["cpu:0", "cpu:1"]
    with pytest.raises(InvalidConfig, match=r"run pip install nvidia-ml-py; to use none, write \[\"cpu\", \"cpu\"\]"):
        bare(None, CUDA_VISIBLE_DEVICES="0")
    monkeypatch.setattr("pool.devices.SIGNS", (f"{tmp_path}/nvidia[0-9]*",))
    (tmp_path / "nvidia0").touch()
    with pytest.raises(InvalidConfig, match="run pip install nvidia-ml-py"):
        bare(None)
    assert labels(bare(["cpu"])) == ["cpu:0"]


def test_a_driver_that_hangs_is_given_up(found: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.devices.monitor.NVML_S", 0.5)
    with pytest.raises(InvalidConfig, match=r"NVML did not answer within 0\.5 s: the driver hangs"):
        found([0], hangs=True)


def test_a_model_names_slots(found: Slots) -> None:
    devices = found([[0, 1], 2, "cpu", "cpu"])
    assert named(None, devices) == [0, 1, 2, 3]
    assert named(["cpu", 2], devices) == [1, 2, 3]
    assert named([0], devices) == named([[1, "GPU-1a"]], devices) == [0]
    for missing in (3, [0, 2], "GPU-77"):
        with pytest.raises(InvalidConfig, match=r"has no slot in the pool; there are gpu:0\+1 .*, cpu:0, cpu:1"):
            named([2, missing], devices)


def test_a_gpu_in_mig_mode_is_used_by_its_instances_only(found: Slots) -> None:
    first, second, third = found(None, gpus=SPLIT)
    assert [first.uuids, second.uuids, third.uuids] == [(T4,), ("MIG-1",), ("MIG-2",)]
    assert (third.name, third.memory_bytes, third.label) == ("A100 3g.20gb", 20 << 30, "gpu: (MIG-2…)")
    assert labels(found(["MIG-2", 0], gpus=SPLIT)) == ["gpu: (MIG-2…)", "gpu:0 (GPU-1a000000…)"]
    assert labels(found(None, "MIG-2,0", gpus=SPLIT)) == ["gpu:0 (MIG-2…)", "gpu:1 (GPU-1a000000…)"]
    with pytest.raises(InvalidConfig, match="MIG"):  # the only GPU has no instances yet
        found(None, gpus=[SPLIT[0] | {"instances": [None]}])


def test_workers_of_a_device_share_its_memory(found: Slots) -> None:
    sections = [{"device": 1, "memory": 8 << 30, "tensorflow": {"allow_growth": False}}]
    devices = found([[0, 1], 2, "cpu"], more=(2, [*sections, SECTION | {"device": "cpu", "memory": 2 << 30}]))
    assert [each.label[:7] for each in devices] == ["gpu:0+1", "gpu:0+1", "gpu:2 (", "gpu:2 (", "cpu:0", "cpu:1"]
    assert [each.memory_bytes >> 30 for each in devices] == [4, 4, 0, 0, 1, 1]
    assert found([0], more=(2, [SECTION | {"device": 0, "memory": 99 << 30}]))[1].memory_bytes == 8 << 30
    assert devices[1].tensorflow == {"allow_growth": False}
    assert devices[2].tensorflow == {}
    with pytest.raises(InvalidConfig, match=f"{T4} is in the list twice"):
        found([0, 0], more=(2,))


def test_a_process_has_the_options_of_its_device_and_models() -> None:
    fraction, base = "per_process_gpu_memory_fraction", {"allow_growth": True, "per_process_gpu_memory_fraction": None}
    device = Device("gpu", (T4,), tensorflow={fraction: 0.5})
    assert merged(base, Device("cpu"), []) == base
    assert merged(base, device, [{}]) == base | {fraction: 0.5}
    demands = [{fraction: 0.25}, {"allow_growth": False, fraction: 0.25}]
    assert merged(base, device, demands) == {"allow_growth": False, fraction: 0.25}
    assert merged(base, Device("gpu", (T4,), workers=4), [])[fraction] == 0.25
    assert merged(base, replace(device, workers=2), demands)[fraction] == 0.125


def test_a_replacement_starts_beside_the_old_worker_only_where_nvml_says_that_there_is_room() -> None:
    monitor, gpu, gib = Monitor(), Device("gpu", (T4,)), 1 << 30

    def fits(total: float | None, used: float | None, held: dict[int, float | None], late_s: float = 0.0) -> bool:
        numbers = [None if each is None else int(each * gib) for each in (used, total)]
        pids = {pid: None if each is None else int(each * gib) for pid, each in held.items()}
        monitor.gpus, monitor.heard_at = {T4: Level(*numbers, pids=pids, heard_at=9.0)}, 9.0 + late_s
        return fits_beside(monitor, gpu, 77)

    assert fits_beside(monitor, Device("cpu"), 77)
    assert not fits_beside(monitor, gpu, 77)
    assert fits(16, 9, {77: 6, 78: 1}, late_s=2.0)
    assert not fits(16, 9.5, {77: 6, 78: 1})  # 10 % more than it holds
    assert not fits(2, 1.6, {77: 0.001})  # half a GiB at least
    for unknown in ((None, None, {77: 1}), (16, 7, {77: None}), (16, 7, {78: 1}), (16, 7, {77: 1}, 20.0)):
        assert not fits(*unknown)


def test_a_workers_environment_shows_its_gpus_alone_by_uuid() -> None:
    base = {"NOTIFY_SOCKET": "x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "LISTEN_FDS": "1", "HOME": "/root"}
    base |= {"CUDA_VISIBLE_DEVICES": "3", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "TF_FORCE_GPU_ALLOW_GROWTH": "false"}
    gpu = Device("gpu", (T4, A100), (0, 1))
    kept = {"HOME": "/root", "TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    always = kept | {"PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2"}
    assert environment(gpu, base, TENSORFLOW, 3) == always | {"CUDA_VISIBLE_DEVICES": f"{T4},{A100}"}
    budgets = {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"}
    budgets |= {"TF_NUM_INTRAOP_THREADS": "3", "TF_NUM_INTEROP_THREADS": "3"}
    assert environment(Device("cpu"), base, TENSORFLOW, 3) == always | budgets | {"CUDA_VISIBLE_DEVICES": ""}
    assert base["CUDA_VISIBLE_DEVICES"] == "3"
    environ = environment(Device("cpu"), {"OMP_NUM_THREADS": "7"}, {"log_device_placement": True}, 3)
    expected = {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "3", "TF_CPP_MIN_LOG_LEVEL": "0"}
    assert environ | expected == environ, "the user's own budgets win"


def test_a_worker_on_the_cpu_has_its_share_of_the_cores() -> None:
    assert cpu_share([Device("cpu")]) == cpu_share([Device("gpu"), Device("cpu")]) == len(os.sched_getaffinity(0))
    assert cpu_share([Device("cpu")] * 1000) == 1
