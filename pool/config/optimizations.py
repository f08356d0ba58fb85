"""The keys of `[[model]]` that may make it quicker. Each is tried when the model warms up, and off by default."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from pool.config.section import Section
from pool.wire.optimizations import GRAPPLER, OptimizationSettings

__all__ = ["ModelAdvanced", "OptimizationKeys"]

_CHOICES = ("on", "off", "aggressive")


def _passes(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError('is not a table; write one such as { remapping = "off" }')
    for name, choice in value.items():
        if name not in GRAPPLER:
            raise ValueError(f"{name!r} is not one of its passes: {', '.join(GRAPPLER)}")
        if choice not in _CHOICES:
            raise ValueError(f'{choice!r} is not a choice for {name}; write "on", "off" or "aggressive"')
    return dict(value)


def _tolerance(value: object) -> float | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
        return float(value)
    raise ValueError(f'{value!r} is not a tolerance; write "auto", or a number between 0 and 1 such as 1e-3')


class ModelAdvanced(Section):
    """What few models need: see `clear_devices` in `pool.wire`; passes of grappler; how far an output may be off."""

    clear_devices: Literal["missing", "all", "off"] = "missing"
    grappler: Annotated[dict[str, str], PlainValidator(_passes)] = Field(default_factory=dict)
    tolerance: Annotated[float | Literal["auto"], PlainValidator(_tolerance)] = "auto"


class OptimizationKeys(Section):
    freeze: bool = False
    xla: bool = False
    mixed_precision: bool = False
    advanced: ModelAdvanced = ModelAdvanced()

    def optimizations_message(self) -> OptimizationSettings | None:
        """The same, as it travels to a worker; None where nothing is asked for."""
        found = OptimizationSettings(
            self.freeze,
            self.advanced.grappler or None,
            self.xla,
            self.mixed_precision,
            self.advanced.tolerance if isinstance(self.advanced.tolerance, float) else None,
        )
        return found if found.kinds else None
