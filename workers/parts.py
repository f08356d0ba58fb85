"""The parts of a batch, read input by input: what all of them give to one is checked in a single comparison.

    frames of a RUN ─► a call a number of rows ─► what lies in shared memory ─► a column an input

A part that cannot be read fails alone, with the first thing that is amiss; all that it gives is left out. What the
others have side by side in shared memory is one piece of their column.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pool.wire.codec import BadFrame
from pool.wire.faults import Fault
from pool.wire.lent import ALIGNED
from pool.wire.outcomes import Failed, Failure, Spoiled
from pool.wire.tensors import Array
from pool.wire.worker_messages import Run
from workers.batch import join, whole
from workers.calls import Call, Calls
from workers.independence import Sampler
from workers.inputs import Buffer, Piece
from workers.memory import BatchMemory
from workers.raised import fault_of
from workers.shared_memory import SharedMemory

__all__ = ["Parts", "joined_halves", "read_parts"]


_WHOLE, _UNCOUNTED = (None,), (0,)  # the rows of a lone part that has none


@dataclass(slots=True)
class Parts:
    """Those that could be read; all ask for the same, but for the number of their rows.

    `rows` of each, 0 where its shapes are whole; `total`: of all of them; `fed`: with what is padded. `columns`: what
    the parts give to each input, in the order of the call's inputs. `shared`, by name: those of them that lie in shared
    memory, what adjoins there as one piece, and whether it may be fed from there if it is but one.
    """

    call: Call
    positions: Sequence[int]
    rows: Sequence[int]
    total: int
    fed: int
    columns: Sequence[Sequence[Piece]]
    shared: Mapping[str, tuple[Sequence[Piece], bool]]

    def feeds(self, by_rows: bool, memory: BatchMemory) -> dict[str, Array]:
        """What is fed to a run of all of them."""
        feeds = {}
        for each, column in zip(self.call.inputs, self.columns, strict=True):
            pieces, adopted = self.shared.get(each.name, (column, True)) if self.shared else (column, True)
            if by_rows:
                row_shape = each.header.shape[1:]
                feeds[each.name] = join(pieces, each.dtype, self.total, self.fed, row_shape, memory, adopted)
            else:
                (only,) = pieces
                feeds[each.name] = whole(only if adopted else memory.copied(only), each.dtype, each.header.shape)
        return feeds

    def part(self, number: int, by_rows: bool) -> dict[str, Array]:
        """What one of them gives, by the names of the inputs."""
        feeds = {}
        for each, column in zip(self.call.inputs, self.columns, strict=True):
            shape = (self.rows[number], *each.header.shape[1:]) if by_rows else each.header.shape
            feeds[each.name] = whole(column[number], each.dtype, shape)
        return feeds


def read_parts(
    run: Run,
    frames: Sequence[Buffer],
    models: Mapping[str, Calls],
    shared_memory: SharedMemory,
    memory: BatchMemory,
    sampler: Sampler | None,
    failures: dict[int, Failure],
) -> Parts | None:
    """The parts that can be run; why the others cannot is written among the failures, by position."""
    rows = run.rows or _WHOLE
    number = len(rows)
    buffers = frames[1:] if not run.halves else joined_halves(frames[1:], run.halves)
    each, left = divmod(len(buffers), number)
    if left:  # whose frames are amiss cannot be told, so they must come one by one
        text = f"the batch cannot be read: {len(buffers)} buffers for {number} parts"
        failures.update(dict.fromkeys(range(number), Spoiled(Fault.INVALID_INPUT, text)))
        return None
    table = bytes(frames[0])
    calls: dict[int | None, Call] = {}
    call = None
    for count in set(rows):
        try:
            call = calls[count] = models[run.model].call(table, count, run.signature, run.outputs, sampler)
        except Exception as error:
            _fail(run, [position for position, other in enumerate(rows) if other == count], error, failures)
    if call is None:
        return None
    if each != len(call.inputs):
        _fail(run, range(number), BadFrame(f"{each} buffers for {len(call.inputs)} tensors"), failures)
        return None
    if run.lent:
        buffers = _found(run, call, buffers, shared_memory, memory, failures)
    alike = len(calls) == 1
    columns: list[Sequence[Piece]] = []
    for index, given in enumerate(call.inputs):
        column = buffers[index::each]
        if alike:
            plain = [given.plain_bytes] * number
        else:
            plain = [calls[count].inputs[index].plain_bytes if count in calls else -1 for count in rows]
        if list(map(len, column)) != plain:
            columns.append(_one_by_one(run, [calls.get(count) for count in rows], index, column, failures))
        else:
            columns.append(column)
    positions: Sequence[int] = range(number)
    counts: Sequence[int] = run.rows or _UNCOUNTED
    if failures:
        positions = [position for position in positions if position not in failures]
        counts = [counts[position] for position in positions]
        columns = [[column[position] for position in positions] for column in columns]
        if not positions:
            return None
    total = sum(counts)
    shared = _side_by_side(run, call, positions, columns, shared_memory) if run.lent else {}
    return Parts(call, positions, counts, total, run.pad_to if run.pad_to > total else total, columns, shared)


def _found(
    run: Run,
    call: Call,
    buffers: Sequence[Buffer],
    shared_memory: SharedMemory,
    memory: BatchMemory,
    failures: dict[int, Failure],
) -> list[Buffer]:
    """The buffers, those that lie in a segment found there.

    They are copied before anything looks at their values, for its client can write there: to read them, to cast them,
    and for Python around the graph. Numbers that go to the graph alone are copied when they are joined, if at all.
    """
    found = list(buffers)
    for place in run.lent:
        if not 0 <= place.index < len(found):
            continue  # it is no part's
        position, index = divmod(place.index, len(call.inputs))
        if position in failures:
            continue
        try:
            segment = shared_memory.memory(place.segment, place.offset, place.size_bytes)
            looked_at = call.handled is not None or call.inputs[index].plain_bytes < 0
            found[place.index] = memory.copied(segment) if looked_at else segment
        except Exception as error:
            _fail(run, [position], error, failures)
    return found


def _side_by_side(
    run: Run, call: Call, positions: Sequence[int], columns: Sequence[Sequence[Piece]], shared_memory: SharedMemory
) -> dict[str, tuple[Sequence[Piece], bool]]:
    """As `Parts.shared`, of what was not copied yet. No byte of a piece is another's than these parts'.

    One piece may be fed to a model that bears change, from where TensorFlow takes it as it is: it would make a copy in
    memory that was never touched, where the lane has some that was.
    """
    shared: dict[str, tuple[Sequence[Piece], bool]] = {}
    places = {place.index: place for place in run.lent}
    for index, each in enumerate(call.inputs):
        if call.handled is not None or each.plain_bytes < 0:
            continue
        pieces: list[Piece] = []
        segment, begin, end = -1, 0, 0  # of the last piece, if it lies in one
        for position, piece in zip(positions, columns[index], strict=True):
            place = places.get(position * len(call.inputs) + index)
            if place is None:
                segment = -1
                pieces.append(piece)
            elif (place.segment, place.offset) == (segment, end):
                end += place.size_bytes
                pieces[-1] = shared_memory.memory(segment, begin, end - begin)
            else:
                segment, begin, end = place.segment, place.offset, place.offset + place.size_bytes
                pieces.append(piece)
        shared[each.name] = pieces, segment < 0 or (call.adopts[index] and begin % ALIGNED == 0)
    return shared


def _one_by_one(
    run: Run, calls: Sequence[Call | None], index: int, column: Sequence[Buffer], failures: dict[int, Failure]
) -> list[Piece]:
    """What each part gives to an input; anything for one that fails."""
    pieces: list[Piece] = []
    for position, (call, buffer) in enumerate(zip(calls, column, strict=True)):
        piece: Piece = b""
        if call is not None and position not in failures:
            try:
                piece = call.inputs[index].read(buffer)
            except Exception as error:
                _fail(run, [position], error, failures)
        pieces.append(piece)
    return pieces


def _fail(run: Run, positions: Iterable[int], error: Exception, failures: dict[int, Failure]) -> None:
    """Each by its own fault."""
    failures.update(dict.fromkeys(positions, Failed(*fault_of(run.model, error))))


def joined_halves(frames: Sequence[Buffer], halves: Sequence[int]) -> Sequence[Buffer]:
    """The buffers; those that came in two frames are joined. What is missing is seen by their number."""
    buffers: list[Buffer] = []
    rest, joined = iter(frames), frozenset(halves)
    for frame in rest:
        halved = len(buffers) in joined
        buffers.append(b"".join((frame, next(rest, b""))) if halved else frame)
    return buffers
