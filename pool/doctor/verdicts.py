"""What is well about what NVML and a tried TensorFlow told. Pure: each is handed what was seen."""

import re
from collections.abc import Mapping, Sequence

from pool.devices import Device, Discovery
from pool.doctor.finding import CANNOT, FAILED, OK, WARNING, Finding
from pool.terminal import count_of
from pool.wire.probe import ProbeAnswer
from pool.wire.sizes import readable

__all__ = [
    *("FRACTION_BYTES", "HOLD_BYTES", "all_back", "computing", "cuda", "fractions", "freeing", "growth", "identity"),
    *("nvml", "order", "side_by_side", "tensorflow"),
]

HOLD_BYTES = 256 << 20  # far from all of a GPU, and far more than what comes and goes by itself
FRACTION_BYTES = 512 << 20
CONTEXT_BYTES = 2 << 30  # of CUDA, its libraries and their kernels, a process
SLACK_BYTES = 256 << 20  # what other programs and the driver take and give meanwhile
LIMIT_SLACK = 0.1  # CUDA's total of a GPU is less than NVML's
DIFFERENCE = 0.01  # a GPU may multiply in TF32
SLOW_S = 3.0
GPU_PACKAGE = "pip install 'tf-worker-pool[gpu]'"
UNLIMIT = "unset TF_FORCE_GPU_ALLOW_GROWTH and TF_GPU_ALLOCATOR"
TELLING = re.compile(r"cuda|cudnn|cuinit|dlopen|driver|gpu|libcu", re.IGNORECASE)
UNVERIFIED = "cannot verify"  # of what `workers.device_memory` logs

Used = Mapping[str, int]
"""Bytes in use, by the uuid of a GPU."""


def nvml(discovery: Discovery, notes: Sequence[str], on_pci: Sequence[str], took_s: float) -> Finding:
    """`notes`: about what the pool may use. `on_pci`: where the kernel sees NVIDIA's cards, driver or not."""
    gpus, reason = discovery.gpus, discovery.reason
    if not gpus and not on_pci:
        return Finding("NVML", CANNOT, f"there is no NVIDIA card: {reason}")
    if not gpus:
        advice = f"install the driver, and {GPU_PACKAGE}; in a container, pass the GPUs on"
        return Finding("NVML", FAILED, f"there is an NVIDIA card at {on_pci[0]}, but {reason}", advice)
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    seen = f"driver {discovery.driver or '–'}, {len(gpus)} × {names}"
    if reason is not None:
        return Finding("NVML", FAILED, f"{seen}; {reason}", "see `dmesg` for the driver's Xid; reset the GPU")
    if notes:
        return Finding("NVML", WARNING, f"{seen}; {'; '.join(notes)}", "see `pool devices`")
    if took_s > SLOW_S:
        return Finding("NVML", WARNING, f"{seen}; it answered after {took_s:.0f} s", "run nvidia-persistenced")
    return Finding("NVML", OK, seen)


def tensorflow(answer: ProbeAnswer, devices: Sequence[Device], log: str) -> Finding:
    name, count = "TensorFlow", len(devices)
    if answer.failure:
        return Finding(name, FAILED, answer.failure, f"pip install 'tf-worker-pool[worker]', or [gpu]{_end(log)}", log)
    built = answer.built_for
    made = f"built for CUDA {built['cuda']}" if built else "built without CUDA"
    seen = f"TensorFlow {answer.version}, {made}, sees {count_of(len(answer.gpus), 'GPU')}"
    one_of_many = answer.gpus and "" in _buses(devices)  # CUDA shows one MIG instance
    if len(answer.gpus) == count or one_of_many:
        return Finding(name, OK, seen, log=log)
    return Finding(name, FAILED, f"{seen}, but NVML lists {count}", f"{GPU_PACKAGE}{_end(log)}", log)


def cuda(answer: ProbeAnswer, driver: str) -> Finding:
    """The newest CUDA that the driver runs against the one that TensorFlow was built for."""
    built = answer.built_for.get("cuda", "")
    if not built or not driver:
        return Finding("CUDA", CANNOT, "TensorFlow does not use it" if driver else "there is no driver")
    seen = f"the driver runs CUDA {driver}, TensorFlow was built for {built}"
    ours, theirs = ([int(part) for part in each.split(".")[:2]] for each in (built, driver))
    if theirs[0] < ours[0]:
        return Finding("CUDA", FAILED, seen, "install a newer driver")
    made = re.findall(r"_(\d+)(\d)\b", answer.built_for.get("capabilities", ""))
    for gpu in answer.gpus:
        major, _, minor = gpu.capability.partition(".")
        # What was made for 8.0 runs on 8.6, but not on 9.0.
        if made and major and not any(one == major and int(less) <= int(minor or 0) for one, less in made):
            advice = "the first run takes minutes; set CUDA_CACHE_PATH to a folder that stays"
            return Finding("CUDA", WARNING, f"{seen}, without kernels for {gpu.name} ({gpu.capability})", advice)
    if theirs < ours:
        return Finding("CUDA", WARNING, seen, "install a newer driver if kernels fail to compile")
    return Finding("CUDA", OK, seen)


def order(answer: ProbeAnswer, devices: Sequence[Device]) -> Finding:
    """Whether a number means the same GPU to NVML, the configuration and CUDA."""
    listed, seen = _buses(devices), [_bus(gpu.bus) for gpu in answer.gpus]
    if "" in listed or len(seen) != len(listed):
        return Finding("PCI order", CANNOT, "NVML and TensorFlow do not list the same whole GPUs")
    if seen != listed:
        text = f"TensorFlow has {', '.join(seen)}, but NVML {', '.join(listed)}"
        return Finding("PCI order", FAILED, text, "write uuids for `devices` in [pool], and report this")
    return Finding("PCI order", OK, f"NVML and TensorFlow have {', '.join(listed)}")


def identity(device: Device, answer: ProbeAnswer, log: str) -> Finding:
    """Whether a worker that is given this uuid has this GPU."""
    if answer.failure:
        return Finding(device.label, FAILED, answer.failure, f"see what it printed{_end(log)}", log)
    listed, seen = _buses([device]), [_bus(gpu.bus) for gpu in answer.gpus]
    where = f"{', '.join(device.uuids)} ({device.name})"
    if "" not in listed and seen != listed:
        text = f"{where} is at {', '.join(listed)}, but a worker's TensorFlow is at {', '.join(seen)}"
        return Finding(device.label, FAILED, text, "report this", log)
    return Finding(device.label, OK, f"{where} at {', '.join(seen)}", log=log)


def computing(name: str, answer: ProbeAnswer) -> Finding:
    difference = answer.difference
    if difference is None:
        return Finding(name, CANNOT, "TensorFlow did not get so far")
    seen = f"a convolution and a product differ from the CPU's by {difference:.2g} of their size"
    if not difference <= DIFFERENCE:  # not a number is no answer either
        return Finding(name, FAILED, seen, "test the GPU's memory; try another driver")
    return Finding(name, OK, seen)


def growth(device: Device, answer: ProbeAnswer, before: Used, during: Used) -> Finding:
    name, taken = f"{device.label} memory that grows", _taken(device, before, during)
    if answer.failure or taken is None:
        return Finding(name, CANNOT, "TensorFlow did not get so far" if answer.failure else "NVML does not tell it")
    seen = f"{readable(taken)} of the GPU were taken for {readable(HOLD_BYTES)} of tensors"
    if taken > HOLD_BYTES + CONTEXT_BYTES + SLACK_BYTES:
        return Finding(name, FAILED, seen, UNLIMIT)
    if taken < HOLD_BYTES:
        return Finding(name, WARNING, seen, "ask again while no other program uses the GPU")
    return Finding(name, OK, seen)


def freeing(device: Device, followers: Sequence[ProbeAnswer], log: str) -> Finding:
    """Whether the next workers found the memory of a killed one free, as they wait for it in a pool."""
    name = f"{device.label} memory that comes back"
    for each in followers:
        if each.failure.startswith("NotFree"):
            advice = "look for a process in state D, and with `fuser -v /dev/nvidia*` for one that keeps it"
            return Finding(name, FAILED, each.failure, advice, log)
    if UNVERIFIED in log:
        seen = next(line for line in log.splitlines() if UNVERIFIED in line)
        return Finding(name, WARNING, seen, "see `device_free_timeout` in [health]", log)
    waits = [each.waited_s for each in followers if each.waited_s is not None]
    if not waits:
        return Finding(name, CANNOT, "TensorFlow did not get so far")
    listed = all(each.held is not None and each.held.listed for each in followers)
    how = "process ids" if listed else "bytes in use"
    return Finding(name, OK, f"free after a SIGKILL; the next worker waited {max(waits):.1f} s, by {how}")


def fractions(device: Device, pair: Sequence[ProbeAnswer], before: Used, during: Used) -> Finding:
    name, taken = f"{device.label} fractions", _taken(device, before, during)
    if any(answer.failure for answer in pair) or taken is None:
        return Finding(name, CANNOT, "TensorFlow did not get so far, or NVML does not tell the memory")
    limits = [gpu.limit_bytes for answer in pair for gpu in answer.gpus]
    seen = f"two were allowed {readable(FRACTION_BYTES)} each, and took {readable(taken)}"
    wide = [limit for limit in limits if abs(limit - FRACTION_BYTES) > FRACTION_BYTES * LIMIT_SLACK]
    if wide or taken > 2 * (FRACTION_BYTES + CONTEXT_BYTES) + SLACK_BYTES:
        return Finding(name, FAILED, f"{seen}; TensorFlow's limit is {readable((wide or limits)[0])}", UNLIMIT)
    return Finding(name, OK, seen)


def side_by_side(device: Device, pair: Sequence[ProbeAnswer], log: str) -> Finding:
    name = f"{device.label} two workers"
    for answer in pair:
        if answer.failure:
            advice = f"`nvidia-smi -c DEFAULT` lets several processes have a GPU{_end(log)}"
            return Finding(name, FAILED, answer.failure, advice, log)
        if (found := computing(name, answer)).verdict is not OK:
            return found
    return Finding(name, OK, "two at the same time compute as the CPU does")


def all_back(before: Used, after: Used) -> Finding:
    name = "memory at the end"
    if not before.keys() <= after.keys():
        return Finding(name, WARNING, "NVML does not tell it any more", "see `dmesg` for the driver's Xid")
    more = [uuid for uuid, used in before.items() if after[uuid] > used + SLACK_BYTES]
    if more:
        seen = "; ".join(f"{uuid} has {readable(after[uuid] - before[uuid])} more in use than before" for uuid in more)
        return Finding(name, WARNING, seen, "see `nvidia-smi`: another program may have come")
    return Finding(name, OK, "each GPU has in use what it had before")


def _end(log: str) -> str:
    """The last line of TensorFlow's own that says something of CUDA, or else its last."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    said = ([line for line in lines if TELLING.search(line)] or lines or [""])[-1]
    return f"; it printed: {said[-200:]}" if said else ""


def _buses(devices: Sequence[Device]) -> list[str]:
    return [_bus(bus) for device in devices for bus in device.buses]


def _bus(text: str) -> str:
    """NVML and CUDA write the domain with different lengths, and letters of either case. "" for a MIG instance."""
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if rest else ""


def _taken(device: Device, before: Used, during: Used) -> int | None:
    if not all(uuid in before and uuid in during for uuid in device.uuids):
        return None
    return sum(during[uuid] - before[uuid] for uuid in device.uuids)
