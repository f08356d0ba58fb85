"""What the pool lends: to whom, how much, and until when."""

import gc
import itertools
import os
import random
from typing import Any

import pytest

from pool.core.jobs import Part
from pool.serve.handouts import Buffers, Handouts
from pool.serve.rows import Inputs
from pool.serve.shared_memory import PAGE_BYTES, SMALLEST_BYTES, JobRegions, Region, Segment, SharedMemory
from pool.wire.codec import BadFrame
from pool.wire.lent import ALIGNED, NO_SPACE, AnswerSpace, Lent
from pool.wire.segment import MemoryRequest
from simulation.driver import PartToRun
from support.heard import part_of

MIB = 1 << 20
ANN, BEN = b"ann", b"ben"


def lent(shared_memory: SharedMemory, client: bytes = ANN, size_bytes: int = 32 * MIB) -> Segment:
    segment = shared_memory.lend(client, MemoryRequest(size_bytes, size_bytes))
    assert segment is not None
    return segment


def test_segments_are_lent_within_the_bounds() -> None:
    shared_memory = SharedMemory(128 * MIB, 64 * MIB)
    assert lent(shared_memory).size_bytes == 32 * MIB
    second = shared_memory.lend(ANN, MemoryRequest(MIB, 256 * MIB))
    assert second is not None
    assert second.size_bytes == 32 * MIB, "what is left for one client"
    assert shared_memory.lend(ANN, MemoryRequest(1, 1)) is None
    assert lent(shared_memory, BEN, 64 * MIB).number not in (1, second.number)
    assert shared_memory.lend(b"carl", MemoryRequest(1, MIB)) is None, "no more is left at all"
    assert shared_memory.lent_bytes == 128 * MIB
    shared_memory.take_back(ANN)
    assert shared_memory.lent_bytes == 64 * MIB
    assert list(shared_memory.closed()) == [1, 2]
    assert list(shared_memory.closed()) == []
    shared_memory.close()
    assert shared_memory.lent_bytes == 0


def test_who_tells_of_the_end_of_segments_hears_of_each() -> None:
    ended: list[list[int]] = []
    shared_memory = SharedMemory(128 * MIB, 128 * MIB, lambda: ended.append(list(shared_memory.closed())))
    first, second, third = (lent(shared_memory, client, 1) for client in (ANN, ANN, BEN))
    shared_memory.revoke(second)
    shared_memory.take_back(ANN)
    assert ended == [[second.number], [first.number]]
    shared_memory.close()
    assert ended[2:] == [[third.number]]


@pytest.mark.parametrize(
    "asked",
    [
        MemoryRequest(2**63, 2**63),
        MemoryRequest(2**64 - 1, 0),
        MemoryRequest(2**64 - 1, 2**64 - 1),
        MemoryRequest(65 * MIB, 65 * MIB),
    ],
)
def test_a_request_for_too_much_gets_nothing(asked: MemoryRequest) -> None:
    shared_memory = SharedMemory(128 * MIB, 64 * MIB)
    assert shared_memory.lend(ANN, asked) is None
    assert shared_memory.lent_bytes == 0


def test_nothing_is_lent_of_nothing() -> None:
    assert SharedMemory(0, MIB).lend(ANN, MemoryRequest(0, 0)) is None
    assert SharedMemory(MIB, PAGE_BYTES - 1).lend(ANN, MemoryRequest(0, 2**63)) is None


def test_many_small_requests_are_few_segments() -> None:
    shared_memory = SharedMemory(1 << 30, 256 * MIB)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    granted = [segment for _ in range(1000) if (segment := shared_memory.lend(ANN, MemoryRequest(1, 1)))]
    assert len(granted) == 256 * MIB // SMALLEST_BYTES
    assert len(os.listdir("/proc/self/fd")) == before + 2 * len(granted), "one to hand on, one of the mapping"
    shared_memory.close()
    granted.clear()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("client", "number", "offset", "size_bytes", "said"),
    [
        (BEN, 1, 0, 1, "segment 1 is not lent to this client"),
        (b"", 1, 0, 1, "segment 1 is not lent to this client"),
        (ANN, 2, 0, 1, "segment 2 is not lent to this client"),
        (ANN, -1, 0, 1, "segment -1 is not lent to this client"),
        (ANN, 1, -64, 64, "64 bytes at -64"),
        (ANN, 1, 0, -1, "-1 bytes at 0"),
        (ANN, 1, 0, 32 * MIB + 1, "bytes at 0 of a segment"),
        (ANN, 1, 32 * MIB, 1, "1 bytes at"),
        (ANN, 1, 2**64 - 64, 64, "64 bytes at"),
        (ANN, 1, 0, 2**64 - 1, "bytes at 0"),
    ],
)
def test_a_buffer_lies_within_a_segment_of_its_client(
    client: bytes, number: int, offset: int, size_bytes: int, said: str
) -> None:
    shared_memory = SharedMemory(64 * MIB, 64 * MIB)
    lent(shared_memory)
    with pytest.raises(BadFrame, match=said):
        shared_memory.buffer(client, number, offset, size_bytes)
    assert len(shared_memory.buffer(ANN, 1, 32 * MIB - 64, 64)) == 64
    assert len(shared_memory.buffer(ANN, 1, 32 * MIB, 0)) == 0
    shared_memory.close()


def test_a_segment_of_one_who_is_gone_ends_with_the_last_job_in_it() -> None:
    shared_memory = SharedMemory(64 * MIB, 64 * MIB)
    segment = lent(shared_memory)
    over: list[int] = []
    first = shared_memory.regions([segment], None, lambda: over.append(1))
    second = shared_memory.regions([segment], None, lambda: over.append(2))
    first.hold()
    buffer = shared_memory.buffer(ANN, segment.number, 0, 64)
    buffer.buffer[:5] = b"hello"
    shared_memory.take_back(ANN)
    with pytest.raises(BadFrame):
        shared_memory.buffer(ANN, segment.number, 0, 1)
    second.let_go()
    first.let_go()
    assert shared_memory.lent_bytes == 32 * MIB, "a batch still runs"
    first.let_go()
    assert shared_memory.lent_bytes == 0
    assert over == [2, 1]
    assert list(shared_memory.closed()) == [segment.number]
    assert bytes(buffer.buffer[:5]) == b"hello", "who looks at it keeps it: quarantine reads after the death"


# --- tenancies ----------------------------------------------------------------------------------------------------


@pytest.fixture
def segment() -> Segment:
    return lent(SharedMemory(64 * MIB, 64 * MIB))


def test_a_tenancy_is_over_once(segment: Segment) -> None:
    over: list[JobRegions] = []
    regions = JobRegions([segment], None, over.append)
    regions.hold()
    regions.hold()
    assert not regions.is_last
    regions.let_go()
    regions.let_go()
    assert regions.is_last
    assert not over
    regions.let_go()
    assert over == [regions]
    with pytest.raises(AssertionError):
        regions.let_go()
    with pytest.raises(AssertionError):
        regions.hold()


def test_the_answer_spaces_of_pieces_lie_apart_and_within(segment: Segment) -> None:
    chosen = random.Random(5)
    for _ in range(300):
        rows, size_bytes = chosen.randint(1, 40), chosen.randint(1, 100_000)
        space = Region(segment, 4096, size_bytes)
        regions = JobRegions([segment], space, lambda _: None)
        cuts = sorted({0, rows, *(chosen.randint(0, rows) for _ in range(4))})
        found = [regions.space_for(start, stop, rows) for start, stop in itertools.pairwise(cuts)]
        spaces = [each for each in found if each is not None]
        assert all(each.offset % ALIGNED == 0 for each in spaces)
        assert all(4096 <= each.offset < each.offset + each.size_bytes <= 4096 + size_bytes for each in spaces)
        assert not any(a.overlaps(b) for a in spaces for b in spaces if a is not b)


def test_a_job_that_starts_over_gets_no_answer_space_where_an_old_piece_still_writes(segment: Segment) -> None:
    regions = JobRegions([segment], Region(segment, 0, 6400), lambda _: None)
    first, second = regions.space_for(0, 5, 10), regions.space_for(5, 10, 10)
    assert first is not None
    assert second is not None
    regions.hold()
    regions.let_go(first)
    assert regions.space_for(0, 10, 10) is None, "the second piece still runs"
    assert regions.space_for(3, 7, 10) is None
    again = regions.space_for(0, 5, 10)
    assert again is not None
    assert (again.offset, again.size_bytes) == (first.offset, first.size_bytes)


def test_a_job_without_rows_has_its_answer_space_alone(segment: Segment) -> None:
    regions = JobRegions([segment], Region(segment, 128, 1000), lambda _: None)
    space = regions.space_for(0, 0, None)
    assert space is not None
    assert (space.offset, space.size_bytes) == (128, 1000)
    assert regions.space_for(0, 0, None) is None
    assert JobRegions([segment], None, lambda _: None).space_for(0, 0, None) is None
    assert JobRegions([segment], Region(segment, 0, 0), lambda _: None).space_for(0, 0, None) is None


# --- handouts -----------------------------------------------------------------------------------------------------


class Hands:
    """The workers' links: what was handed, and whether they take anything."""

    def __init__(self) -> None:
        self.takes = True
        self.handed: list[tuple[int, int, int]] = []
        self.ended: list[tuple[int, int, int]] = []
        self.handouts = Handouts(self._hand, self._end)

    def _hand(self, slot: int, incarnation: int, segment: Segment) -> bool:
        self.handed.append((slot, incarnation, segment.number))
        return self.takes

    def _end(self, slot: int, incarnation: int, segment: int) -> bool:
        if self.takes:
            self.ended.append((slot, incarnation, segment))
        return self.takes


def inputs_in(segment: Segment, over: list[JobRegions], space: bool = True) -> Inputs:
    buffers = [Region(segment, 0, 640), Region(segment, 640, 64)]
    regions = JobRegions([segment], Region(segment, 4096, 1000) if space else None, over.append)
    return Inputs(b"table", buffers, None, None, regions=regions)


def of(inputs: Inputs) -> Part:
    return part_of(PartToRun(inputs, 0, 0))


def test_a_batch_holds_what_it_names_until_it_has_ended(segment: Segment) -> None:
    hands, over = Hands(), list[JobRegions]()
    inputs = inputs_in(segment, over)
    buffers: Buffers = list(inputs.buffers)
    named = hands.handouts.begun((0, 1), 5, [of(inputs)], buffers)
    assert named == (
        (Lent(0, segment.number, 0, 640), Lent(1, segment.number, 640, 64)),
        (AnswerSpace(segment.number, 4096, 1000),),
    )
    assert buffers == [b"", b""]
    assert hands.handed == [(0, 1, segment.number)], "once"
    assert inputs.regions is not None
    inputs.regions.let_go()  # its client cancelled it
    assert not over
    hands.handouts.ended((0, 1), 4)
    hands.handouts.ended((1, 1), 5)
    assert not over
    hands.handouts.ended((0, 1), 5)
    assert over
    hands.handouts.ended((0, 1), 5)


def test_a_death_lets_go_of_everything_and_the_next_worker_is_handed_it_again(segment: Segment) -> None:
    hands, over = Hands(), list[JobRegions]()
    inputs = inputs_in(segment, over)
    for batch in (1, 2):
        hands.handouts.begun((0, 1), batch, [of(inputs)], list(inputs.buffers))
    hands.handouts.exited((0, 1))
    assert inputs.regions is not None
    assert inputs.regions.is_last
    _, spaces = hands.handouts.begun((0, 2), 3, [of(inputs)], list(inputs.buffers))
    assert spaces == (AnswerSpace(segment.number, 4096, 1000),), "the dead write there no more"
    assert hands.handed == [(0, 1, segment.number), (0, 2, segment.number)]


def test_a_worker_that_takes_no_segment_is_sent_what_lies_there(segment: Segment) -> None:
    hands, over = Hands(), list[JobRegions]()
    hands.takes = False
    segment.memory[:3] = b"abc"
    inputs = inputs_in(segment, over)
    buffers: Buffers = list(inputs.buffers)
    assert hands.handouts.begun((0, 1), 1, [of(inputs)], buffers) == ((), ())
    sized: list[Any] = list(buffers)
    assert [len(buffer) for buffer in sized] == [640, 64]
    assert bytes(buffers[0])[:3] == b"abc"  # type: ignore[arg-type]  # a view of it
    assert inputs.regions is not None
    assert not inputs.regions.is_last, "it is sent from there"


def test_two_at_once_in_one_answer_space(segment: Segment) -> None:
    hands, over = Hands(), list[JobRegions]()
    inputs = inputs_in(segment, over)
    _, first = hands.handouts.begun((0, 1), 1, [of(inputs)], list(inputs.buffers))
    _, second = hands.handouts.begun((1, 1), 1, [of(inputs)], list(inputs.buffers))
    assert first != ()
    assert second == ()
    other = inputs_in(segment, over, space=False)
    mixed = [of(other), of(inputs_in(segment, over))]
    _, spaces = hands.handouts.begun((1, 1), 2, mixed, [])
    assert spaces[0] == NO_SPACE
    assert spaces[1] != NO_SPACE


def test_a_batch_without_segments_costs_nothing() -> None:
    hands = Hands()
    plain = Inputs(b"table", [], None, None)
    assert hands.handouts.begun((0, 1), 1, [of(plain)], [b"bytes"]) == ((), ())
    hands.handouts.ended((0, 1), 1)
    hands.handouts.closed([1, 2])
    assert not hands.ended


def test_workers_hear_of_segments_that_have_ended_though_they_are_busy(segment: Segment) -> None:
    hands, over = Hands(), list[JobRegions]()
    for worker in ((0, 1), (1, 1), (2, 1)):
        hands.handouts.begun(worker, 1, [of(inputs_in(segment, over))], [Region(segment, 0, 64)])
    hands.takes = False
    assert not hands.handouts.is_behind
    hands.handouts.closed([segment.number])
    hands.handouts.closed([])
    hands.handouts.exited((1, 1))
    assert hands.handouts.is_behind, "they are to be told again"
    hands.takes = True
    hands.handouts.closed([])
    assert not hands.handouts.is_behind
    hands.handouts.closed([])
    assert hands.ended == [(0, 1, segment.number), (2, 1, segment.number)]
