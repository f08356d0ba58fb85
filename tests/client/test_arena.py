"""Shared memory: regions never overlap, come back whole, and follow the arrays that view them."""

import random
import socket

import pytest

from pool.client.arena import Arena
from pool.wire.link import Link

SIZE = 1 << 16


@pytest.fixture
def arena() -> Arena:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        return Arena(SIZE, Link(ours))


@pytest.mark.parametrize("seed", range(3))
def test_regions_never_overlap_and_all_memory_comes_back(arena: Arena, seed: int) -> None:
    draw = random.Random(seed)
    used: list[tuple[object, list[tuple[int, int]]]] = []  # what keeps extents in use
    refused = 0
    for _ in range(2000):
        if used and draw.random() < 0.5:
            used.pop(draw.randrange(len(used)))
            continue
        region = arena.take(draw.randrange(0, 5000), draw.choice([0, 64, 3000]))
        if region is None:
            refused += 1
            continue
        extents = [(lease.offset, lease.length) for lease in (region.inputs, region.output)]
        for offset, length in extents:
            assert offset % 64 == 0
            assert offset + length <= SIZE
            assert all(offset + length <= at or at + size <= offset for _, taken in used for at, size in taken)
        if region.output.length and draw.random() < 0.5:  # a result's arrays outlive the job
            owner = arena.lend(region, region.output.length)
            used.append((owner, [] if owner.flags.owndata else extents[1:]))
            del owner
        else:
            used.append((region, extents))
        del region
    assert refused, "the walk never filled the arena"
    used.clear()
    whole = arena.take(SIZE, 0)
    assert whole is not None
    assert arena.take(64, 0) is None


def test_inputs_lie_side_by_side_and_rooms_at_the_other_end(arena: Arena) -> None:
    regions = [arena.take(640, 128) for _ in range(3)]
    assert [region and region.inputs.offset for region in regions] == [0, 640, 1280]
    assert [region and region.output.offset for region in regions] == [SIZE - 128, SIZE - 256, SIZE - 384]
