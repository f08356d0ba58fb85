"""What `Client.load`, `unload`, `reload` and `restart` have done."""

from dataclasses import dataclass

from pool.wire.codec import Plain, Record

__all__ = ["Change", "Changes", "Restarted"]


@dataclass(frozen=True, slots=True)
class Change(Record):
    """A key of the configuration with another value; `line` says it to a person."""

    key: str
    before: Plain
    after: Plain
    line: str


@dataclass(frozen=True, slots=True)
class Changes(Record):
    changes: tuple[Change, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restarted(Record):
    """The slot, and the incarnation of the worker that it gets."""

    slot: int
    incarnation: int
