"""A batch run: the parts that can be read are joined, run once, and each gets its own rows of what came back.

    RUN ─► resolve and read each part ─► join, pad ─► Model.run ─► check the rows, cut ─► outcomes

A part that cannot be read fails alone, and the others run without it. If the run fails, nobody knows by whose fault.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pool.wire.codec import BadFrame
from pool.wire.faults import Fault
from pool.wire.lent import Lent, Room
from pool.wire.packing import RoomMemory, pack_answer, pack_answers
from pool.wire.session_runs import SESSION_SIGNATURES
from pool.wire.signatures import PLACEMENT, Refused
from pool.wire.tensors import Array
from pool.wire.worker_messages import PartDone, PartFailed, PartOutcome, PartSpoiled, Remark, RowsDiffer, Run
from workers.arenas import Arenas
from workers.backend import Model, ProcessUnusable
from workers.batch import following, join, own, rows_differ, whole
from workers.calls import Calls
from workers.declared import Declared
from workers.handled import HandledModel, PartError
from workers.independence.samples import Sample, Sampler
from workers.inputs import Buffer, Piece
from workers.memory import BatchMemory
from workers.placements import placement_answer
from workers.raised import text_of
from workers.sessions import Sessions
from workers.signatures import Invocation

__all__ = ["Finished", "Runner", "joined_halves"]

log = logging.getLogger("workers.runner")

TEXT_CHARS = 2000


@dataclass(frozen=True, slots=True)
class Finished:
    """One outcome a part; `payload` has the answers of those that are done. The instants are `time.monotonic`'s.

    The payload may be views of arrays that nothing writes any more: what a model gives stays as it is, and what of it
    looks at what was fed was copied. So it can leave without a copy.
    """

    outcomes: tuple[PartOutcome, ...]
    payload: list[Buffer]
    began: float
    ended: float
    sample: Sample | None = None
    """Rows to be compared when it is answered."""


@dataclass(frozen=True, slots=True)
class _Joined:
    """The parts that could be read; all ask for the same, but for the number of their rows."""

    invocation: Invocation
    positions: list[int]
    rows: list[int]
    pieces: list[list[Piece]]


class Runner:
    """Runs batches of these models. Safe from several threads."""

    def __init__(
        self,
        models: Mapping[str, Model],
        arenas: Arenas,
        sessions: Sessions | None = None,
        tell: Callable[[Remark], object] = lambda _: None,
    ) -> None:
        """`sessions`: what runs the graphs by the names of their tensors, if anything does.

        `tell` hears of outputs that contradict what their model declares.
        """
        self._models = models
        self._sessions = sessions
        self._arenas = arenas
        self._calls = {name: Calls(model.info) for name, model in models.items()}
        self._declared = {name: Declared(model.info, tell) for name, model in models.items()}

    def run(self, run: Run, frames: Sequence[Buffer], memory: BatchMemory, sampler: Sampler | None = None) -> Finished:
        """`frames`: the payload of the RUN; `memory` and `sampler` are the lane's.

        Raises `ProcessUnusable`; all else is an outcome.
        """
        memory.begin()
        outcomes: dict[int, PartOutcome] = {}
        answers: list[list[Buffer]] = []
        began = ended = time.monotonic()
        sample: Sample | None = None
        joined = self._read(run, frames, outcomes, memory)
        handled = self._models.get(run.model)
        if joined is not None and isinstance(handled, HandledModel) and _of_its_own(joined):
            began, ended, of_parts, sample = self._handled(run, joined, handled, memory, sampler)
            for position, (outcome, answer) in zip(joined.positions, of_parts, strict=True):
                outcomes[position] = outcome
                answers += [answer] if answer else []
        elif joined is not None:
            try:
                feeds = _feeds(run, joined, memory)
                began = time.monotonic()
                try:
                    fetched, amiss = self._ran(run, joined, feeds)
                finally:
                    ended = time.monotonic()
                if amiss is None:
                    sample = self._sampled(run, joined, feeds, fetched, sampler, ended - began)
                    answers = self._answers(run, joined, fetched)
                    outcomes.update(zip(joined.positions, (PartDone(len(answer)) for answer in answers), strict=True))
                else:
                    where = f"model {run.model}, signature {joined.invocation.signature}"
                    outcomes.update(dict.fromkeys(joined.positions, RowsDiffer(f"{where}: {amiss}")))
            except ProcessUnusable:
                raise
            except Exception as error:
                failure = PartFailed if len(joined.positions) == 1 else PartSpoiled
                outcomes.update(dict.fromkeys(joined.positions, failure(*_said(run.model, error))))
        ordered = tuple(outcomes[position] for position in range(len(outcomes)))
        return Finished(ordered, [frame for answer in answers for frame in answer], began, ended, sample)

    def run_rows(self, sample: Sample, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """Rows of a sample in other company. Raises `Refused` and `ProcessUnusable`."""
        fetched = self._models[sample.model].run(sample.signature, feeds, sample.outputs)
        return own(fetched, feeds.values())

    def _sampled(
        self,
        run: Run,
        joined: _Joined,
        feeds: Mapping[str, Array],
        fetched: Mapping[str, Array],
        sampler: Sampler | None,
        run_s: float,
    ) -> Sample | None:
        model = self._models.get(run.model)
        call = joined.invocation
        if sampler is None or model is None or not _of_its_own(joined):
            return None
        if not sampler.wanted(model.info, call.signature, call.outputs, run.by_rows, run_s):
            return None
        rows = sum(joined.rows) if run.by_rows else None
        if 0 < run.stride < _fed(run, joined):  # one run of several, or more rows would run together than may
            feeds = {name: array[: run.stride] for name, array in feeds.items()}
            fetched = {name: array[: run.stride] for name, array in fetched.items()}
        try:
            return sampler.sample(model.info, call.signature, call.outputs, feeds, fetched, rows, run_s)
        except MemoryError:
            return None  # no job fails for it

    def tend(self, now: float) -> None:
        """Called by lanes that have nothing to do."""
        if self._sessions is not None:
            self._sessions.tend(now)

    def _ran(self, run: Run, joined: _Joined, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], str | None]:
        """What came of it, none of which is anybody's feed; and what is amiss with its rows, if anything is."""
        runs: list[dict[str, Array]] = []
        for rows, taken in _strides(feeds, _fed(run, joined), run.stride):
            fetched = self._fetched(run, joined.invocation, taken)
            if run.by_rows and (amiss := rows_differ(fetched, rows)) is not None:
                return {}, amiss
            runs.append(own(fetched, taken.values()))
        return runs[0] if len(runs) == 1 else following(runs), None

    def _fetched(self, run: Run, invocation: Invocation, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if self._sessions is not None and invocation.signature in SESSION_SIGNATURES:
            return self._sessions.run(run.model, invocation, feeds, run.owner)
        if invocation.signature == PLACEMENT:
            return placement_answer(self._models[run.model])
        fetched = self._models[run.model].run(invocation.signature, feeds, invocation.outputs)
        self._declared[run.model].check(invocation.signature, fetched)
        return fetched

    def _handled(
        self, run: Run, joined: _Joined, model: HandledModel, memory: BatchMemory, sampler: Sampler | None
    ) -> tuple[float, float, list[tuple[PartOutcome, list[Buffer]]], Sample | None]:
        """When it began and ended, of each part that could be read what came of it with its answer's frames; a sample.

        The sample is of one part, which in a proven signature shared its run with the others.
        """
        began = time.monotonic()
        signature, outputs = joined.invocation.signature, joined.invocation.outputs
        parts = [_part(joined, number, run.by_rows) for number in range(len(joined.positions))]
        found = model.run_parts(signature, parts, outputs, memory)
        ended = time.monotonic()
        of_parts: list[tuple[PartOutcome, list[Buffer]]] = []
        for position, rows, each in zip(joined.positions, joined.rows, found, strict=True):
            if isinstance(each, PartError):
                failure = PartSpoiled if each.shared else PartFailed
                of_parts.append((failure(*_said(run.model, each.error)), []))
            elif run.by_rows and (amiss := rows_differ(each, rows)) is not None:
                of_parts.append((RowsDiffer(f"model {run.model}, signature {signature}: {amiss}"), []))
            else:
                self._declared[run.model].check(signature, each)
                frames = pack_answer(each, self._room(run.rooms[position]) if run.rooms else None)
                of_parts.append((PartDone(len(frames)), frames))
        sample = None
        if len(found) and not isinstance(found[0], PartError):
            sample = self._sampled(run, joined, parts[0], found[0], sampler, ended - began)
        return began, ended, of_parts, sample

    def _answers(self, run: Run, joined: _Joined, fetched: Mapping[str, Array]) -> list[list[Buffer]]:
        rooms = [self._room(run.rooms[position]) for position in joined.positions] if run.rooms else []
        if run.by_rows:
            return pack_answers(fetched, joined.rows, rooms)
        return [pack_answer(fetched, rooms[0] if rooms else None)]

    def _room(self, room: Room) -> RoomMemory | None:
        if not room.size_bytes:
            return None
        return RoomMemory(self._arenas.memory(room.arena, room.offset, room.size_bytes), room.offset)

    def _read(
        self, run: Run, frames: Sequence[Buffer], outcomes: dict[int, PartOutcome], memory: BatchMemory
    ) -> _Joined | None:
        """The parts that can be run; the others' outcomes are written."""
        lent = {each.index: each for each in run.lent}
        parts = run.rows or (None,)
        table, buffers = bytes(frames[0]), joined_halves(frames[1:], run.halves)
        each, left = divmod(len(buffers), len(parts))
        if left:  # whose frames are amiss cannot be told, so they must come one by one
            text = f"the batch cannot be read: {len(buffers)} buffers for {len(parts)} parts"
            outcomes.update(dict.fromkeys(range(len(parts)), PartSpoiled(Fault.INVALID_INPUT, text)))
            return None
        resolved = {rows: self._resolved(run, table, rows) for rows in dict.fromkeys(parts)}
        joined: _Joined | None = None
        for position, rows in enumerate(parts):
            invocation = resolved[rows]
            if isinstance(invocation, PartFailed):
                outcomes[position] = invocation
                continue
            try:
                begin = position * each
                theirs = buffers[begin : begin + each]
                found = self._found(run.model, invocation, theirs, begin, lent, memory) if lent else theirs
                pieces = invocation.read(found)
            except Exception as error:
                outcomes[position] = PartFailed(*_said(run.model, error))
                continue
            if joined is None:
                joined = _Joined(invocation, [], [], [])
            joined.positions.append(position)
            joined.rows.append(rows or 0)
            joined.pieces.append(pieces)
        return joined

    def _found(
        self,
        model: str,
        invocation: Invocation,
        buffers: Sequence[Buffer],
        begin: int,
        lent: Mapping[int, Lent],
        memory: BatchMemory,
    ) -> Sequence[Buffer]:
        """The buffers of a part, those that lie in an arena found there, or copied before anything hangs on them."""
        found = list(buffers)
        inputs = invocation.inputs
        names = tuple(each.name for each in inputs)
        bears_change = self._models[model].bears_change(invocation.signature, names, invocation.outputs)
        for index in range(len(found)):
            if (place := lent.get(begin + index)) is not None:
                arena = self._arenas.memory(place.arena, place.offset, place.size_bytes)
                may_change = bears_change and index < len(inputs) and inputs[index].may_change
                found[index] = arena if may_change else memory.copied(arena)
        return found

    def _resolved(self, run: Run, table: bytes, rows: int | None) -> Invocation | PartFailed:
        try:
            return self._calls[run.model].invocation(table, rows, run.signature, run.outputs)
        except Exception as error:
            return PartFailed(*_said(run.model, error))


def _of_its_own(joined: _Joined) -> bool:
    """Whether it is a signature of the model's, and none that asks something about it."""
    return joined.invocation.signature not in SESSION_SIGNATURES and joined.invocation.signature != PLACEMENT


def _part(joined: _Joined, number: int, by_rows: bool) -> dict[str, Array]:
    """What one of them gives, by the names of the inputs."""
    return {
        each.name: whole(
            piece, each.dtype, (joined.rows[number], *each.header.shape[1:]) if by_rows else each.header.shape
        )
        for each, piece in zip(joined.invocation.inputs, joined.pieces[number], strict=True)
    }


def joined_halves(frames: Sequence[Buffer], halves: Sequence[int]) -> Sequence[Buffer]:
    """The buffers; those that came in two frames are joined. What is missing is seen by their number."""
    if not halves:
        return frames
    buffers: list[Buffer] = []
    rest, joined = iter(frames), frozenset(halves)
    for frame in rest:
        halved = len(buffers) in joined
        buffers.append(b"".join((frame, next(rest, b""))) if halved else frame)
    return buffers


def _fed(run: Run, joined: _Joined) -> int:
    return max(run.pad_to, sum(joined.rows))


def _feeds(run: Run, joined: _Joined, memory: BatchMemory) -> dict[str, Array]:
    inputs = joined.invocation.inputs
    columns = zip(*joined.pieces, strict=True)
    if not run.by_rows:
        return {
            each.name: whole(only, each.dtype, each.header.shape) for each, (only,) in zip(inputs, columns, strict=True)
        }
    rows, fed = sum(joined.rows), _fed(run, joined)
    return {
        each.name: join(column, each.dtype, rows, fed, each.header.shape[1:], memory)
        for each, column in zip(inputs, columns, strict=True)
    }


def _strides(feeds: Mapping[str, Array], fed: int, stride: int) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """What is fed run by run, and how many rows that is."""
    if not 0 < stride < fed:
        yield fed, feeds
        return
    for begin in range(0, fed, stride):
        rows = min(stride, fed - begin)
        yield rows, {name: array[begin : begin + rows] for name, array in feeds.items()}


def _said(model: str, error: Exception) -> tuple[Fault, str]:
    text = text_of(error)[:TEXT_CHARS]
    match error:
        case Refused():
            return error.fault, text
        case BadFrame():
            return Fault.INVALID_INPUT, f"the job cannot be read: {text}"
        case MemoryError():
            return Fault.OUT_OF_MEMORY, f"in the worker: {text}"
    # A fault of ours: the job hears of it, the lane goes on.
    log.error("a batch of model %s failed in the worker", model, exc_info=error)
    return Fault.MODEL_FAILED, f"in the worker: {type(error).__name__}: {text}"
