"""What clients name does not outlive their jobs, but for a bounded rest."""

import gc
import tracemalloc

import pytest

from pool.core import events as told
from pool.core.remembered import MOST_NAME_BYTES, Remembered, names_bytes
from pool.wire.faults import Fault
from simulation.driver import Driver

JOBS = 400
NAMES = 100
NAME_BYTES = 600
CLIENT_BYTES = 4 << 10  # of one that is gone; the dict of its 300 jobs has 18
ROOM_BYTES = 5 * MOST_NAME_BYTES  # costs, idle keys, calls, jobs that were done, jobs that failed


@pytest.mark.parametrize("fails", [False, True])
def test_long_lists_of_outputs_are_forgotten_with_their_jobs(fails: bool) -> None:
    driver = Driver(["m"]).serve()
    tracemalloc.start()
    try:
        for job in range(JOBS):
            driver.log.clear()
            driver.submit(outputs=tuple(f"{number}/{job}".ljust(NAME_BYTES) for number in range(NAMES)), rows=1)
            (run,) = driver.running()
            driver.spoil(run, Fault.MODEL_FAILED) if fails else driver.done(run)
        driver.log.clear()
        driver.feed(told.ClientGone(b"client"))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert JOBS * NAMES * NAME_BYTES > 4 * ROOM_BYTES, "there would be more"
    assert held < ROOM_BYTES
    assert driver.machine.history.find(JOBS) is not None
    assert driver.machine.history.find(1) is None


def test_names_of_the_usual_size_are_bounded_in_number_alone() -> None:
    remembered: Remembered[int] = Remembered(3)
    for number in range(5):
        remembered.put((str(number), None, b""), number)
    remembered.put(("2", None, b""), 22)
    remembered.put(("5", None, b""), 5)
    assert [name for (name, _, _), _ in remembered.items()] == ["4", "2", "5"]
    assert remembered.get(("2", None, b"")) == 22
    assert remembered.size_bytes == 3 * names_bytes("1", None)


def test_the_last_one_is_kept_however_long() -> None:
    remembered: Remembered[int] = Remembered(3)
    remembered.put(("short", None, b""), 1)
    remembered.put(("x" * (MOST_NAME_BYTES + 1), None, b""), 2)
    assert [value for _, value in remembered.items()] == [2]


def test_a_client_that_is_gone_leaves_nothing_of_its_burst() -> None:
    driver = Driver(["m"]).serve()
    driver.submit()
    assert driver.running(), "the others wait behind it"
    held = []
    tracemalloc.start()
    try:
        for client in range(9):
            name = b"%d" % client
            driver.feed(*[driver.arrival(client=name) for _ in range(300)])
            driver.feed(told.ClientGone(name))
            driver.log.clear()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(driver.machine.backlog.jobs) == 1, "but for the first, all have left"
    assert held[8] < held[3] + 5 * CLIENT_BYTES, "by the fourth, the history is full"
