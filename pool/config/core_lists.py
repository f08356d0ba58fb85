"""`cpu_affinity` of `[pool]`, as far as it can be checked without looking at the machine."""

from typing import Annotated, TypeAlias

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from pool.cores import core_list

__all__ = ["CpuAffinity", "parse_cpu_affinity"]

_RIGHT = 'false, true, or a list of cores for each CPU worker: ["0-3", "4-7"]'

_Affinity: TypeAlias = bool | tuple[tuple[int, ...], ...]


def parse_cpu_affinity(value: object) -> _Affinity:
    """A flag, or the cores of each CPU slot."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise _refuse(value)
    return tuple(_cores(one) for one in value)


def _cores(value: object) -> tuple[int, ...]:
    if not isinstance(value, str):
        raise _refuse(value)
    try:
        return core_list(value)
    except ValueError:
        raise _refuse(value) from None


def _refuse(value: object) -> PydanticCustomError:
    return PydanticCustomError(
        "affinity", "{value} is no list of cores; write {right}", {"value": repr(value), "right": _RIGHT}
    )


CpuAffinity = Annotated[_Affinity, PlainValidator(parse_cpu_affinity)]
