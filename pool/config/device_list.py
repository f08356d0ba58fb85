"""The `devices` and `cpu_affinity` keys of `config.toml`, checked as far as can be without looking at the machine.

A list has one entry a worker: a number, a "GPU-…" or "MIG-…" uuid, "cpu", or a list of numbers and uuids,
which is a group that one worker sees together. A single uuid or "cpu" may stand without its list.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import PlainValidator

from pool.devices import Entry, WantedDevices, core_list

__all__ = ["CpuAffinity", "DeviceUse", "ModelDevices", "PoolDevices"]

_RIGHT = '"auto", numbers such as [0, 1], uuids such as ["GPU-…"], ["cpu"], or a group within the list: [[0, 1]]'
_MODEL_RIGHT = '"auto", "all", or some of the pool\'s devices: [0, 1], ["GPU-…"], ["cpu"] or a group: [[0, 1]]'

_USE_RIGHT = 'one of the pool\'s devices: 0, "GPU-…", "cpu", "cpu:1" or a group: [0, 1]'
_AFFINITY_RIGHT = '"off", "auto", or a list of cores for each CPU worker: ["0-3", "4-7"]'
_ONE_CPU = re.compile(r"cpu:\d{1,4}", re.ASCII)


def _refuse(what: str, right: str) -> ValueError:
    return ValueError(f"{what}; write {right}")


def _one(value: object, right: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _refuse(f"{value!r} is not a device", right)
    if isinstance(value, str) and value.isascii() and value.isdigit():
        raise _refuse(f'"{value}" is a text, not a device number', f"{value} without the quotes")
    if isinstance(value, int) and value < 0:
        raise _refuse(f"{value} is not a device number", "numbers from 0, as `pool devices` shows them")
    if isinstance(value, str) and value != "cpu" and not (value.startswith(("GPU-", "MIG-")) and value[4:]):
        raise _refuse(f"{value!r} is not a device", right)
    if isinstance(value, str) and "," in value:
        raise _refuse(f"{value!r} is more than one device", "each one as an entry of a list")
    return value


def _group(value: Sequence[object], right: str) -> tuple[int | str, ...]:
    if not value:
        raise _refuse("a group of devices is empty", "the numbers or uuids of its devices, such as [[0, 1]]")
    group = tuple(_one(one, right) for one in value)
    if "cpu" in group:
        raise _refuse("a group cannot hold the CPU", '"cpu" as an entry of its own')
    return group


def _entries(value: object, right: str) -> tuple[Entry, ...]:
    if isinstance(value, str):
        return (_one(value, right),)
    if not isinstance(value, list | tuple):
        raise _refuse(f"{value!r} is not a list of devices", right)
    if not value:
        raise _refuse("the list of devices is empty", right)
    return tuple(_group(one, right) if isinstance(one, list | tuple) else _one(one, right) for one in value)


def _refuse_repeats(entries: tuple[Entry, ...], *, cpu_too: bool) -> None:
    flat = [one for entry in entries for one in (entry if isinstance(entry, tuple) else (entry,))]
    for one in flat:
        if flat.count(one) > 1 and (cpu_too or one != "cpu"):
            raise _refuse(f"{one!r} is in the list twice", "each device once")


def parse_pool_devices(value: object) -> WantedDevices:
    """ "auto", or a tuple of entries; ["cpu", "cpu"] is two CPU workers."""
    if value == "auto":
        return "auto"
    entries = _entries(value, _RIGHT)
    _refuse_repeats(entries, cpu_too=False)
    return entries


def parse_model_devices(value: object) -> Literal["all"] | WantedDevices:
    """ "auto", "all", or a tuple of entries; "cpu" names all CPU workers, so once is enough."""
    if value == "auto":
        return "auto"
    if value == "all":
        return "all"
    entries = _entries(value, _MODEL_RIGHT)
    _refuse_repeats(entries, cpu_too=True)
    return entries


def parse_device_use(value: object) -> Entry:
    """One of the pool's devices; "cpu" names all CPU workers, "cpu:1" the second one."""
    if isinstance(value, str) and _ONE_CPU.fullmatch(value):
        return f"cpu:{int(value[4:])}"
    return _group(value, _USE_RIGHT) if isinstance(value, list | tuple) else _one(value, _USE_RIGHT)


def parse_cpu_affinity(value: object) -> Literal["off", "auto"] | tuple[tuple[int, ...], ...]:
    """ "off", "auto", or the cores of each CPU slot."""
    if value == "off":
        return "off"
    if value == "auto":
        return "auto"
    if not isinstance(value, list | tuple) or not value:
        raise _refuse(f"{value!r} is not a list of cores", _AFFINITY_RIGHT)
    return tuple(map(_cores, value))


def _cores(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        with suppress(ValueError):
            return core_list(value)
    raise _refuse(f"{value!r} is not a list of cores", _AFFINITY_RIGHT)


PoolDevices = Annotated[WantedDevices, PlainValidator(parse_pool_devices)]
ModelDevices = Annotated[Literal["all"] | WantedDevices, PlainValidator(parse_model_devices)]
DeviceUse = Annotated[Entry, PlainValidator(parse_device_use)]
CpuAffinity = Annotated[Literal["off", "auto"] | tuple[tuple[int, ...], ...], PlainValidator(parse_cpu_affinity)]
