"""Shared memory: regions side by side, free again when the last array has gone, never two owners."""

import gc
import random

import numpy as np

from pool.client.arena import Arena


def test_neighbours_lie_side_by_side_and_rooms_at_the_other_end() -> None:
    arena = Arena(1 << 20)
    assert [arena.take(100) for _ in range(3)] == [0, 128, 256]
    assert arena.take(64, from_high_end=True) == (1 << 20) - 64
    arena.give(128, 100)
    assert arena.take(128) == 128, "what was touched before is used first"
    assert arena.take(1 << 20) is None
    arena.close()


def test_a_region_is_free_when_its_last_array_has_gone() -> None:
    arena = Arena(1 << 16)
    offset = arena.take(1 << 16)
    assert offset == 0
    arena.memory[:8] = b"12345678"
    array = np.ndarray((8,), np.uint8, arena.hold(0, 1 << 16))  # type: ignore[arg-type]
    part = array[2:4].reshape(1, 2)
    del array
    gc.collect()
    assert arena.take(64) is None, "a view of a view still reads it"
    assert part.tolist() == [[51, 52]]
    part[0, 0] = 9
    assert arena.memory[2] == 9
    del part
    gc.collect()
    assert arena.take(1 << 16) == 0
    arena.close()


def test_a_walk_of_takes_and_gives_never_overlaps_and_ends_whole() -> None:
    chance = random.Random(5)
    arena = Arena(1 << 16)
    taken: dict[int, int] = {}
    refused = 0
    for _ in range(5000):
        if taken and chance.random() < 0.5:
            offset = chance.choice([*taken])
            arena.give(offset, taken.pop(offset))
            continue
        length = chance.randrange(1, 5000)
        offset = arena.take(length, from_high_end=chance.random() < 0.3)
        if offset is None:
            refused += 1
            continue
        assert offset % 64 == 0
        assert offset + length <= 1 << 16
        assert all(offset + length <= other or other + size <= offset for other, size in taken.items())
        taken[offset] = length
    assert refused, "the premise: it was full at times"
    for offset, length in taken.items():
        arena.give(offset, length)
    assert arena.used == 0
    assert arena.take(1 << 16) == 0
    arena.close()
