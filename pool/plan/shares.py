"""The workers of each device: from the models that are placed there to the slots, and what each one's share is. Pure.

    device ─► models whose process-wide options differ are apart ─► so many workers of each ─► a slot each

GPU options, thread pools and the devices themselves belong to TensorFlow's process: the first Session's count, and
another one's are ignored or fail. The rest of a `ConfigProto` is each Session's own, so models may share a worker
that differ in nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pool.devices import Device
from pool.wire.sizes import readable
from pool.wire.worker_messages import LayerRule, TensorFlowSettings

__all__ = ["ModelShare", "Share", "refusals", "share_out"]

_ROUNDING = 1e-9  # of fractions that are written in decimals

_PROCESS_WIDE = (
    *("allow_growth", "per_process_gpu_memory_fraction", "intra_op_parallelism_threads"),
    *("inter_op_parallelism_threads", "device_count", "op_libraries"),
)


@dataclass(frozen=True, slots=True)
class ModelShare:
    """What a model asks of the worker that serves it; `tensorflow` by device, in the order of the devices."""

    name: str
    tensorflow: Sequence[TensorFlowSettings]
    layer_devices: tuple[LayerRule, ...] = ()
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """A slot: one worker on `device`. `tensorflow_by_model`: of models whose own differ from the worker's."""

    device: Device
    models: tuple[str, ...]
    tensorflow: TensorFlowSettings
    tensorflow_by_model: Mapping[str, TensorFlowSettings]


def share_out(
    devices: Sequence[Device],
    placed: Sequence[Sequence[str]],
    models: Sequence[ModelShare],
    tensorflow: Sequence[TensorFlowSettings],
    workers_per_device: int,
) -> tuple[Share, ...]:
    """The slots, device by device. `placed`: the models of each device; `tensorflow`: of a worker that has none.

    Guarantees: without options that differ, and one worker a device, slot N is device N. The order of `models` decides
    nothing. A fraction of a device's memory is divided among the workers that have it in common.
    """
    shares: list[Share] = []
    named = {model.name: model for model in models}
    for number, (device, names) in enumerate(zip(devices, placed, strict=True)):
        own = _divided(tensorflow[number], workers_per_device)
        wanted = {name: _divided(named[name].tensorflow[number], workers_per_device) for name in sorted(names)}
        apart: list[tuple[dict[str, Any], list[str]]] = []
        for name, settings in wanted.items():
            options = _process_wide(settings)
            together = next((each for shared, each in apart if shared == options), None)
            if together is None:
                apart.append((options, [name]))
            else:
                together.append(name)
        for options, together in apart or [(_process_wide(own), [])]:
            settings = replace(own, **options)
            differing = {name: wanted[name] for name in together if wanted[name] != settings}
            ordered = tuple(name for name in names if name in together)
            shares += [Share(device, ordered, settings, differing)] * workers_per_device
    return tuple(shares)


def refusals(shares: Sequence[Share], models: Sequence[ModelShare]) -> Iterator[str]:
    """A line for each thing that no start could meet: what, where, and what would be right."""
    named = {model.name: model for model in models}
    for device in dict.fromkeys(share.device for share in shares):
        here = [share for share in shares if share.device == device and share.models]
        if device.kind == "gpu":
            yield from _refuse_memory(device, here, named)
        for share in _distinct(here):
            yield from _refuse_devices(share, named)


def _process_wide(settings: TensorFlowSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in _PROCESS_WIDE}


def _divided(settings: TensorFlowSettings, workers: int) -> TensorFlowSettings:
    if workers == 1:
        return settings
    return replace(settings, per_process_gpu_memory_fraction=settings.per_process_gpu_memory_fraction / workers)


def _distinct(here: Sequence[Share]) -> Iterator[Share]:
    """Workers that are alike are complained of once."""
    return (share for number, share in enumerate(here) if number == 0 or share is not here[number - 1])


def _refuse_memory(device: Device, here: Sequence[Share], named: Mapping[str, ModelShare]) -> Iterator[str]:
    fractions = [share.tensorflow.per_process_gpu_memory_fraction for share in here]
    shown = "; ".join(
        f"{fraction:g} for {', '.join(share.models)}" for share, fraction in zip(here, fractions, strict=True)
    )
    if sum(fractions) > 1 + _ROUNDING:
        yield (
            f"{device.label}: its {len(here)} workers may take {sum(fractions):g} times its memory ({shown}); lower"
            " per_process_gpu_memory_fraction, or give models that differ in [tensorflow] devices of their own"
        )
    for share in here:
        greedy = not share.tensorflow.allow_growth and share.tensorflow.per_process_gpu_memory_fraction == 0
        if greedy and len(here) > 1:
            yield (
                f"{device.label}: the worker of {', '.join(share.models)} would take all of its memory when it starts,"
                f" but {len(here)} workers share it; set per_process_gpu_memory_fraction, or allow_growth = true"
            )
            return
    for share in _distinct(here):
        yield from _refuse_sizes(device, share, named)


def _refuse_sizes(device: Device, share: Share, named: Mapping[str, ModelShare]) -> Iterator[str]:
    fraction = share.tensorflow.per_process_gpu_memory_fraction
    needed = sum(named[name].size_bytes for name in share.models)
    if device.memory_bytes is None or not fraction or needed <= fraction * device.memory_bytes:
        return
    yield (
        f"{device.label}: {', '.join(share.models)} need {readable(needed)}, but their worker may take"
        f" {readable(fraction * device.memory_bytes)} (per_process_gpu_memory_fraction = {fraction:g});"
        " raise it, or give them other devices"
    )


def _refuse_devices(share: Share, named: Mapping[str, ModelShare]) -> Iterator[str]:
    """Devices that the worker will not have: a GPU that `device_count` leaves out, one that a rule names."""
    gpus, counts = len(share.device.uuids), share.tensorflow.device_count
    if counts.get("GPU", gpus) < gpus:
        yield (
            f"{share.device.label}: device_count leaves the worker of {', '.join(share.models)} {counts['GPU']} of"
            f" its {gpus} GPUs; leave GPU out of device_count, and list the GPUs to use in `[pool] devices`"
        )
        return
    has = [f"/cpu:{number}" for number in range(counts.get("CPU", 1))] + [f"/gpu:{number}" for number in range(gpus)]
    for name in share.models:
        missing = sorted({rule.device for rule in named[name].layer_devices} - set(has))
        if missing:
            yield (
                f"model {name}: its layer_devices name {', '.join(missing)}, but its worker on {share.device.label} has"
                f" {', '.join(has)}; name one of these, raise device_count, or write other `devices`"
            )
