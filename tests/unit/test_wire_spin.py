"""The short look before a sleep: it ends with what it finds, or with its time; who asks for none sleeps at once."""

import os
import time

import pytest

from pool.client.sources import Sources
from pool.loop.watch import Watch
from pool.wire.spin import spin


def test_it_ends_with_what_it_finds() -> None:
    looks = iter([0, 0, 7, 8])
    assert spin(lambda: next(looks), 60.0) == 7


def test_it_ends_with_its_time() -> None:
    looks = 0

    def look() -> list[int]:
        nonlocal looks
        looks += 1
        return []

    began = time.perf_counter()
    assert spin(look, 0.005) == []
    assert time.perf_counter() - began >= 0.005
    assert looks > 1
    assert spin(look, 0.0) == []


@pytest.mark.parametrize("spin_s", [0.0, 0.002])
def test_those_who_wait_find_the_same_with_it_and_without(spin_s: float) -> None:
    reader, writer = os.pipe()
    sources, watch = Sources(), Watch(spin_s)

    def wait(seconds: float) -> dict[int, int]:
        return spin(lambda: sources.wait(0.0), spin_s) or sources.wait(seconds)

    sources.watch(reader)
    assert wait(0.01) == {}
    watch.add(reader)
    assert watch.wait(0.01) == []
    os.write(writer, b"x")
    assert list(wait(5.0)) == [reader]
    assert watch.wait(5.0) == [reader]
    assert watch.wait(0.0) == [reader]
    watch.close()
    sources.close()
    os.close(reader)
    os.close(writer)
