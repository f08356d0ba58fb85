"""Several processes count requests as one, and none is lost with a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pool.gateway.metrics.request_counts import CODES, ROUTES, SECTION_CELLS, RequestCounts, Route

# Counts so many of a route, says so, and waits for the end of its input.
CHILD = """
import sys
from pool.gateway.metrics.request_counts import RequestCounts

counts = RequestCounts(int(sys.argv[1]))
for _ in range(int(sys.argv[3])):
    counts.count(sys.argv[2], 200, 0.001)
print("counted", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def shared() -> Iterator[int]:
    fd = os.memfd_create("requests")
    yield fd
    os.close(fd)


def counting(fd: int, route: str, requests: int) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(fd), route, str(requests)],
        pass_fds=[fd],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "counted\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.communicate(timeout=20)


def totals(counts: RequestCounts) -> dict[str, int]:
    return {route.name: sum(route.requests.values()) for route in counts.routes()}


def test_processes_at_one_time_have_a_section_each(shared: int) -> None:
    children = [counting(shared, "infer", 100 + number) for number in range(4)]
    try:
        assert totals(RequestCounts(shared)) == {"infer": 406}
    finally:
        for child in children:
            end(child)


def test_one_that_is_killed_and_followed_loses_no_count(shared: int) -> None:
    mine = RequestCounts(shared)
    before = 0
    for generation in range(3):
        child = counting(shared, "predict", 50)
        found = totals(mine)["predict"]
        assert found == before + 50, f"generation {generation}"
        before = found
        child.kill()
        end(child)
    used = sum(mine._cells[start] for start in range(1, len(mine._cells), SECTION_CELLS))
    assert used == 2, "each one that follows goes on in the section of the one before"


def test_what_is_not_known_is_counted_as_other() -> None:
    counts = RequestCounts()
    for route, status in (("infer", 200), ("infer", 299), ("\0nowhere", 404), ("other", 999)):
        counts.count(route, status, 0.5)
    assert {route.name: dict(route.requests) for route in counts.routes()} == {
        "infer": {"200": 1, "other": 1},
        "other": {"404": 1, "other": 1},
    }


def test_times_are_in_their_buckets() -> None:
    counts = RequestCounts()
    for seconds in (0.0, 0.001, 0.001024, 0.0011, 3.0, 1e12):
        counts.count("infer", 200, seconds)
    counts.count("infer", 429, None)  # refused
    (route,) = counts.routes()
    found = {power: count for power, count in enumerate(route.times.counts) if count}
    assert found == {0: 1, 10: 2, 11: 1, 22: 1, 39: 1}
    assert sum(route.times.counts) == route.requests["200"] == 6
    assert route.requests["429"] == 1
    assert route.times.sum == pytest.approx(1e12)


def test_the_file_of_another_release_is_left_alone(shared: int) -> None:
    theirs = RequestCounts(shared)
    theirs.count("infer", 200, 0.1)
    theirs._cells[0] += 1  # another layout
    before = theirs._cells.tolist()
    mine = RequestCounts(shared)
    mine.count("infer", 200, 0.1)
    assert totals(mine) == {"infer": 1}
    assert theirs._cells.tolist() == before


def test_routes_and_codes_are_few() -> None:
    assert len(ROUTES) * (len(CODES) + 1) < 400, "each is a time series for every pool"
    assert list(RequestCounts().routes()) == list[Route]()
