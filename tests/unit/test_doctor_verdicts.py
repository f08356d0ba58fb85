"""What the doctor makes of what NVML and TensorFlow told: each verdict both ways."""

from dataclasses import replace

import pytest

from pool.devices import Device, Discovery, Gpu
from pool.doctor import Verdict, verdicts
from pool.doctor.verdicts import FRACTION_BYTES, HOLD_BYTES
from pool.wire.device_memory import DeviceHeld
from pool.wire.probe import ProbeAnswer, SeenGpu

OK, WARNING, FAILED, CANNOT = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.CANNOT
GIB = 2**30

CARD = Gpu(0, "GPU-a", "NVIDIA T4", "00000000:1A:00.0", 16 * GIB, GIB)
DEVICE = Device("gpu", ("GPU-a",), "gpu:0", "NVIDIA T4", 16 * GIB, (0,), GIB, ("00000000:1A:00.0",))
OTHER = replace(DEVICE, uuids=("GPU-b",), label="gpu:1", buses=("00000000:3D:00.0",))
MIG = replace(DEVICE, uuids=("MIG-a",), label="gpu:MIG-a", buses=("",))
SEEN = SeenGpu("0000:1a:00.0", "Tesla T4", "7.5", FRACTION_BYTES)
SEEN_OTHER = replace(SEEN, bus="0000:3d:00.0")
BUILT = {"cuda": "12.5.1", "cudnn": "9", "capabilities": "sm_60 sm_70 sm_80 sm_89 compute_90"}
GOOD = ProbeAnswer("", "2.21.0", BUILT, (SEEN,), 1e-4, 0.2, DeviceHeld((7,), True, {}))
BAD = ProbeAnswer("InternalError: no device")


@pytest.mark.parametrize(
    ("discovery", "notes", "on_pci", "took_s", "verdict"),
    [
        (Discovery((CARD,), None, "550.54", "12.4"), (), ["0000:1a:00.0"], 0.1, OK),
        (Discovery((CARD,), None, "550.54", "12.4"), ("CUDA_VISIBLE_DEVICES='' hides it",), [], 0.1, WARNING),
        (Discovery((CARD,), None, "550.54", "12.4"), (), [], 9.0, WARNING),
        (Discovery((CARD,), "the driver's GPU 1 does not answer: GPU is lost"), (), [], 0.1, FAILED),
        (Discovery((), "NVML does not start"), ("no GPU is used",), ["0000:1a:00.0"], 0.1, FAILED),
        (Discovery((), "NVML does not start"), ("no GPU is used",), [], 0.1, CANNOT),
    ],
)
def test_nvml(discovery: Discovery, notes: tuple[str, ...], on_pci: list[str], took_s: float, verdict: Verdict) -> None:
    found = verdicts.nvml(discovery, notes, on_pci, took_s)
    assert found.verdict is verdict
    assert (discovery.reason or "") in found.seen


@pytest.mark.parametrize(
    ("answer", "devices", "verdict", "said"),
    [
        (GOOD, [DEVICE], OK, "TensorFlow 2.21.0, built for CUDA 12.5.1, sees 1 GPU"),
        (replace(GOOD, gpus=(), built_for={}), [], OK, "built without CUDA"),
        (replace(GOOD, gpus=()), [DEVICE], FAILED, "sees 0 GPUs, but NVML lists 1"),
        (GOOD, [], FAILED, "sees 1 GPU, but NVML lists 0"),
        (GOOD, [MIG, MIG], OK, "sees 1 GPU"),
        (replace(GOOD, gpus=()), [MIG, MIG], FAILED, "sees 0 GPUs, but NVML lists 2"),
        (BAD, [DEVICE], FAILED, "InternalError: no device"),
    ],
)
def test_tensorflow(answer: ProbeAnswer, devices: list[Device], verdict: Verdict, said: str) -> None:
    found = verdicts.tensorflow(answer, devices, "line\nE0000 failed call to cuInit: no driver\n2 + 2\n")
    assert (found.verdict, said in found.seen) == (verdict, True)
    assert ("; it printed: E0000 failed call to cuInit: no driver" in found.advice) == (verdict is FAILED)


@pytest.mark.parametrize(
    ("driver", "capability", "verdict"),
    [
        ("12.5", "7.5", OK),
        ("13.0", "8.6", OK),
        ("12.8", "9.0", OK),
        ("12.2", "7.5", WARNING),
        ("12.8", "12.0", WARNING),
        ("12.8", "5.2", WARNING),
        ("11.8", "7.5", FAILED),
        ("", "", CANNOT),
    ],
)
def test_the_driver_against_what_tensorflow_was_built_for(driver: str, capability: str, verdict: Verdict) -> None:
    answer = replace(GOOD, gpus=(replace(SEEN, capability=capability),))
    assert verdicts.cuda(answer, driver).verdict is verdict


def test_without_cuda_there_is_nothing_to_compare() -> None:
    assert verdicts.cuda(replace(GOOD, built_for={}), "12.5").verdict is CANNOT


@pytest.mark.parametrize(
    ("seen", "devices", "verdict"),
    [
        ((SEEN, SEEN_OTHER), [DEVICE, OTHER], OK),
        ((SEEN_OTHER, SEEN), [DEVICE, OTHER], FAILED),
        ((SEEN,), [DEVICE, OTHER], CANNOT),
        ((SEEN,), [MIG], CANNOT),
    ],
)
def test_pci_order(seen: tuple[SeenGpu, ...], devices: list[Device], verdict: Verdict) -> None:
    assert verdicts.order(replace(GOOD, gpus=seen), devices).verdict is verdict


@pytest.mark.parametrize(
    ("device", "answer", "verdict"),
    [
        (DEVICE, GOOD, OK),
        (MIG, GOOD, OK),
        (OTHER, GOOD, FAILED),
        (DEVICE, replace(GOOD, gpus=(replace(SEEN, bus=""),)), FAILED),
        (DEVICE, BAD, FAILED),
    ],
)
def test_a_uuid_is_the_same_card_to_both(device: Device, answer: ProbeAnswer, verdict: Verdict) -> None:
    assert verdicts.identity(device, answer, "").verdict is verdict


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.0, OK), (1e-3, OK), (0.5, FAILED), (float("nan"), FAILED), (None, CANNOT)]
)
def test_computing(difference: float | None, verdict: Verdict) -> None:
    assert verdicts.computing("gpu:0 computes", replace(GOOD, difference=difference)).verdict is verdict


@pytest.mark.parametrize(
    ("answer", "taken", "verdict"),
    [
        (GOOD, HOLD_BYTES + GIB, OK),
        (GOOD, 14 * GIB, FAILED),
        (GOOD, 0, WARNING),
        (GOOD, None, CANNOT),
        (BAD, HOLD_BYTES + GIB, CANNOT),
    ],
)
def test_memory_that_grows(answer: ProbeAnswer, taken: int | None, verdict: Verdict) -> None:
    during = {} if taken is None else {"GPU-a": GIB + taken}
    assert verdicts.growth(DEVICE, answer, {"GPU-a": GIB}, during).verdict is verdict


STUCK = ProbeAnswer("NotFree: gpu:0 still has 6.0 GiB of the former worker (pid 7, state D) after 30 s")
UNVERIFIED = "cannot verify that a former worker has freed gpu:0: NVML does not start"


@pytest.mark.parametrize(
    ("pair", "log", "verdict", "said"),
    [
        ((GOOD, GOOD), "", OK, "the next worker waited 0.2 s, by process ids"),
        ((GOOD, replace(GOOD, held=None)), "", OK, "by bytes in use"),
        ((STUCK, GOOD), "", FAILED, "state D"),
        ((GOOD, GOOD), f"line\n{UNVERIFIED}\n", WARNING, UNVERIFIED),
        ((BAD, BAD), "", CANNOT, ""),
    ],
)
def test_memory_that_comes_back(pair: tuple[ProbeAnswer, ProbeAnswer], log: str, verdict: Verdict, said: str) -> None:
    found = verdicts.freeing(DEVICE, pair, log)
    assert (found.verdict, said in found.seen) == (verdict, True)


@pytest.mark.parametrize(
    ("pair", "taken", "verdict"),
    [
        ((GOOD, GOOD), 2 * GIB, OK),
        ((GOOD, replace(GOOD, gpus=(replace(SEEN, limit_bytes=15 * GIB),))), 2 * GIB, FAILED),
        ((GOOD, GOOD), 15 * GIB, FAILED),
        ((GOOD, BAD), 2 * GIB, CANNOT),
        ((GOOD, GOOD), None, CANNOT),
    ],
)
def test_fractions(pair: tuple[ProbeAnswer, ProbeAnswer], taken: int | None, verdict: Verdict) -> None:
    during = {} if taken is None else {"GPU-a": GIB + taken}
    assert verdicts.fractions(DEVICE, pair, {"GPU-a": GIB}, during).verdict is verdict


@pytest.mark.parametrize(
    ("pair", "verdict"),
    [((GOOD, GOOD), OK), ((GOOD, BAD), FAILED), ((GOOD, replace(GOOD, difference=0.5)), FAILED)],
)
def test_side_by_side(pair: tuple[ProbeAnswer, ProbeAnswer], verdict: Verdict) -> None:
    assert verdicts.side_by_side(DEVICE, pair, "").verdict is verdict


@pytest.mark.parametrize(("after", "verdict"), [({"GPU-a": GIB}, OK), ({"GPU-a": 3 * GIB}, WARNING), ({}, WARNING)])
def test_what_is_left_at_the_end(after: dict[str, int], verdict: Verdict) -> None:
    assert verdicts.all_back({"GPU-a": GIB}, after).verdict is verdict
