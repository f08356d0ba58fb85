"""A client's lent memory: no two users at once, all of it used again, and arrays that hold what they look at."""

import contextlib
import gc
import mmap
import os
import select
import threading
from bisect import insort
from collections import Counter, deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.client import shared_memory as client_memory
from pool.client.answer_sizes import FADES, AnswerSizes
from pool.client.bulk.gathering import Gathering
from pool.client.loan import USUAL_BYTES
from pool.client.payload import decode_answer, empty, encode_call, to_inputs
from pool.client.request import Request
from pool.client.shared_memory import TRIM_S, Piece, Region, Segment, SharedMemory
from pool.client.space import FEW_JOBS, JOBS_AHEAD, JOINED_BYTES, MOST_AHEAD, Space
from pool.client.spans import array_over, piece_of
from pool.serve.memory_listener import MemoryListener
from pool.serve.shared_memory import Segment as LentSegment
from pool.serve.shared_memory import SharedMemory as Lent
from pool.wire.codec import BadFrame
from pool.wire.lent import LENT_BYTES, MOST_LENT
from pool.wire.packing import AnswerMemory, pack_answer
from pool.wire.segment import MemoryRequest, attach, create
from support.processes import eventually

PAGE = mmap.PAGESIZE
MIB = 1 << 20
LARGE = 4 * LENT_BYTES


class Counted(Lent):
    """It counts what it is asked for."""

    requests = 0

    def lend(self, client: bytes, request: MemoryRequest) -> LentSegment | None:
        self.requests += 1
        return super().lend(client, request)


class Pool:
    """The pool's side of the loan, in a thread; one client, or several with a ticket each."""

    def __init__(self, path: Path, most_bytes: int = 1 << 30) -> None:
        self.path = path
        self.lent = Counted(most_bytes, most_bytes)
        self.gone: list[bytes] = []
        self.refused: Counter[str] = Counter()
        self._memory_listener = MemoryListener(path, self.lent, self.refused)
        self._turns = threading.Lock()
        self._ends = False
        self._opened: list[SharedMemory] = []
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def client(self, name: bytes = b"ann") -> SharedMemory:
        shared_memory = SharedMemory()
        shared_memory.open(self.path, self._memory_listener.ticket(name))
        self._opened.append(shared_memory)
        return shared_memory

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        with self._turns:
            yield

    def requests(self) -> int:
        """How often it has been asked by now."""
        eventually(lambda: not select.select([self._memory_listener.fd], [], [], 0)[0])
        with self._turns:
            return self.lent.requests

    def close(self) -> None:
        for shared_memory in self._opened:
            shared_memory.lose_pool()
        self._ends = True
        self._thread.join()
        self._memory_listener.close()
        self.lent.close()

    def _main(self) -> None:
        poll = select.poll()
        poll.register(self._memory_listener.fd, select.POLLIN)
        while not self._ends:
            if poll.poll(20):
                with self._turns:
                    for client in self._memory_listener.turn():
                        self.gone.append(client)
                        self._memory_listener.forget(client)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool's thread that is held up lends all the same."""
    monkeypatch.setattr(client_memory, "GRANT_S", 20.0)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(tmp_path / "segments")
    yield pool
    pool.close()


@pytest.fixture
def shared_memory(pool: Pool) -> SharedMemory:
    return pool.client()


def lone_segment(size_bytes: int = 64 * PAGE) -> tuple[Segment, int]:
    fd = create(size_bytes)
    return Segment(1, attach(fd, size_bytes)), fd


def address(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> int:
    return int(array.__array_interface__["data"][0])


# --- the allocator ------------------------------------------------------------------------------------------------


def overlap(one: Region, other: Region) -> bool:
    return one.offset < other.offset + other.size_bytes and other.offset < one.offset + one.size_bytes


CALLS = (None, "a", "b", "c")  # None: a space, or an array of the caller's
STEPS = st.tuples(
    st.sampled_from(["take", "take", "keep", "drop", "trim"]), st.integers(1, 20 * PAGE), st.sampled_from(CALLS)
)


@given(st.lists(STEPS, max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_two_regions_overlap_and_everything_comes_back(steps: list[tuple[str, int, str | None]]) -> None:
    """Each is full of a byte of its own, which is there until it is dropped, whatever is trimmed."""
    segment, fd = lone_segment()
    held: list[Region] = []
    for count, (step, number, call) in enumerate(steps):
        if step == "take":
            region = segment.take(number, call)
            if region is None:
                continue
            assert region.size_bytes == number
            assert call is not None or region.offset % 64 == 0
            assert 0 <= region.offset <= region.offset + number <= 64 * PAGE
            region.memory[:] = bytes([count % 255 + 1]) * number
            held.append(region)
        elif step == "trim":
            segment.trim()
        elif held and step == "keep":
            kept = held[number % len(held)]
            before = kept.size_bytes
            kept.keep(number)
            assert kept.size_bytes == min(before, number)
            del kept
        elif held:
            dropped = held.pop(number % len(held))
            assert len(set(bytes(dropped.memory))) == 1, "it was written by another"
            del dropped
        region = None
        places = sorted((each.offset, each.offset + each.size_bytes) for each in held)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(places))
    assert all(len(set(bytes(region.memory))) == 1 for region in held)
    held.clear()
    whole = segment.take(64 * PAGE)
    assert whole is not None, "all of it is free again, in one piece"
    os.close(fd)


@given(st.integers(256, 3 * PAGE), st.integers(256, 3 * PAGE), st.lists(st.integers(1, PAGE), max_size=8))
@settings(deadline=None)
def test_jobs_of_one_call_adjoin_to_the_byte_whatever_comes_between(size: int, other: int, spaces: list[int]) -> None:
    segment, fd = lone_segment(1024 * PAGE)
    jobs: dict[str, list[Region]] = {"a": [], "b": []}
    held = []
    for number in range(JOBS_AHEAD - 1):  # gaps before the first few take less than one job's place
        for call, size_bytes in (("a", size), ("b", other)):
            region = segment.take(size_bytes, call)
            assert region is not None
            jobs[call].append(region)
        held += [segment.take(space) for space in spaces[number : number + 1]]
    assert None not in held
    for regions in jobs.values():
        assert regions[0].offset % 64 == 0
        for number, (before, behind) in enumerate(pairwise(regions), 1):
            gap_bytes = behind.offset - before.offset - before.size_bytes
            assert gap_bytes == 0 or (number < FEW_JOBS and gap_bytes < 64 and behind.offset % 64 == 0)
    os.close(fd)


def test_the_lowest_is_used_again_first() -> None:
    segment, fd = lone_segment()
    first, second = segment.take(PAGE), segment.take(PAGE)
    assert first is not None
    assert second is not None
    assert (first.offset, second.offset) == (0, PAGE)
    del first
    again = segment.take(10)
    assert again is not None
    assert again.offset == 0
    assert segment.take(63 * PAGE) is None
    os.close(fd)


def test_a_call_whose_last_job_has_ended_begins_anew_where_tensorflow_takes_it() -> None:
    segment, fd = lone_segment()
    first = segment.take(4 * 299 * 3, "a")
    for call in ("a", "b", "a", "c", "a"):
        assert first is not None
        assert first.offset == 0
        del first
        first = segment.take(4 * 299 * 3, call)
    behind, aside = segment.take(4, "a"), segment.take(4, "b")
    assert first is not None
    assert behind is not None
    assert aside is not None
    assert behind.offset == 4 * 299 * 3
    assert aside.offset % 64 == 0
    os.close(fd)


def test_jobs_in_flight_come_round_in_memory_that_was_used_before() -> None:
    """As a pipeline has them: 24 out, answered in batches of 8, in order. Hardly a batch is torn."""
    segment, fd = lone_segment(1024 * PAGE)
    size = 2 * PAGE + 12
    out = deque(segment.take(size, "a") for _ in range(24))
    torn = highest = 0
    for _ in range(200):
        batch = [out.popleft() for _ in range(8)]
        assert None not in batch
        torn += any(one.offset + size != other.offset for one, other in pairwise(batch))  # type: ignore[union-attr]
        highest = max(highest, *[region.offset + size for region in batch])  # type: ignore[union-attr]
        for _ in range(8):
            batch.pop(0)
            out.append(segment.take(size, "a"))
    assert torn <= 200 // 4
    assert highest <= 3 * 24 * size
    os.close(fd)


def test_while_few_are_in_flight_each_begins_where_tensorflow_takes_it_and_not_a_byte_is_lost() -> None:
    segment, fd = lone_segment()
    out = deque([segment.take(1001, "a")])
    for _ in range(100):
        out.append(segment.take(1001, "a"))
        assert all(region is not None and region.offset % 64 == 0 for region in out)
        if len(out) == FEW_JOBS:
            out.popleft()
    out.clear()
    assert segment.take(64 * PAGE) is not None
    os.close(fd)


@pytest.mark.parametrize("learned", [1, 3, 8])
def test_there_is_space_for_an_answer_of_other_rows_and_what_lies_between_its_outputs(learned: int) -> None:
    sizes, request = AnswerSizes(), Request("m")
    sizes.learn(request, learned, {name: np.zeros((learned, 25001), np.float32) for name in "ab"})
    for rows in range(1, 257):
        needed = 2 * -(-rows * 25001 * 4 // 64) * 64
        assert needed <= sizes.expected_bytes(request, rows) < 1.01 * needed + PAGE


def test_what_a_caller_keeps_is_no_job_in_flight() -> None:
    """Answers and arrays that are kept neither make lone jobs adjoin nor let them walk through the segment."""
    segment, fd = lone_segment(1024 * PAGE)
    kept = [segment.take(100 * PAGE) for _ in range(3)]
    assert None not in kept
    highest = 0
    out: deque[Region | None] = deque()
    for _ in range(300):
        out.append(segment.take(1001, "a"))
        region = out[-1]
        assert region is not None
        assert region.offset % 64 == 0
        highest = max(highest, region.offset + 1001)
        if len(out) == 2:
            out.popleft()
    assert highest <= 300 * PAGE + 4 * JOBS_AHEAD * 1001
    os.close(fd)


def test_an_interrupt_between_two_lines_gives_no_byte_twice() -> None:
    space, interrupted = Space(64 * PAGE), 0

    def interrupt(free: list[tuple[int, int]], part: tuple[int, int]) -> None:
        nonlocal interrupted
        insort(free, part)
        interrupted += 1
        raise KeyboardInterrupt

    held = [(space.take(1001, "a"), 1001)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pool.client.space.insort", interrupt)
        with pytest.raises(KeyboardInterrupt):
            space.take(1001, "a")
    assert interrupted == 1
    held.append((space.take(5, "a"), 5))
    taken = sorted([*[(begin, begin + size) for begin, size in held if begin is not None], *space.free()])
    assert len(taken) > len(held) == 2
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken)), "a byte is in use and free"


def test_what_hardly_runs_together_begins_where_tensorflow_takes_it() -> None:
    segment, fd = lone_segment(32 * JOINED_BYTES)
    for size, adjoin in ((JOINED_BYTES - 60, True), (JOINED_BYTES + 4, False)):
        before = [segment.take(size, size) for _ in range(FEW_JOBS)]
        assert None not in before
        one, other = segment.take(size, size), segment.take(size, size)
        assert one is not None
        assert other is not None
        assert (one.offset + size == other.offset) == adjoin
        assert (other.offset % 64 == 0) != adjoin
        del before, one, other
    os.close(fd)


def test_place_is_kept_for_so_many_calls_at_most() -> None:
    segment, fd = lone_segment(4096 * PAGE)
    held = [segment.take(PAGE, call) for call in range(3 * MOST_AHEAD)]
    assert None not in held
    lowest = segment.take(PAGE)
    assert lowest is not None
    assert lowest.offset == PAGE, "behind the job of the first, whose place is kept no more"
    os.close(fd)


def test_what_is_kept_for_a_call_is_given_to_another_before_none_is() -> None:
    segment, fd = lone_segment()
    job = segment.take(PAGE, "a")
    whole = segment.take(63 * PAGE)
    assert whole is not None
    assert job is not None
    assert segment.take(PAGE, "a") is None
    del whole
    held = [segment.take(PAGE, call) for call in range(63)]
    assert None not in held
    os.close(fd)


def test_a_page_with_a_byte_in_use_is_nobodys_to_give_back() -> None:
    segment, fd = lone_segment()
    regions = [segment.take(PAGE + 100, "a") for _ in range(5)]
    for region in regions:
        assert region is not None
        region.memory[:] = b"x" * len(region.memory)
    del region
    regions[1] = regions[3] = None
    segment.trim()
    segment.trim()
    assert resident(fd) == 6 * PAGE, "each lies over a page's end, so no page of the two was theirs alone"
    assert all(bytes(region.memory) == b"x" * (PAGE + 100) for region in regions if region is not None)
    regions[2] = None
    segment.trim()
    segment.trim()
    assert resident(fd) == 4 * PAGE
    assert all(bytes(region.memory) == b"x" * (PAGE + 100) for region in regions if region is not None)
    os.close(fd)


def resident(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_pages_that_nothing_uses_go_back_to_the_machine() -> None:
    segment, fd = lone_segment()
    low, middle, high = segment.take(8 * PAGE), segment.take(8 * PAGE), segment.take(8 * PAGE)
    for region in (low, middle, high):
        assert region is not None
        region.memory[:] = b"x" * len(region.memory)
    assert resident(fd) == 24 * PAGE
    del low, high, region
    segment.trim()
    assert resident(fd) == 24 * PAGE, "they were used since the last time"
    segment.trim()
    assert resident(fd) == 8 * PAGE
    assert middle is not None
    assert bytes(middle.memory) == b"x" * 8 * PAGE
    assert segment.is_touched
    del middle
    segment.trim()
    segment.trim()
    assert resident(fd) == 0
    assert not segment.is_touched
    os.close(fd)


def test_what_is_used_again_and_again_stays_warm_and_the_rest_does_not() -> None:
    segment, fd = lone_segment()
    large = segment.take(40 * PAGE)
    assert large is not None
    large.memory[:] = bytes(40 * PAGE)
    del large
    for _ in range(3):
        small = segment.take(4 * PAGE)
        del small
        segment.trim()
    assert resident(fd) == 4 * PAGE
    os.close(fd)


# --- arrays -------------------------------------------------------------------------------------------------------


def test_an_array_and_its_views_hold_their_region() -> None:
    segment, fd = lone_segment()
    region = segment.take(2 * PAGE)
    assert region is not None
    array = array_over(region, region.offset, 2 * PAGE)
    del region
    array[:] = 5
    views = [array[10:20].reshape(2, 5), memoryview(array.data), np.asarray(array[5:])]
    del array
    while views:
        gc.collect()
        assert segment.take(64 * PAGE) is None
        views.pop()
    assert segment.take(64 * PAGE) is not None
    os.close(fd)


def test_where_an_array_lies_is_found_by_its_address() -> None:
    segment, fd = lone_segment()
    region = segment.take(4 * PAGE)
    assert region is not None
    array = array_over(region, region.offset + 128, 1024).view(np.float32).reshape(4, 8, 8)
    for view, offset in ((array, 128), (array[1:], 128 + 256), (array[2], 128 + 512), (array.reshape(-1)[1:], 132)):
        piece = piece_of(view)
        assert piece is not None
        assert (piece.offset, len(piece)) == (offset, view.nbytes)
        assert bytes(piece.memory) == view.tobytes()
    for other in (array.T, array[:, 1:], array[::-1], array.copy(), array.astype(np.int32)):
        assert piece_of(other) is None
    assert piece_of(np.frombuffer(array.data, np.float32)) is None, "an answer that was decoded"
    segment.is_current = False
    assert piece_of(array) is None
    os.close(fd)


# --- with a pool --------------------------------------------------------------------------------------------------


def test_large_inputs_are_placed_and_small_ones_sent(shared_memory: SharedMemory) -> None:
    large, small = np.arange(LARGE // 4, dtype=np.float32), np.arange(3.0)
    rows, payload = encode_call("m", {"large": large, "small": small}, shared_memory)
    assert rows is None
    assert isinstance(payload[2], bytes)
    piece = payload[1]
    assert not isinstance(piece, bytes)
    assert bytes(piece.memory) == large.tobytes()
    large[:] = 0
    assert piece.memory[4:8] == np.float32(1).tobytes(), "a copy"


def test_what_is_submitted_adjoins_by_model_input_and_kind(shared_memory: SharedMemory) -> None:
    kinds = {
        ("m", "x"): np.ones((1, LARGE + 1), np.float32),
        ("n", "x"): np.ones((1, LARGE + 1), np.float32),
        ("m", "y"): np.ones((1, LARGE + 1), np.float32),
        ("m", "z"): np.ones((1, LARGE + 1), np.uint8),
    }
    placed: dict[tuple[str, str], list[Piece]] = {kind: [] for kind in kinds}
    for _ in range(5):
        for (model, name), array in kinds.items():
            (_, (_, piece)) = encode_call(model, {name: array}, shared_memory)
            assert not isinstance(piece, bytes)
            placed[model, name].append(piece)
    for pieces in placed.values():
        assert pieces[0].offset % 64 == 0
        assert all(one.offset + len(one) == other.offset for one, other in pairwise(pieces[1:]))


@pytest.mark.parametrize(("most_rows", "adjoin"), [(1, True), (2, False)])
def test_one_job_lies_beside_the_last_and_a_chunk_of_several_where_it_is_adopted(
    shared_memory: SharedMemory, most_rows: int, adjoin: bool
) -> None:
    given = to_inputs("m", np.arange(LENT_BYTES // 4 + 1, dtype=np.float32).reshape(1, -1))
    pieces = []
    for _ in range(FEW_JOBS + 4):
        gathering = Gathering(given, most_rows, shared_memory)
        for _ in range(most_rows - 1):
            gathering.add(given)
        _, (_, piece) = encode_call("m", gathering.inputs(), shared_memory)
        assert not isinstance(piece, bytes)
        assert bytes(piece.memory) == given.tensors[""][0].tobytes() * most_rows
        pieces.append(piece)
    assert [one.offset + len(one) == other.offset for one, other in pairwise(pieces)][FEW_JOBS:] == [adjoin] * 3
    assert all(piece.offset % 64 == 0 for piece in pieces) != adjoin


def test_no_more_tensors_are_placed_than_a_header_can_name(shared_memory: SharedMemory) -> None:
    array = np.zeros(LENT_BYTES, np.uint8)
    _, payload = encode_call("m", {f"{number}": array for number in range(MOST_LENT + 3)}, shared_memory)
    assert [isinstance(buffer, bytes) for buffer in payload[1:]] == [False] * MOST_LENT + [True] * 3


@pytest.mark.parametrize(
    "given",
    [
        np.arange(LARGE, dtype=">i4"),
        np.arange(LARGE, dtype=np.int16)[::-3],
        np.arange(LARGE, dtype=np.float32).reshape(2, -1).T,
        np.array([b"x" * (LARGE // 2), b"", b"y\0" * LARGE], object),
    ],
)
def test_any_layout_is_placed_as_it_would_be_sent(
    shared_memory: SharedMemory, given: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]"
) -> None:
    (_, placed), (_, sent) = encode_call("m", given, shared_memory), encode_call("m", given)
    assert placed[0] == sent[0]
    assert not isinstance(placed[1], bytes)
    assert bytes(placed[1].memory) == sent[1]


def test_an_empty_array_is_submitted_without_a_copy_and_an_answer_with_one(shared_memory: SharedMemory) -> None:
    array = empty((LARGE // 4, 2), "float32", shared_memory)
    (_, (_, piece)) = encode_call("m", array, shared_memory)
    assert not isinstance(piece, bytes)
    array[0] = 7, 8
    assert piece.memory[:8] == np.float32([7, 8]).tobytes()  # type: ignore[arg-type]  # a list will do
    space = shared_memory.place(LARGE)
    assert space is not None
    frames = pack_answer({"y": array.ravel()[: LARGE // 4]}, AnswerMemory(space.memory, space.offset))
    answer = decode_answer([1], [frames[0]], space)["y"]
    assert np.shares_memory(answer, array_over(space, space.offset, space.size_bytes))
    (_, (_, piece)) = encode_call("m", answer, shared_memory)
    answer[:] = 0
    assert not isinstance(piece, bytes)
    assert piece.memory[:8] == np.float32([7, 8]).tobytes(), "its owner knows nothing of segments and may change it"  # type: ignore[arg-type]


def test_an_answer_lies_within_what_was_reserved(shared_memory: SharedMemory) -> None:
    space = shared_memory.place(LARGE)
    assert space is not None
    array = np.ones(LARGE // 4, np.float32)
    for shift, said in (
        (-64, "outside the space that was reserved"),
        (PAGE + 64, "outside the space that was reserved"),
        (1 << 62, "outside the space that was reserved"),
    ):
        (frame,) = pack_answer({"y": array}, AnswerMemory(space.memory, space.offset + shift & (1 << 64) - 1))
        with pytest.raises(BadFrame, match=said):
            decode_answer([1], [frame], space)
        with pytest.raises(BadFrame, match="outside the space that was reserved"):
            decode_answer([1], [frame], None)


@pytest.mark.parametrize("shape", [(), 0, (0, 5), 7, np.int64(7), (3, np.int32(2)), [2, 2], (LARGE,), LARGE])
def test_empty_arrays_of_any_shape(shared_memory: SharedMemory, shape: int) -> None:
    array = empty(shape, "int16", shared_memory)
    assert array.dtype == np.int16
    assert array.shape == np.empty(shape, np.int16).shape
    assert (piece_of(array) is not None) == (array.nbytes >= LENT_BYTES)


@pytest.mark.parametrize("shape", [(-1,), (-LARGE, -LARGE), (1 << 40, 1 << 40), 1 << 70])
def test_what_is_no_shape_is_refused_as_numpy_does(shared_memory: SharedMemory, shape: int) -> None:
    with pytest.raises((ValueError, MemoryError, OverflowError)):
        empty(shape, "float32", shared_memory)
    with pytest.raises(TypeError):
        empty(2.5, "float32", shared_memory)  # type: ignore[arg-type]


def test_another_clients_memory_is_copied(pool: Pool, shared_memory: SharedMemory) -> None:
    other = pool.client(b"ben")
    array = empty(LARGE, "uint8", shared_memory)
    array[:] = 3
    _, (_, piece) = encode_call("m", array, other)
    assert not isinstance(piece, bytes)
    assert other.has(piece.region)
    assert bytes(piece.memory) == bytes([3]) * LARGE
    assert isinstance(encode_call("m", array, SharedMemory())[1][1], bytes)


def test_a_lost_pools_memory_stays_and_is_not_used_again(shared_memory: SharedMemory) -> None:
    array = empty(LARGE, "uint8", shared_memory)
    array[:] = 3
    assert shared_memory.place(LARGE) is not None
    shared_memory.lose_pool()
    assert shared_memory.settled.is_set(), "nobody waits for one that may not return"
    assert shared_memory.place(LARGE) is None
    assert array.tolist() == [3] * LARGE
    assert isinstance(encode_call("m", array, shared_memory)[1][1], bytes)


def test_a_client_is_gone_with_its_connection(pool: Pool, shared_memory: SharedMemory) -> None:
    assert shared_memory.place(1) is not None
    assert pool.lent.lent_bytes == USUAL_BYTES
    shared_memory.lose_pool()
    eventually(lambda: not pool.lent.lent_bytes)
    assert pool.gone == [b"ann"]


@pytest.fixture
def lasting_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the test takes, no pause of it ends by itself."""
    monkeypatch.setattr(client_memory, "PAUSE_S", 1e6)


@pytest.mark.usefixtures("lasting_pause")
def test_a_full_pool_is_not_asked_by_every_job(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "segments", 8 * MIB)
    try:
        shared_memory = pool.client()
        held = shared_memory.place(6 * MIB)
        assert held is not None
        assert shared_memory.place(6 * MIB) is None
        assert pool.requests() == 2
        assert all(shared_memory.place(6 * MIB) is None for _ in range(1000))
        assert pool.requests() == 2
        del held
        assert shared_memory.place(6 * MIB) is not None
        assert isinstance(encode_call("m", np.zeros(9 * MIB, np.uint8), shared_memory)[1][1], bytes)
    finally:
        pool.close()


@pytest.mark.usefixtures("lasting_pause")
def test_threads_wait_for_a_busy_pool_once(
    pool: Pool, shared_memory: SharedMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_memory, "GRANT_S", 1.0)
    with pool.busy():
        threads = [threading.Thread(target=shared_memory.place, args=(1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert pool.requests() == 1
    assert shared_memory.place(1) is None, "not before the pause is over"
    assert pool.requests() == 1


def test_there_is_a_time_to_trim_only_while_memory_is_taken(shared_memory: SharedMemory) -> None:
    assert shared_memory.next_trim() is None
    region = shared_memory.place(MIB)
    assert region is not None
    region.memory[:] = bytes(MIB)
    now = 100.0
    for _ in range(3):
        assert shared_memory.next_trim() is not None
        shared_memory.trim(now)
        assert shared_memory.next_trim() == now + TRIM_S
        shared_memory.trim(now + TRIM_S / 2)
        now += TRIM_S
    del region
    shared_memory.trim(now)
    shared_memory.trim(now + TRIM_S)
    assert shared_memory.next_trim() is None


# --- fork ---------------------------------------------------------------------------------------------------------


def in_child(act: "object") -> int:
    pid = os.fork()
    if not pid:
        try:
            os._exit(act() or 0)  # type: ignore[operator]
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_a_child_can_see_is_not_used_again(shared_memory: SharedMemory) -> None:
    shown, unseen = empty(LARGE, "uint8", shared_memory), shared_memory.place(LARGE)
    assert unseen is not None
    place, free = address(shown), unseen.offset
    assert in_child(lambda: 0) == 0
    del shown, unseen
    gc.collect()
    again = shared_memory.place(LARGE)
    assert again is not None
    assert again.offset == free, "nobody looked at that"
    later = empty(LARGE, "uint8", shared_memory)
    assert address(later) != place
    freed = address(later)
    del later
    assert address(empty(LARGE, "uint8", shared_memory)) == freed


def test_a_child_frees_nothing_of_its_parents_and_does_not_wait(pool: Pool, shared_memory: SharedMemory) -> None:
    array = empty(LARGE, "uint8", shared_memory)
    array[:] = 3

    def child() -> int:
        nonlocal array
        shared_memory.abandon_after_fork()
        del array
        gc.collect()
        return 0 if shared_memory.place(LARGE) is None and shared_memory.next_trim() is None else 1

    with shared_memory._lock:  # as another thread of the parent may have it
        assert in_child(child) == 0
    assert array.tolist() == [3] * LARGE
    assert address(empty(LARGE, "uint8", shared_memory)) != address(array)
    assert not pool.gone


# --- space for answers --------------------------------------------------------------------------------------------


def test_how_much_space_is_learned_by_the_row_and_fades() -> None:
    sizes = AnswerSizes()
    request = Request("m", None, None, None, 0, None)
    assert sizes.expected_bytes(request, 10) == 0
    sizes.learn(request, 2, {"y": np.zeros((2, MIB), np.uint8), "s": np.array([b"x"], object)})
    assert sizes.expected_bytes(request, 3) == 3 * MIB
    assert sizes.expected_bytes(Request("n", None, None, None, 0, None), 3) == 0
    for _ in range(500):
        sizes.learn(request, 1, {"y": np.zeros(64, np.uint8)})
    assert sizes.expected_bytes(request, 3) == 0
    assert FADES**500 * MIB < 64


def test_few_answers_are_remembered() -> None:
    sizes = AnswerSizes()
    for number in range(1000):
        sizes.learn(Request(f"m{number}", None, None, None, 0, None), None, {"y": np.zeros(MIB, np.uint8)})
    assert sizes.expected_bytes(Request("m0", None, None, None, 0, None), None) == 0
    assert sizes.expected_bytes(Request("m999", None, None, None, 0, None), None) == MIB
