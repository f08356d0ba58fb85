"""The two messages of each batch between pool and lane, with fixed fields: see `pool.wire.hot`."""

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

from pool.wire.calls import MOST_CALLS
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.hot import (
    MAGIC,
    PLACE,
    VERSION,
    Buffer,
    bounded,
    found_buffers,
    pack_numbers,
    split,
)
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.outcomes import Failure, Spoiled

__all__ = ["Done", "Run", "said_once"]

_RUN = struct.Struct("<4sBB8sHQQIIIIIIIII")
_BY_ROWS, _REGISTERS = 1, 2

_DONE = struct.Struct("<4sBB8sHQddIII")

MOST_BUFFERS = 1 << 20  # of one batch


@dataclass(frozen=True, slots=True)
class _Names:
    """Of a lane's call: what is run of which model."""

    model: str
    signature: str | None
    outputs: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class _Failures:
    failures: tuple[Failure, ...]


@dataclass(slots=True)
class Run:
    """A batch. Its payload is one `Table`, which all parts share, and then the buffers of each part in turn.

    `rows` of each part; empty for a lone part whose shapes are whole in the table. `pad_to`: how many rows are to be
    fed, at least as many as the parts have; the rest repeats the first row, and its answers are thrown away.
    `by_rows`: the rows were joined, cut or padded, so each fetch must come back with as many as were fed.
    `microbatch`: at most so many rows are fed at once, in runs that follow one another; 0: all of them.

    `lent`: the buffers that lie in segments, counted over all parts. `spaces`: where each part's answer may be written;
    empty where none may. `halves`: the buffers that come in two frames, to be joined, counted likewise.
    `owner`: the number of the client for whom a private session is opened; 0 for all else.

    `call`: by which the lane knows model, signature, outputs and table. One that `registers` brings them along, and
    they take the place of whatever had the number before: so the pool forgets. Of one that does not, they are empty
    when it was read, and `known` puts them in.
    """

    kind: ClassVar[int] = 37
    batch: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: tuple[int, ...]
    pad_to: int
    by_rows: bool
    lent: tuple[Lent, ...] = ()
    spaces: tuple[AnswerSpace, ...] = ()
    microbatch: int = 0
    owner: int = 0
    halves: tuple[int, ...] = ()
    call: int = field(default=0, compare=False)
    registers: bool = field(default=True, compare=False)

    def to_frames(self, instance: bytes, payload: Sequence[Buffer]) -> list[Buffer]:
        table, *buffers = payload
        lent, spaces, rows = self.lent, self.spaces, self.rows
        sizes, small, own = split(
            buffers, {each.index for each in lent} if lent else (), frozenset(self.halves) if self.halves else ()
        )
        parts, buffers_count = len(rows), len(sizes)
        if buffers_count > MOST_BUFFERS:
            raise BadFrame(f"{buffers_count} buffers of one batch; at most {MOST_BUFFERS} are allowed")
        flags, names_bytes, table_bytes = _BY_ROWS if self.by_rows else 0, 0, 0
        names: Sequence[Buffer] = ()
        if self.registers:
            flags |= _REGISTERS
            names = pack(_Names(self.model, self.signature, self.outputs)), table
            names_bytes, table_bytes = map(len, names)
        regions: Sequence[Lent | AnswerSpace] = ()
        places: Sequence[bytes] = ()
        if lent or spaces:
            regions = (*lent, *spaces)
            places = [PLACE.pack(each.segment, each.offset, each.size_bytes) for each in regions]
        fixed = _RUN.pack(
            *(MAGIC, VERSION, 37, instance, flags, self.batch, self.owner, self.call, names_bytes, table_bytes),
            *(
                parts,
                self.pad_to,
                self.microbatch,
                len(spaces) if spaces else 0,
                len(lent) if lent else 0,
                buffers_count,
            ),
        )
        counts = struct.pack(f"<{parts + buffers_count}I", *rows, *sizes)
        return [b"".join((fixed, *places, counts, *names, *small)), *own]

    @classmethod
    def read(cls, first: memoryview, frames: Sequence[Buffer]) -> tuple[Self, list[Buffer]]:
        """With its payload. `first`: of the frames. Raises `BadFrame` or `struct.error` for what no pool says."""
        fields = _RUN.unpack_from(first)
        flags, batch, owner, call, names_bytes, table_bytes, parts = fields[4:11]
        pad_to, microbatch, spaces, lent, buffers = fields[11:]
        if flags > (_BY_ROWS | _REGISTERS) or call >= MOST_CALLS or buffers > MOST_BUFFERS:
            raise BadFrame(f"flags {flags:#x}, call {call}, {buffers} buffers")
        position = _RUN.size
        places: list[tuple[int, int, int]] = []
        if lent or spaces:
            end = bounded(first, position, PLACE.size * (lent + spaces))
            places = list(PLACE.iter_unpack(first[position:end]))
            position = end
        counts = struct.unpack_from(f"<{parts + buffers}I", first, position)
        rows, sizes = counts[:parts], counts[parts:]
        position = middle = end = position + 4 * (parts + buffers)
        registers = flags >= _REGISTERS
        if registers:
            middle = bounded(first, position, names_bytes)
            end = bounded(first, middle, table_bytes)
        elif names_bytes or table_bytes:
            raise BadFrame("names of a call that is not registered")
        found, shared, halves = found_buffers(frames, first, end, sizes)
        if len(shared) != lent or spaces not in (0, parts or 1):
            raise BadFrame(f"{len(shared)} lent buffers where {lent} are declared, {spaces} spaces of {parts} parts")
        names, table = _UNNAMED, b""
        if registers:
            names, table = unpack(_Names, first[position:middle]), bytes(first[middle:end])
        regions: tuple[tuple[Lent, ...], tuple[AnswerSpace, ...]] = (), ()
        if places:
            regions = (
                tuple([Lent(index, *place) for index, place in zip(shared, places[:lent], strict=True)]),
                tuple([AnswerSpace(*place) for place in places[lent:]]),
            )
        run = cls(
            *(batch, names.model, names.signature, names.outputs, rows, pad_to, flags & _BY_ROWS == _BY_ROWS),
            *(*regions, microbatch, owner, tuple(halves), call, registers),
        )
        return run, [table, *found]

    def known(self, model: str, signature: str | None, outputs: tuple[str, ...] | None) -> None:
        """What its call was registered as."""
        self.model, self.signature, self.outputs = model, signature, outputs


_UNNAMED = _Names("", None, None)


@dataclass(slots=True)
class Done:
    """The outcomes of a RUN's parts, in its order.

    `frames`: how many buffers of the payload each part's answer has; 0 stands for the next of `failures`. Nearly all
    parts are done, and a number each is quickly read. A text is said once, since thousands of parts may share one long
    error: "" stands for that of the Spoiled before. `run_s`: inside the backend; `fetch_s`: from there to now.
    """

    kind: ClassVar[int] = 38
    batch: int
    frames: tuple[int, ...]
    failures: tuple[Failure, ...]
    run_s: float
    fetch_s: float

    def failed(self) -> dict[int, Failure]:
        """Why parts have no answer, by their place in the batch."""
        failed: dict[int, Failure] = {}
        said = ""
        places = [place for place, frames in enumerate(self.frames) if not frames]
        for place, failure in zip(places, self.failures, strict=True):
            if isinstance(failure, Spoiled):
                said = failure.text or said
                failure = Spoiled(failure.fault, said)
            failed[place] = failure
        return failed

    def to_frames(self, instance: bytes, buffers: Sequence[Buffer]) -> list[Buffer]:
        sizes, small, own = split(buffers)
        failures = pack(_Failures(self.failures)) if self.failures else b""
        fixed = _DONE.pack(
            *(MAGIC, VERSION, 38, instance, 0, self.batch, self.run_s, self.fetch_s),
            *(len(self.frames), len(sizes), len(failures)),
        )
        return [b"".join((fixed, pack_numbers(*self.frames, *sizes), failures, *small)), *own]

    @classmethod
    def read(cls, first: memoryview, frames: Sequence[Buffer]) -> tuple[Self, list[Buffer]]:
        """With its payload. `first`: of the frames. Raises `BadFrame` or `struct.error` for what no lane says."""
        flags, batch, run_s, fetch_s, parts, buffers, failures_bytes = _DONE.unpack_from(first)[4:]
        if flags or buffers > MOST_BUFFERS:
            raise BadFrame(f"flags {flags:#x}, {buffers} buffers")
        if not (0.0 <= run_s < math.inf and 0.0 <= fetch_s < math.inf):
            raise BadFrame(f"a run of {run_s} s and {fetch_s} s more")
        position = _DONE.size
        both = struct.unpack_from(f"<{parts + buffers}I", first, position)
        counts, sizes = both[:parts], both[parts:]
        position += 4 * (parts + buffers)
        failures: tuple[Failure, ...] = ()
        if failures_bytes:
            end = bounded(first, position, failures_bytes)
            failures = unpack(_Failures, first[position:end]).failures
            position = end
        if (failures or 0 in counts) and counts.count(0) != len(failures):
            raise BadFrame(f"{len(failures)} failures for {counts.count(0)} parts that failed")
        if sum(counts) != buffers:
            raise BadFrame(f"answers of {sum(counts)} buffers, where there are {buffers}")
        payload, lent, halves = found_buffers(frames, first, position, sizes)
        if lent or halves:
            raise BadFrame("an answer with a buffer that is lent, or comes in halves")
        return cls(batch, counts, failures, run_s, fetch_s), payload


def said_once(failures: Iterable[Failure]) -> tuple[Failure, ...]:
    """As DONE has them: without the texts that are said already."""
    short: list[Failure] = []
    said = ""
    for failure in failures:
        if isinstance(failure, Spoiled):
            short.append(Spoiled(failure.fault, "") if failure.text == said else failure)
            said = failure.text
        else:
            short.append(failure)
    return tuple(short)
