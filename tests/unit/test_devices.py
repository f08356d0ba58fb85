"""Which GPUs there are, which of them the pool may use, and which slots they make."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from types import ModuleType

import pytest

from pool.devices import (
    Device,
    Discovery,
    Gpu,
    WantedDevices,
    discover_gpus,
    pinned_slots,
    resolve_devices,
    visible_gpus,
)
from pool.errors import InvalidConfig
from pool.plan.copies import fill
from pool.plan.placement import ModelDemand, place
from support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]
PCI_ORDER = ["1A", "1B", "3D", "3E", "88", "89", "B1", "B2"]
GIB = 2**30


def uuid(bus: str) -> str:
    return f"GPU-{bus.lower()}000000-0000-4000-8000-000000000000"


@pytest.fixture
def eight(pynvml: ModuleType) -> Discovery:
    return discover_gpus(pynvml)


def alike(count: int) -> Discovery:
    gpus = tuple(Gpu(i, f"GPU-{i}{i}", "H200", f"0000:{i:02X}:00.0", 140 * GIB, 0) for i in range(count))
    return Discovery(gpus, None)


NOTHING = Discovery((), "NVML's Python module is not installed (pip install 'tf-worker-pool[gpu]')")


# --- discovery


def test_gpus_are_in_pci_order_whatever_the_driver_says(pynvml: ModuleType) -> None:
    found = discover_gpus(pynvml)
    assert [gpu.pci_bus_id for gpu in found.gpus] == [f"00000000:{bus}:00.0" for bus in PCI_ORDER]
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert found.reason is None
    a100 = Gpu(4, uuid("88"), "NVIDIA A100-SXM4-40GB", "00000000:88:00.0", 40 * GIB, GIB, speed=6912 * 1410)
    assert found.gpus[4] == a100
    assert pynvml.open_sessions == 0


def test_bytes_are_read_as_texts(pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = discover_gpus(pynvml)
    monkeypatch.setenv("FAKE_NVML_BYTES", "1")
    assert isinstance(pynvml._text("x"), bytes)
    assert discover_gpus(pynvml) == texts


def test_what_a_former_pools_workers_hold_is_about_to_be_free(pynvml: ModuleType, nvml: FakeNvml) -> None:
    """A pool that follows one that was killed must not be refused for the memory of that one's last seconds."""
    waits = [sys.executable, "-c", "print(flush=True); input()"]
    with (
        subprocess.Popen([*waits, "-m", "workers", "--parent", "1"], stdin=PIPE, stdout=PIPE) as process,
        subprocess.Popen(waits, stdin=PIPE, stdout=PIPE) as stranger,
    ):
        for each in (process, stranger):
            assert each.stdout is not None
            assert each.stdout.readline() == b"\n"  # it runs: until then the kernel may show no command line
        processes = [[process.pid, 5 * GIB], [stranger.pid, 2 * GIB]]
        nvml.say(uuid("88"), used=8 * GIB, processes=processes)
        found = discover_gpus(pynvml)
        process.communicate(b"\n")
        stranger.communicate(b"\n")
    assert (found.gpus[4].memory_used_bytes, found.gpus[4].held_bytes) == (8 * GIB, 3 * GIB)
    devices, _ = resolve_devices(((4, 5),), found, {})
    assert (devices[0].used_bytes, devices[0].free_bytes) == (4 * GIB, 76 * GIB)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        ("init", "NVML does not start: Driver Not Loaded"),
        ("count", "NVML does not list the GPUs: Unknown Error"),
    ],
)
def test_nvml_that_fails_is_a_reason_and_is_shut_down(
    pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch, fails: str, reason: str
) -> None:
    monkeypatch.setenv("FAKE_NVML_FAILS", fails)
    assert discover_gpus(pynvml) == Discovery((), reason)
    assert pynvml.open_sessions == 0


def test_a_lost_gpu_does_not_hide_the_others(pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_FAILS", "handle:2")
    found = discover_gpus(pynvml)
    assert [gpu.uuid for gpu in found.gpus] == [uuid(bus) for bus in PCI_ORDER[1:]]
    assert found.reason == "the driver's GPU 2 does not answer: GPU is lost"
    _, warnings = resolve_devices("auto", found, {})
    assert warnings == [found.reason]


def test_memory_that_the_driver_does_not_tell_is_unknown(pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_FAILS", "memory")
    assert {(gpu.memory_bytes, gpu.memory_used_bytes) for gpu in discover_gpus(pynvml).gpus} == {(None, None)}


@pytest.mark.parametrize("why", ["the driver refuses", "the module is too old"])
def test_a_speed_that_is_not_told_is_unknown_and_the_larger_devices_come_first(
    pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    told = discover_gpus(pynvml)
    if why == "the driver refuses":
        monkeypatch.setenv("FAKE_NVML_FAILS", "cores")
    else:
        monkeypatch.delattr(pynvml, "nvmlDeviceGetNumGpuCores")
    found = discover_gpus(pynvml)
    assert all(gpu.speed > 0 for gpu in told.gpus)
    assert found == replace(told, gpus=tuple(replace(gpu, speed=0) for gpu in told.gpus)), "all else is as it was"
    assert pynvml.open_sessions == 0
    devices, warnings = resolve_devices("auto", found, {})
    assert warnings == []
    models = [ModelDemand(name, "auto", None, GIB) for name in "abcdef"]
    a100s, t4s = (4, 5, 6, 7), (0, 1, 2, 3)
    placed = place(models, devices)
    assert placed == (("e",), ("f",), (), (), ("a",), ("b",), ("c",), ("d",)), "the first copies"
    assert fill(models[:1], place(models[:1], devices), devices)["a"] == (4, *t4s, *a100s[1:])
    assert fill(models, placed, devices) == {
        **{name: (slot,) for name, slot in zip("cdef", (6, 7, 0, 1), strict=True)},
        "a": (4, 2),
        "b": (5, 3),
    }, "the further ones"


def _child(code: str, python_path: str) -> list[object]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([python_path, str(ROOT)])}
    result = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, timeout=60)
    answer: list[object] = json.loads(result.stdout)
    return answer


def test_the_fake_stands_in_for_the_module_in_a_child(nvml: FakeNvml) -> None:
    code = "import json; from pool.devices import *; print(json.dumps([g.uuid for g in discover_gpus().gpus]))"
    assert _child(code, nvml.environ["PYTHONPATH"]) == [uuid(bus) for bus in PCI_ORDER]


def test_without_the_module_the_reason_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not here')")
    code = "import json; from pool.devices import *; d = discover_gpus(); print(json.dumps([d.gpus, d.reason]))"
    assert _child(code, str(tmp_path)) == [[], NOTHING.reason]


def test_a_process_of_its_own_asks_and_tells_all(pynvml: ModuleType, nvml: FakeNvml) -> None:
    nvml.say(uuid("88"), instances=["MIG-1", "MIG-2"])
    found = discover_gpus()
    assert found.gpus[4].instances
    assert found == discover_gpus(pynvml)


@pytest.mark.usefixtures("pynvml")
def test_nvml_that_hangs_is_given_up(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[subprocess.Popen[bytes]] = []

    class Watched(subprocess.Popen[bytes]):
        def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:  # noqa: A002
            began.append(self)
            while not nvml.hangs():  # a slow machine imports for longer than this waits
                assert self.poll() is None
                time.sleep(0.01)
            assert timeout == 60.0
            return super().communicate(input, timeout=0.1)

    monkeypatch.setattr(subprocess, "Popen", Watched)
    nvml.say(uuid("88"), hang_s=600)
    found = discover_gpus()
    assert found == Discovery((), "NVML did not answer within 60 s: the driver hangs, as `nvidia-smi` may show")
    assert [process.poll() for process in began] == [-signal.SIGKILL], "nothing is left behind"
    with pytest.raises(InvalidConfig, match=r"0 cannot be found: NVML did not answer within 60 s"):
        resolve_devices((0,), found, {})


@pytest.mark.usefixtures("pynvml")
def test_nvml_that_ends_who_asks_it_ends_nobody_else(nvml: FakeNvml) -> None:
    nvml.say(uuid("88"), exit=7)
    assert discover_gpus().reason == "NVML cannot be asked: the process that did so ended with status 7"


# --- visible


@pytest.mark.parametrize(
    ("variable", "buses"),
    [
        (None, PCI_ORDER),
        ("", []),
        ("-1", []),
        ("3,0", ["3E", "1A"]),
        (" 3 , 0 ", ["3E", "1A"]),
        ("0,9,1", ["1A"]),
        ("0,-1,1", ["1A"]),
        ("0,,1", ["1A"]),
        ("0,0", []),
        ("GPU-88,4", []),
        ("GPU-88,GPU-1a", ["88", "1A"]),
        ("GPU-8,0", []),
        ("0,GPU-ff,1", ["1A"]),
        (uuid("b2"), ["B2"]),
    ],
)
def test_the_variable_means_what_it_means_to_cuda(eight: Discovery, variable: str | None, buses: list[str]) -> None:
    visible = visible_gpus(eight.gpus, variable, "PCI_BUS_ID").gpus
    assert [gpu.uuid for gpu in visible] == [uuid(bus) for bus in buses]


def test_numbers_are_doubtful_only_where_the_order_can_differ(eight: Discovery) -> None:
    warning = visible_gpus(eight.gpus, "4", None).warning
    assert warning is not None
    assert "NVIDIA A100-SXM4-40GB at 00000000:88:00.0" in warning
    assert visible_gpus(eight.gpus, "4", "FASTEST_FIRST").warning == warning
    assert visible_gpus(eight.gpus, "4", "PCI_BUS_ID").warning is None
    assert visible_gpus(eight.gpus, uuid("88"), None).warning is None
    assert visible_gpus(alike(8).gpus, "4", None).warning is None


def test_a_gpu_that_is_there_twice_is_a_warning(eight: Discovery) -> None:
    warning = visible_gpus(eight.gpus, "1,1", "PCI_BUS_ID").warning
    assert warning == "CUDA_VISIBLE_DEVICES=1,1 names a GPU twice, and CUDA then uses none"


# --- resolve


def labels(wanted: WantedDevices, discovery: Discovery, env: dict[str, str] | None = None) -> list[str]:
    devices, warnings = resolve_devices(wanted, discovery, env or {})
    assert warnings == []
    return [device.label for device in devices]


def test_auto_is_each_visible_gpu() -> None:
    assert labels("auto", alike(3)) == ["gpu:0", "gpu:1", "gpu:2"]
    devices, _ = resolve_devices("auto", alike(3), {"CUDA_VISIBLE_DEVICES": "2,0"})
    assert devices[0] == Device("gpu", ("GPU-22",), "gpu:0", "H200", 140 * GIB, (0,))
    assert [device.uuids for device in devices] == [("GPU-22",), ("GPU-00",)]


@pytest.mark.parametrize(
    ("discovery", "env", "why"),
    [
        (NOTHING, {}, "is not installed (pip install 'tf-worker-pool[gpu]')"),
        (alike(2), {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides all 2"),
    ],
)
def test_auto_without_a_gpu_is_two_cpus_and_says_why(discovery: Discovery, env: dict[str, str], why: str) -> None:
    devices, warnings = resolve_devices("auto", discovery, env)
    assert devices == [Device("cpu", (), "cpu:0", "CPU", None), Device("cpu", (), "cpu:1", "CPU", None)]
    assert len(warnings) == 1
    assert why in warnings[0]


def test_lists_of_numbers_uuids_groups_and_cpus() -> None:
    devices, _ = resolve_devices(("cpu", (2, "GPU-00"), 1, "cpu"), alike(3), {})
    assert [device.label for device in devices] == ["cpu:0", "gpu:2+0", "gpu:1", "cpu:1"]
    assert devices[1] == Device("gpu", ("GPU-22", "GPU-00"), "gpu:2+0", "H200 + H200", 280 * GIB, (2, 0))


def test_numbers_count_what_is_visible() -> None:
    devices, _ = resolve_devices((0,), alike(4), {"CUDA_VISIBLE_DEVICES": "3,1"})
    assert (devices[0].label, devices[0].uuids) == ("gpu:0", ("GPU-33",))


@pytest.mark.parametrize(
    ("wanted", "env", "told"),
    [
        ((2,), {}, "2 is not there; write one of 0: GPU-00 (H200); 1: GPU-11 (H200)"),
        (("GPU-9",), {}, '"GPU-9" is not there; write one of 0: GPU-00 (H200); 1: GPU-11 (H200)'),
        ((0, "GPU-00"), {}, '"GPU-00" is GPU-00, which is listed twice; write it once'),
        (
            ("GPU-11",),
            {"CUDA_VISIBLE_DEVICES": "0"},
            "\"GPU-11\" is hidden: CUDA_VISIBLE_DEVICES='0' leaves 0: GPU-00 (H200); write one of those",
        ),
        (
            (0,),
            {"CUDA_VISIBLE_DEVICES": "-1"},
            "0 is not there: CUDA_VISIBLE_DEVICES='-1' leaves the pool no GPU; change it",
        ),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(wanted: WantedDevices, env: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        resolve_devices(wanted, alike(2), env)
    assert str(caught.value) == f"[pool] devices: {told}"


def test_all_that_is_not_there_is_told_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        resolve_devices((5, (0, 6)), alike(2), {})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("wanted", [(0,), ("GPU-00",)])
def test_a_gpu_without_nvml_is_refused_with_what_to_install(wanted: WantedDevices) -> None:
    with pytest.raises(InvalidConfig, match=r"pip install 'tf-worker-pool\[gpu\]'"):
        resolve_devices(wanted, NOTHING, {})


def test_a_mig_instance_is_taken_by_its_uuid() -> None:
    mig = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
    (device,), _ = resolve_devices((mig,), NOTHING, {})
    assert device == Device("gpu", (mig,), "gpu:MIG-c6d4f1ef", "MIG instance", None, (None,))
    (device,), warnings = resolve_devices("auto", alike(1), {"CUDA_VISIBLE_DEVICES": mig})
    assert (device.uuids, device.label, warnings) == ((mig,), "gpu:0", [])
    with pytest.raises(InvalidConfig, match="CUDA_VISIBLE_DEVICES='0' leaves"):
        resolve_devices((mig,), alike(1), {"CUDA_VISIBLE_DEVICES": "0"})


def test_slots_that_a_model_names() -> None:
    devices, _ = resolve_devices((2, "cpu", (0, 1), "cpu"), alike(4), {})
    assert pinned_slots("m", (2,), devices) == (0,)
    assert pinned_slots("m", ("GPU-22", "cpu"), devices) == (0, 1, 3)
    assert pinned_slots("m", ((1, "GPU-00"),), devices) == (2,)
    for absent in (0, 3, "GPU-00", (0, 2), "MIG-1"):
        with pytest.raises(InvalidConfig, match=r"^model m: .*its slots are gpu:2, cpu:0, gpu:0\+1, cpu:1"):
            pinned_slots("m", (absent,), devices)


# --- MIG

INSTANCES = ("MIG-aaaaaaaa-42e4-5de3-91c7-45d71c87eb3f", "MIG-bbbbbbbb-42e4-5de3-91c7-45d71c87eb3f")


@pytest.fixture
def mig(pynvml: ModuleType, nvml: FakeNvml) -> Discovery:
    """GPU 4 has two instances, GPU 5 is in MIG mode and has none."""
    nvml.say(uuid("88"), instances=INSTANCES)
    nvml.say(uuid("89"), instances=[])
    nvml.say(INSTANCES[1], used=3 * GIB)
    return discover_gpus(pynvml)


def test_instances_are_listed_with_their_memory(mig: Discovery) -> None:
    assert [gpu.instances is None for gpu in mig.gpus] == [True] * 4 + [False, False, True, True]
    first, second = mig.gpus[4].instances or ()
    assert (first.uuid, second.uuid) == INSTANCES
    assert (second.memory_bytes, second.held_bytes) == (10 * GIB, 3 * GIB)


def test_auto_is_each_instance_of_a_gpu_in_mig_mode(mig: Discovery) -> None:
    devices, warnings = resolve_devices("auto", mig, {})
    labels = ["gpu:0", "gpu:1", "gpu:2", "gpu:3", "gpu:MIG-aaaaaaaa", "gpu:MIG-bbbbbbbb", "gpu:6", "gpu:7"]
    assert [device.label for device in devices] == labels
    assert devices[5].uuids == (INSTANCES[1],)
    assert (devices[5].memory_bytes, devices[5].free_bytes) == (10 * GIB, 7 * GIB)
    assert warnings == []


def test_a_named_instance_is_that_one_and_has_its_memory(mig: Discovery) -> None:
    devices, _ = resolve_devices((INSTANCES[1], 0), mig, {})
    assert [device.free_bytes for device in devices] == [7 * GIB, 15 * GIB]
    seen = visible_gpus(mig.gpus, INSTANCES[1], None)
    assert [gpu.memory_bytes for gpu in seen.gpus] == [10 * GIB]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (4, f'4 is in MIG mode; write its instances: "{INSTANCES[0]}", "{INSTANCES[1]}"'),
        (5, "5 is in MIG mode; create instances, or turn MIG mode off"),
        ("MIG-cccccccc", '"MIG-cccccccc" is not there; write one of '),
    ],
)
def test_what_cuda_would_not_give_as_meant_is_refused(mig: Discovery, wanted: int | str, told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        resolve_devices((wanted,), mig, {})
    assert str(caught.value).startswith(f"[pool] devices: {told}")
    if wanted == "MIG-cccccccc":
        assert INSTANCES[0] in str(caught.value)


def test_an_nvml_that_knows_no_mig_has_whole_gpus(pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pynvml, "nvmlDeviceGetMigMode")
    assert {gpu.instances for gpu in discover_gpus(pynvml).gpus} == {None}
