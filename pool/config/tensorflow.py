"""`[tensorflow]`, what overrides it for one device or one model, and the rules that place a model's layers."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from pool.config.device_list import DeviceUse
from pool.config.quantities import CountOrAuto, FractionOrUnlimited
from pool.config.section import Section, SomePaths
from pool.wire.worker_messages import LayerRule, TensorFlowSettings

__all__ = [
    "DeviceSection",
    "LayerDevices",
    "TensorFlowOverrides",
    "TensorFlowSection",
    "is_least_loaded",
    "rules_of",
]

_DEVICE = re.compile(r"/(?:device:)?(cpu|gpu):(\d{1,4})", re.IGNORECASE | re.ASCII)


class TensorFlowSection(Section):
    """The `ConfigProto` of each worker; the names are TensorFlow's, and those of `TensorFlowSettings`.

    `op_libraries`: files of custom ops, loaded before any model; absolute once they are read.
    """

    allow_growth: bool = True
    per_process_gpu_memory_fraction: FractionOrUnlimited = "unlimited"
    allow_soft_placement: bool = True
    log_device_placement: bool = False
    intra_op_parallelism_threads: CountOrAuto = "auto"
    inter_op_parallelism_threads: CountOrAuto = "auto"
    device_count: dict[Literal["CPU", "GPU"], Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    jit: bool = False
    op_libraries: SomePaths = ()

    def message(self, *overrides: "TensorFlowOverrides") -> TensorFlowSettings:
        """The same, as it travels to a worker, with the keys that the overrides set: the last of them wins."""
        values: dict[str, Any] = self.model_dump()
        for override in overrides:
            values |= override.model_dump()
        for name, value in values.items():
            if value in ("auto", "unlimited"):
                values[name] = 0  # as TensorFlow has it
        return TensorFlowSettings(**values)


class TensorFlowOverrides(TensorFlowSection):
    """Some keys of `[tensorflow]`: those that the file sets, at whatever value. A dump has no others."""

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, whole: SerializerFunctionWrapHandler) -> Mapping[str, Any]:
        return {name: value for name, value in whole(self).items() if name in self.model_fields_set}


class DeviceSection(Section):
    """What is different for the workers of one of the pool's devices."""

    use: DeviceUse
    tensorflow: TensorFlowOverrides = TensorFlowOverrides()


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        right = 'a regular expression over names of nodes, such as "conv1/.*"'
        raise ValueError(f"{value!r} is not a pattern: {error}; write {right}") from None
    return value


def _device_of_a_worker(value: str) -> str:
    match = _DEVICE.fullmatch(value)
    if match is None:
        right = '"/cpu:0" or "/gpu:0"; each worker counts its devices from 0'
        raise ValueError(f"{value!r} is not a device of a worker; write {right}")
    return f"/{match[1].lower()}:{int(match[2])}"


class LayerRuleSection(Section):
    """The nodes whose whole name matches `layers` run on `device` of their worker: "/cpu:0", "/gpu:1"."""

    layers: Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
    device: Annotated[str, AfterValidator(_device_of_a_worker)]

    def message(self) -> LayerRule:
        """The same, as it travels to a worker."""
        return LayerRule(self.layers, self.device)


# In the place of rules: a rule that nobody can write, because its device is none.
_LEAST_LOADED = (LayerRuleSection.model_construct(layers="least-loaded", device="least-loaded"),)


def _layer_devices(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value == "least-loaded":
        return _LEAST_LOADED
    right = '"least-loaded", or rules such as [{ layers = "conv1/.*", device = "/cpu:0" }]'
    raise ValueError(f"{value!r} says no devices; write {right}")


def rules_of(devices: tuple[LayerRuleSection, ...]) -> tuple[LayerRule, ...]:
    """As they travel to a worker; none where they are "least-loaded"."""
    return () if is_least_loaded(devices) else tuple(rule.message() for rule in devices)


def is_least_loaded(devices: tuple[LayerRuleSection, ...]) -> bool:
    return devices == _LEAST_LOADED


LayerDevices = Annotated[tuple[LayerRuleSection, ...], Field(strict=False), BeforeValidator(_layer_devices)]
