"""What `pool top` is made of: charts, keys, and tables that are sorted, scrolled and cut to the screen."""

import contextlib
import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from pool.cli.top import Watched
from pool.terminal import CHART, Heading, Keys, Pane, sparkline
from simulation.driver import Driver
from support import told_pool


def test_a_sparkline() -> None:
    assert sparkline([], 3) == "   "
    assert sparkline([0, 0], 3) == " ▁▁"
    assert sparkline([9, 0, 3.5, 7], 3) == "▁▅█", "the last ones, and the largest that is shown is full"
    assert sparkline([0.5, None, 1.0], 3) == "▅ █"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, its = pty.openpty()
    yield ours, its
    os.close(ours)
    os.close(its)


def test_keys_have_names_and_come_one_by_one(terminal: tuple[int, int]) -> None:
    ours, its = terminal
    with Keys(its) as keys:
        assert keys.wait(0.0) is None
        os.write(ours, b"q\x1b[A\x1bOB\x1b[5~\t\x1b")
        assert [keys.wait(1.0) for _ in range(6)] == ["q", "up", "down", "page up", "tab", "escape"]
        assert keys.wait(0.0) is None


def test_the_terminal_is_as_before_afterwards(terminal: tuple[int, int]) -> None:
    _, its = terminal
    before = termios.tcgetattr(its)
    with contextlib.suppress(RuntimeError), Keys(its):
        assert termios.tcgetattr(its) != before
        raise RuntimeError
    assert termios.tcgetattr(its) == before


def console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False, color_system=None)


def drawn(pane: Pane, width: int, lines: int) -> list[str]:
    with (on := console(width)).capture() as captured:
        on.print(pane.table(on, lines, active=True))
    return [line.rstrip() for line in captured.get().splitlines()]


def pane() -> Pane:
    headings = (
        Heading("NAME", "n", str, left=True),
        Heading("RATE", "r", str),
        Heading("SPARE", "s", str, spare=1),
        Heading("NOBODY", "b", str),
    )
    made = Pane(headings, "RATE", descending=True)
    rows: list[dict[str, Any]] = [{"NAME": name, "RATE": rate} for name, rate in zip("abc", (2, 30, None), strict=True)]
    made.rows = [{"SPARE": "spare", "NOBODY": None, CHART: [0, 1], **row} for row in rows]
    return made


def test_a_pane_shows_what_fits_and_a_chart_where_there_is_room() -> None:
    assert drawn(pane(), 40, 9) == [
        "NAME  RATE↓  SPARE",
        "b        30  spare                    ▁█",
        "a         2  spare                    ▁█",
        "c            spare                    ▁█",
    ]
    assert drawn(pane(), 19, 9)[:2] == ["NAME  RATE↓  SPARE", "b        30  spare"]
    assert drawn(pane(), 15, 9)[:2] == ["NAME  RATE↓", "b        30"]
    assert all(len(line) <= 8 for line in drawn(pane(), 8, 9))


def test_a_pane_is_sorted_by_a_letter_or_an_arrow_and_turned_by_the_same_again() -> None:
    one = pane()

    def names(*keys: str) -> str:
        for key in keys:
            one.press(key, 2)
        return "".join(line[0] for line in drawn(one, 40, 9)[1:])

    assert names() == "bac"
    assert names("r") == "cab", "what is not known comes first then"
    assert names("n") == "abc", "texts from A"
    assert names("n") == "cba"
    assert names("right") == "bac", "numbers from the largest"
    assert names("left") == "abc"
    assert names("x", "?") == "abc"


def test_a_pane_scrolls_and_says_where_it_is() -> None:
    one = pane()
    assert drawn(one, 60, 3)[0].startswith("NAME 1-2 of 3 ")
    one.press("down", 2)
    assert [line[:1] for line in drawn(one, 60, 3)] == ["N", "a", "c"]
    one.press("page down", 2)
    assert drawn(one, 60, 3)[0].startswith("NAME 2-3 of 3 "), "not beyond the end"
    one.press("home", 2)
    assert [line[:1] for line in drawn(one, 60, 3)] == ["N", "b", "a"]
    one.press("end", 2)
    assert [line[:1] for line in drawn(one, 60, 3)] == ["N", "a", "c"]
    assert len(drawn(one, 60, 1)) == 2


def seen() -> tuple[Driver, Watched]:
    driver, watched = Driver(["m"]), Watched()
    driver.start()
    driver.up(0)
    watched.see(told_pool.status(driver, uptime_s=10.0))
    for _ in range(6):
        driver.submit("m")
        driver.done(driver.running()[0])
    return driver, watched


def test_rates_are_those_between_two_looks_by_the_pools_clock() -> None:
    driver, watched = seen()
    assert (watched.models.rows[0]["JOBS/S"], watched.slots.rows[0]["JOBS/S"]) == (0.0, 0.0)
    watched.see(told_pool.status(driver, uptime_s=12.0))
    assert (watched.models.rows[0]["JOBS/S"], watched.slots.rows[0]["JOBS/S"]) == (3.0, 3.0)
    assert list(watched.models.rows[0][CHART]) == [0.0, 3.0]
    assert watched.slots.rows[0]["GPU MEM"] == (97 / 141, "97/141 GiB")
    assert (watched.slots.rows[0]["LOAD"], watched.slots.rows[0]["TEMP"]) == (0.87, 61)
    assert "3.00 jobs/s" in watched.head(100).plain


def test_another_pool_at_the_endpoint_begins_anew() -> None:
    driver, watched = seen()
    watched.see(told_pool.status(driver, uptime_s=1.0, instance="01"))
    assert list(watched.models.rows[0][CHART]) == [0.0], "no rate since another pool's count"


def test_while_no_pool_answers_the_last_figures_stay() -> None:
    _, watched = seen()
    watched.trouble = "no pool answers at ipc:///x"
    assert watched.head(100).plain.splitlines()[1] == "trying again: no pool answers at ipc:///x"
    assert watched.models.rows
