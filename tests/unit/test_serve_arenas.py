"""What the pool lends: to whom, how much, and until when."""

import gc
import itertools
import os
import random

import pytest
from heard import part_of
from simulation.driver import PartToRun

from pool.core.jobs import Part
from pool.serve.arenas import PAGE_BYTES, SMALLEST_BYTES, Arena, Arenas, LentBuffer, Tenancy
from pool.serve.handouts import Buffers, Handouts
from pool.serve.rows import Inputs
from pool.wire.arena import Wish
from pool.wire.codec import BadFrame
from pool.wire.lent import ALIGNED, NO_ROOM, Lent, Room

MIB = 1 << 20
ANN, BEN = b"ann", b"ben"


def lent(arenas: Arenas, client: bytes = ANN, size_bytes: int = 32 * MIB) -> Arena:
    arena = arenas.lend(client, Wish(size_bytes, size_bytes))
    assert arena is not None
    return arena


def test_arenas_are_lent_within_the_bounds() -> None:
    arenas = Arenas(128 * MIB, 64 * MIB)
    assert lent(arenas).size_bytes == 32 * MIB
    second = arenas.lend(ANN, Wish(MIB, 256 * MIB))
    assert second is not None
    assert second.size_bytes == 32 * MIB, "what is left for one client"
    assert arenas.lend(ANN, Wish(1, 1)) is None
    assert lent(arenas, BEN, 64 * MIB).number not in (1, second.number)
    assert arenas.lend(b"carl", Wish(1, MIB)) is None, "no more is left at all"
    assert arenas.lent_bytes == 128 * MIB
    arenas.take_back(ANN)
    assert arenas.lent_bytes == 64 * MIB
    assert list(arenas.closed()) == [1, 2]
    assert list(arenas.closed()) == []
    arenas.close()
    assert arenas.lent_bytes == 0


def test_who_tells_of_the_end_of_arenas_hears_of_each() -> None:
    ended: list[list[int]] = []
    arenas = Arenas(128 * MIB, 128 * MIB, lambda: ended.append(list(arenas.closed())))
    first, second, third = (lent(arenas, client, 1) for client in (ANN, ANN, BEN))
    arenas.revoke(second)
    arenas.take_back(ANN)
    assert ended == [[second.number], [first.number]]
    arenas.close()
    assert ended[2:] == [[third.number]]


@pytest.mark.parametrize(
    "wish", [Wish(2**63, 2**63), Wish(2**64 - 1, 0), Wish(2**64 - 1, 2**64 - 1), Wish(65 * MIB, 65 * MIB)]
)
def test_a_wish_for_too_much_gets_nothing(wish: Wish) -> None:
    arenas = Arenas(128 * MIB, 64 * MIB)
    assert arenas.lend(ANN, wish) is None
    assert arenas.lent_bytes == 0


def test_nothing_is_lent_of_nothing() -> None:
    assert Arenas(0, MIB).lend(ANN, Wish(0, 0)) is None
    assert Arenas(MIB, PAGE_BYTES - 1).lend(ANN, Wish(0, 2**63)) is None


def test_many_small_wishes_are_few_arenas() -> None:
    arenas = Arenas(1 << 30, 256 * MIB)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    granted = [arena for _ in range(1000) if (arena := arenas.lend(ANN, Wish(1, 1)))]
    assert len(granted) == 256 * MIB // SMALLEST_BYTES
    assert len(os.listdir("/proc/self/fd")) == before + 2 * len(granted), "one to hand on, one of the mapping"
    arenas.close()
    granted.clear()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("client", "number", "offset", "size_bytes", "said"),
    [
        (BEN, 1, 0, 1, "arena 1 is not lent to this client"),
        (b"", 1, 0, 1, "arena 1 is not lent to this client"),
        (ANN, 2, 0, 1, "arena 2 is not lent to this client"),
        (ANN, -1, 0, 1, "arena -1 is not lent to this client"),
        (ANN, 1, -64, 64, "64 bytes at -64"),
        (ANN, 1, 0, -1, "-1 bytes at 0"),
        (ANN, 1, 0, 32 * MIB + 1, "bytes at 0 of an arena"),
        (ANN, 1, 32 * MIB, 1, "1 bytes at"),
        (ANN, 1, 2**64 - 64, 64, "64 bytes at"),
        (ANN, 1, 0, 2**64 - 1, "bytes at 0"),
    ],
)
def test_a_buffer_lies_within_an_arena_of_its_client(
    client: bytes, number: int, offset: int, size_bytes: int, said: str
) -> None:
    arenas = Arenas(64 * MIB, 64 * MIB)
    lent(arenas)
    with pytest.raises(BadFrame, match=said):
        arenas.buffer(client, number, offset, size_bytes)
    assert len(arenas.buffer(ANN, 1, 32 * MIB - 64, 64)) == 64
    assert len(arenas.buffer(ANN, 1, 32 * MIB, 0)) == 0
    arenas.close()


def test_an_arena_of_one_who_is_gone_ends_with_the_last_job_in_it() -> None:
    arenas = Arenas(64 * MIB, 64 * MIB)
    arena = lent(arenas)
    over: list[int] = []
    first = arenas.tenancy([arena], None, lambda: over.append(1))
    second = arenas.tenancy([arena], None, lambda: over.append(2))
    first.hold()
    buffer = arenas.buffer(ANN, arena.number, 0, 64)
    buffer.buffer[:5] = b"hello"
    arenas.take_back(ANN)
    with pytest.raises(BadFrame):
        arenas.buffer(ANN, arena.number, 0, 1)
    second.let_go()
    first.let_go()
    assert arenas.lent_bytes == 32 * MIB, "a batch still runs"
    first.let_go()
    assert arenas.lent_bytes == 0
    assert over == [2, 1]
    assert list(arenas.closed()) == [arena.number]
    assert bytes(buffer.buffer[:5]) == b"hello", "who looks at it keeps it: quarantine reads after the death"


# --- tenancies ----------------------------------------------------------------------------------------------------


@pytest.fixture
def arena() -> Arena:
    return lent(Arenas(64 * MIB, 64 * MIB))


def test_a_tenancy_is_over_once(arena: Arena) -> None:
    over: list[Tenancy] = []
    tenancy = Tenancy([arena], None, over.append)
    tenancy.hold()
    tenancy.hold()
    assert not tenancy.is_last
    tenancy.let_go()
    tenancy.let_go()
    assert tenancy.is_last
    assert not over
    tenancy.let_go()
    assert over == [tenancy]
    with pytest.raises(AssertionError):
        tenancy.let_go()
    with pytest.raises(AssertionError):
        tenancy.hold()


def test_the_rooms_of_pieces_lie_apart_and_within(arena: Arena) -> None:
    chosen = random.Random(5)
    for _ in range(300):
        rows, size_bytes = chosen.randint(1, 40), chosen.randint(1, 100_000)
        room = LentBuffer(arena, 4096, size_bytes)
        tenancy = Tenancy([arena], room, lambda _: None)
        cuts = sorted({0, rows, *(chosen.randint(0, rows) for _ in range(4))})
        found = [tenancy.room_for(start, stop, rows) for start, stop in itertools.pairwise(cuts)]
        rooms = [each for each in found if each is not None]
        assert all(each.offset % ALIGNED == 0 for each in rooms)
        assert all(4096 <= each.offset < each.offset + each.size_bytes <= 4096 + size_bytes for each in rooms)
        assert not any(a.overlaps(b) for a in rooms for b in rooms if a is not b)


def test_a_job_that_starts_over_gets_no_room_where_an_old_piece_still_writes(arena: Arena) -> None:
    tenancy = Tenancy([arena], LentBuffer(arena, 0, 6400), lambda _: None)
    first, second = tenancy.room_for(0, 5, 10), tenancy.room_for(5, 10, 10)
    assert first is not None
    assert second is not None
    tenancy.hold()
    tenancy.let_go(first)
    assert tenancy.room_for(0, 10, 10) is None, "the second piece still runs"
    assert tenancy.room_for(3, 7, 10) is None
    again = tenancy.room_for(0, 5, 10)
    assert again is not None
    assert (again.offset, again.size_bytes) == (first.offset, first.size_bytes)


def test_a_job_without_rows_has_its_room_alone(arena: Arena) -> None:
    tenancy = Tenancy([arena], LentBuffer(arena, 128, 1000), lambda _: None)
    room = tenancy.room_for(0, 0, None)
    assert room is not None
    assert (room.offset, room.size_bytes) == (128, 1000)
    assert tenancy.room_for(0, 0, None) is None
    assert Tenancy([arena], None, lambda _: None).room_for(0, 0, None) is None
    assert Tenancy([arena], LentBuffer(arena, 0, 0), lambda _: None).room_for(0, 0, None) is None


# --- handouts -----------------------------------------------------------------------------------------------------


class Hands:
    """The workers' links: what was handed, and whether they take anything."""

    def __init__(self) -> None:
        self.takes = True
        self.handed: list[tuple[int, int, int]] = []
        self.ended: list[tuple[int, int, int]] = []
        self.handouts = Handouts(self._hand, self._end)

    def _hand(self, slot: int, incarnation: int, arena: Arena) -> bool:
        self.handed.append((slot, incarnation, arena.number))
        return self.takes

    def _end(self, slot: int, incarnation: int, arena: int) -> bool:
        if self.takes:
            self.ended.append((slot, incarnation, arena))
        return self.takes


def inputs_in(arena: Arena, over: list[Tenancy], room: bool = True) -> Inputs:
    buffers = [LentBuffer(arena, 0, 640), LentBuffer(arena, 640, 64)]
    tenancy = Tenancy([arena], LentBuffer(arena, 4096, 1000) if room else None, over.append)
    return Inputs(b"table", buffers, None, None, tenancy=tenancy)


def of(inputs: Inputs) -> Part:
    return part_of(PartToRun(inputs, 0, 0))


def test_a_batch_holds_what_it_names_until_it_has_ended(arena: Arena) -> None:
    hands, over = Hands(), list[Tenancy]()
    inputs = inputs_in(arena, over)
    buffers: Buffers = list(inputs.buffers)
    named = hands.handouts.begun((0, 1), 5, [of(inputs)], buffers)
    assert named == (
        (Lent(0, arena.number, 0, 640), Lent(1, arena.number, 640, 64)),
        (Room(arena.number, 4096, 1000),),
    )
    assert buffers == [b"", b""]
    assert hands.handed == [(0, 1, arena.number)], "once"
    assert inputs.tenancy is not None
    inputs.tenancy.let_go()  # its client cancelled it
    assert not over
    hands.handouts.ended((0, 1), 4)
    hands.handouts.ended((1, 1), 5)
    assert not over
    hands.handouts.ended((0, 1), 5)
    assert over
    hands.handouts.ended((0, 1), 5)


def test_a_death_lets_go_of_everything_and_the_next_worker_is_handed_it_again(arena: Arena) -> None:
    hands, over = Hands(), list[Tenancy]()
    inputs = inputs_in(arena, over)
    for batch in (1, 2):
        hands.handouts.begun((0, 1), batch, [of(inputs)], list(inputs.buffers))
    hands.handouts.exited((0, 1))
    assert inputs.tenancy is not None
    assert inputs.tenancy.is_last
    _, rooms = hands.handouts.begun((0, 2), 3, [of(inputs)], list(inputs.buffers))
    assert rooms == (Room(arena.number, 4096, 1000),), "the dead write there no more"
    assert hands.handed == [(0, 1, arena.number), (0, 2, arena.number)]


def test_a_worker_that_takes_no_arena_is_sent_what_lies_there(arena: Arena) -> None:
    hands, over = Hands(), list[Tenancy]()
    hands.takes = False
    arena.memory[:3] = b"abc"
    inputs = inputs_in(arena, over)
    buffers: Buffers = list(inputs.buffers)
    assert hands.handouts.begun((0, 1), 1, [of(inputs)], buffers) == ((), ())
    assert [len(buffer) for buffer in buffers] == [640, 64]
    assert bytes(buffers[0])[:3] == b"abc"  # type: ignore[arg-type]  # a view of it
    assert inputs.tenancy is not None
    assert not inputs.tenancy.is_last, "it is sent from there"


def test_two_at_once_in_one_room(arena: Arena) -> None:
    hands, over = Hands(), list[Tenancy]()
    inputs = inputs_in(arena, over)
    _, first = hands.handouts.begun((0, 1), 1, [of(inputs)], list(inputs.buffers))
    _, second = hands.handouts.begun((1, 1), 1, [of(inputs)], list(inputs.buffers))
    assert first != ()
    assert second == ()
    other = inputs_in(arena, over, room=False)
    mixed = [of(other), of(inputs_in(arena, over))]
    _, rooms = hands.handouts.begun((1, 1), 2, mixed, [])
    assert rooms[0] == NO_ROOM
    assert rooms[1] != NO_ROOM


def test_a_batch_without_arenas_costs_nothing() -> None:
    hands = Hands()
    plain = Inputs(b"table", [], None, None)
    assert hands.handouts.begun((0, 1), 1, [of(plain)], [b"bytes"]) == ((), ())
    hands.handouts.ended((0, 1), 1)
    hands.handouts.closed([1, 2])
    assert not hands.ended


def test_workers_hear_of_arenas_that_have_ended_though_they_are_busy(arena: Arena) -> None:
    hands, over = Hands(), list[Tenancy]()
    for seat in ((0, 1), (1, 1), (2, 1)):
        hands.handouts.begun(seat, 1, [of(inputs_in(arena, over))], [LentBuffer(arena, 0, 64)])
    hands.takes = False
    assert not hands.handouts.is_behind
    hands.handouts.closed([arena.number])
    hands.handouts.closed([])
    hands.handouts.exited((1, 1))
    assert hands.handouts.is_behind, "they are to be told again"
    hands.takes = True
    hands.handouts.closed([])
    assert not hands.handouts.is_behind
    hands.handouts.closed([])
    assert hands.ended == [(0, 1, arena.number), (2, 1, arena.number)]
