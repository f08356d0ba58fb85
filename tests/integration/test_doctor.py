"""The doctor with GPUs that do not exist: a fake NVML, and the stub in TensorFlow's place, in real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from pool.config import Settings, with_demo
from pool.devices import discover_gpus
from pool.doctor import Finding, Machine, Verdict, examine
from support.commands import in_process
from support.fake_nvml import CARD, GIB, OTHER, FakeNvml, orphan
from support.processes import alive, children, eventually

pytestmark = pytest.mark.doctor

OK, WARNING, FAILED, CANNOT = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.CANNOT
CHECKS = ("", " computes", " memory that grows", " memory that comes back", " fractions", " two workers")
OF_GPUS = ("PCI order", "each GPU", "memory that grows", "memory that comes back", "fractions", "GPU two workers")
TAKEN = GIB


@pytest.fixture
def one_gpu(nvml: FakeNvml, pynvml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Of the eight that there are, as the user's environment has it."""
    assert pynvml.open_sessions == 0
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    nvml.say(CARD, each_worker=TAKEN)
    monkeypatch.setattr("pool.doctor.cards.discover_gpus", lambda: discover_gpus(pynvml))
    return nvml


@pytest.fixture(autouse=True)
def _stub_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process finds `stub_probe`."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("stub_library")), prepend=os.pathsep)


@pytest.fixture
def asked_elsewhere(one_gpu: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """NVML is asked in a process of its own, as a user's doctor does it, and not in this one, which takes no time."""
    monkeypatch.setattr("pool.doctor.cards.discover_gpus", discover_gpus)
    return one_gpu


@pytest.fixture
def two_gpus(one_gpu: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    one_gpu.say(OTHER, each_worker=TAKEN)
    return one_gpu


def found(root: Path = Path("/"), **environ: str) -> Mapping[str, Finding]:
    """By name, and nothing that it started is left."""
    before = children(os.getpid())
    machine = Machine({**os.environ, **environ}, with_demo(Settings(), Path("stub:echo")), root, "stub_probe")
    said = list(examine(machine))
    assert not set(children(os.getpid())) - set(before)  # what others have started may end meanwhile
    by_name = {each.name: each for each in said}
    assert len(by_name) == len(said), "each line has a name of its own"
    return by_name


def verdicts(said: Mapping[str, Finding], device: str) -> list[Verdict]:
    return [said[f"{device}{check}"].verdict for check in CHECKS]


@pytest.mark.usefixtures("asked_elsewhere")
def test_all_is_well(two_gpus: FakeNvml) -> None:
    said = found()
    assert not [each for each in said.values() if each.verdict is FAILED]
    assert said["NVML"].seen == "driver 550.54.15, 8 × NVIDIA T4, NVIDIA A100-SXM4-40GB"
    assert said["CUDA"].seen == "the driver runs CUDA 12.8, TensorFlow was built for 12.5.1"
    assert said["PCI order"].seen == "NVML and TensorFlow have 0000:1a:00.0, 0000:1b:00.0"
    assert said["gpu:1"].seen == f"{OTHER} (NVIDIA T4) at 0000:1b:00.0"
    assert verdicts(said, "gpu:0") == verdicts(said, "gpu:1") == [OK] * len(CHECKS)
    assert said["gpu:0 memory that grows"].seen == "1.0 GiB of the GPU were taken for 256.0 MiB of tensors"
    assert said["gpu:0 fractions"].seen == "two were allowed 512.0 MiB each, and took 2.0 GiB"
    assert said["gpu:0 memory that comes back"].seen.endswith("by process ids")
    assert said["memory at the end"].verdict is OK
    assert two_gpus.hangs() is False


def test_without_a_gpu_each_check_works_or_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is tried on the CPU."""
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "")
    said = found()
    assert {said[name].verdict for name in OF_GPUS} == {CANNOT}
    assert {said[name].seen for name in OF_GPUS} == {"there is no GPU to try it on"}
    assert said["cpu two workers"].verdict is OK


@pytest.mark.parametrize(
    ("told", "failed"),
    [
        ("blind", {"TensorFlow"}),
        ("other", {"PCI order", "gpu:0"}),
        ("wrong", {"gpu:0 computes", "gpu:0 two workers"}),
        ("whole", {"gpu:0 fractions"}),
        ("crash", {"TensorFlow"}),
    ],
)
@pytest.mark.usefixtures("one_gpu")
def test_what_is_wrong_with_the_library_is_found(told: str, failed: set[str]) -> None:
    said = found(STUB_PROBE=told)
    assert {name for name, each in said.items() if each.verdict is FAILED} == failed
    if told == "blind":
        assert said["TensorFlow"].seen.endswith("sees 0 GPUs, but NVML lists 1")
        assert said["TensorFlow"].advice == (
            "pip install 'tf-worker-pool[gpu]'; it printed: Cannot dlopen some GPU libraries."
        )
    if told in ("blind", "crash"):
        assert "cpu two workers" not in said
        assert {said[name].seen for name in OF_GPUS} == {"TensorFlow sees no GPU"}
    if told == "crash":
        assert said["TensorFlow"].seen == "its process died: SIGABRT"
        assert "Fatal Python error: Aborted" in said["TensorFlow"].log


@pytest.mark.usefixtures("one_gpu")
def test_what_hangs_is_given_up_and_its_stacks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.doctor.probe.LONGEST_S", 8.0)  # which its start is a part of
    monkeypatch.setattr("pool.doctor.probe.STACKS_BEFORE_S", 7.5)
    monkeypatch.setattr("pool.doctor.cards.LONGEST_S", 8.0)
    said = found(STUB_PROBE="hang")
    assert said["TensorFlow"].seen == "no answer within 8 s"
    assert "in look" in said["TensorFlow"].log


def test_an_nvml_that_hangs_does_not_hang_the_doctor(
    asked_elsewhere: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel shows a card, it is an error that NVML does not."""
    monkeypatch.setattr("pool.devices.discovery.LONGEST_S", 3.0)
    card = tmp_path / "sys/bus/pci/devices/0000:1a:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x030200\n")
    asked_elsewhere.say(CARD, hang_s=600)
    said = found(tmp_path, CUDA_VISIBLE_DEVICES="")
    asked_elsewhere.say(CARD)
    assert asked_elsewhere.hangs()
    assert said["NVML"].verdict is FAILED
    assert "at 0000:1a:00.0, but NVML did not answer within 3 s" in said["NVML"].seen
    assert said["cpu two workers"].verdict is OK


def test_a_gpu_that_takes_all_of_its_memory(one_gpu: FakeNvml) -> None:
    one_gpu.say(CARD, each_worker=6 * GIB)
    said = found()
    assert {name for name, each in said.items() if each.verdict is FAILED} == {
        "gpu:0 memory that grows",
        "gpu:0 fractions",
    }


def test_a_gpu_that_others_use_is_left_alone(two_gpus: FakeNvml) -> None:
    two_gpus.say(CARD, used=14 * GIB, each_worker=TAKEN)
    said = found()
    assert (said["gpu:0"].verdict, said["gpu:0"].seen) == (CANNOT, "only 2.0 GiB of NVIDIA T4 are free")
    assert "gpu:0 fractions" not in said
    assert verdicts(said, "gpu:1") == [OK] * len(CHECKS)


def test_memory_of_a_worker_whose_pool_is_gone(two_gpus: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pool.doctor.cards.FREE_S", 1.0)
    with orphan() as pid:
        two_gpus.say(CARD, used=2 * GIB, processes=[[pid, GIB]], each_worker=TAKEN)
        said = found()
    assert said["gpu:0"].verdict is FAILED
    assert f"NotFree: gpu:0 still has 1.0 GiB of a former pool's worker (pid {pid}" in said["gpu:0"].seen
    assert verdicts(said, "gpu:1") == [OK] * len(CHECKS)


def test_where_nvml_shows_no_processes_the_bytes_are_looked_at(one_gpu: FakeNvml) -> None:
    one_gpu.say(CARD, each_worker=TAKEN // 10, no_processes="Insufficient Permissions")
    said = found()
    assert said["gpu:0 memory that comes back"].verdict is OK
    assert said["gpu:0 memory that comes back"].seen.endswith("by bytes in use")


def test_where_nvml_tells_nothing_of_a_gpu_that_is_said(one_gpu: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NVML_FAILS", "memory")
    one_gpu.say(CARD, no_processes="Insufficient Permissions")
    monkeypatch.setattr("pool.doctor.cards.FREE_S", 1.0)
    said = found()
    assert said["gpu:0 memory that grows"].verdict is said["gpu:0 fractions"].verdict is CANNOT
    assert said["gpu:0 memory that comes back"].verdict is WARNING
    assert "cannot verify that a former worker has freed gpu:0" in said["gpu:0 memory that comes back"].seen


def test_a_driver_that_is_too_old(one_gpu: FakeNvml) -> None:
    one_gpu.say("driver", cuda=11040)
    assert found()["CUDA"].verdict is FAILED


def test_what_it_started_ends_with_it() -> None:
    """Killed while the library hangs."""
    code = (
        "import os; from pathlib import Path; from pool.config import Settings, with_demo;"
        "from pool.doctor import Machine, examine;"
        "machine = Machine(dict(os.environ), with_demo(Settings(), Path('stub:echo')), probe='stub_probe');"
        "list(examine(machine))"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", code], env={**os.environ, "STUB_PROBE": "hang"}) as doctor:
        try:
            eventually(lambda: any(map(is_probe, children(doctor.pid))))
            probes = [pid for pid in children(doctor.pid) if is_probe(pid)]
        finally:
            doctor.send_signal(signal.SIGKILL)
    eventually(lambda: not any(map(alive, probes)))


def is_probe(pid: int) -> bool:
    try:
        return b"stub_probe" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def test_the_configuration_is_that_of_pool_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text("[pool]\nlanes = 0\n")
    done = in_process("doctor")
    assert (done.status, done.out) == (2, "")
    assert "config.toml:2: [pool] lanes: " in done.err
