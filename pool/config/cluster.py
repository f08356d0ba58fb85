"""`[cluster]`: on which machines of a Ray cluster `pool start --ray` places a pool, and what each reserves there."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, field_validator

from pool.config.quantities import PositiveSeconds
from pool.config.section import Section

__all__ = ["ClusterSection", "parse_count_or_all", "parse_gpus"]

_ADDRESS = re.compile(r"auto|([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}", re.ASCII)
_NAME = re.compile(r"(?:[A-Za-z0-9_.-]|\{node\})+", re.ASCII)


def parse_count_or_all(value: Any) -> int | Literal["all"]:
    return _number(value, 1)


def parse_gpus(value: Any) -> int | Literal["all"]:
    return _number(value, 0)


def _number(value: Any, least: int) -> int | Literal["all"]:
    if value == "all":
        return "all"
    if type(value) is not int or value < least:
        raise ValueError(f'{value!r} is not a number from {least}; write one, or "all"')
    return value


def _labels(value: Any) -> Any:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(f'{value!r} is not a table of texts; write one such as {{ "zone" = "a" }}')
    return value


class ClusterSection(Section):
    """`address`: of Ray's head. `nodes`: so many machines, or all that fit. `labels`: what Ray says of such a machine.

    `gpus`: reserved in Ray on each machine; "all" fits machines with GPUs, 0 any machine. `cpus`: likewise reserved.
    `name`: of the pool on each machine; "{node}" stands for the first eight digits of Ray's id of the node.
    `hung_after`: a pool that answers nothing for so long is killed and placed again.
    """

    address: str = "auto"
    nodes: Annotated[int | Literal["all"], PlainValidator(parse_count_or_all)] = "all"
    labels: Annotated[dict[str, str], BeforeValidator(_labels)] = Field(default_factory=dict)
    gpus: Annotated[int | Literal["all"], PlainValidator(parse_gpus)] = "all"
    cpus: Annotated[int, Field(ge=0)] = 0
    name: str = "pool"
    hung_after: PositiveSeconds = 30.0

    @field_validator("address")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        if _ADDRESS.fullmatch(value) is None:
            right = '"auto", or "HOST:PORT" as `ray start` shows it'
            raise ValueError(f"{value!r} is not an address of Ray; write {right}")
        return value

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if _NAME.fullmatch(value) is None:
            right = """letters, digits, '_', '.' and '-', with "{node}" where several nodes share a machine"""
            raise ValueError(f"{value!r} is not a name; write {right}")
        return value
