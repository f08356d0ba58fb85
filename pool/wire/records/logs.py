"""What `Client.logs` tells."""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.wire.codec import Plain, Record

__all__ = ["LogLine", "LogLines"]


@dataclass(frozen=True, slots=True)
class LogLine(Record):
    """`time_s`: seconds since 1970; `level`: a number of the module `logging`."""

    time_s: float
    level: int
    event: str
    message: str
    fields: Mapping[str, Plain]


@dataclass(frozen=True, slots=True)
class LogLines(Record):
    """`last`: the number of the last of them."""

    last: int
    lines: tuple[LogLine, ...]
