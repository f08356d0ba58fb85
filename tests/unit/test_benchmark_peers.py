"""A peer gets the rows that our own clients have, in turn, and no wrong answer of it counts as speed."""

import shutil
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.cases import Case, WrongAnswer, rows_of
from benchmarks.peers import wrk
from benchmarks.peers.server import HttpServer, NotServing, free_port
from benchmarks.turns import Turns

pytestmark = pytest.mark.bench

SERVER = Path(__file__).with_name("peer_server.py")
CASE = Case("double", "", "", "x", "y", "float32", (3,), 4)
ROWS = rows_of(CASE, 16)
TURNS = Turns(CASE, ROWS, [row * 2 for row in ROWS])

needs_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


@contextmanager
def peer(behaviour: str, folder: Path) -> Iterator[tuple[HttpServer, str]]:
    """Once it has been checked, with its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    server = HttpServer([sys.executable, str(SERVER), str(port), behaviour], {}, url, {}, TURNS, folder)
    try:
        yield server, url
    finally:
        server.end()


def seen(url: str) -> int:
    """How many bodies differed."""
    with urllib.request.urlopen(f"{url}seen") as reply:
        return int(reply.read())


@contextmanager
def unchecked(behaviour: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HttpServer, str]]:
    """The same, but what goes wrong is found by wrk alone."""

    def no_check(self: HttpServer, _: int) -> None:
        with urllib.request.urlopen(f"{self._url}seen"):
            pass

    monkeypatch.setattr(HttpServer, "_check_row", no_check)
    with peer(behaviour, folder) as found:
        yield found


def test_a_peer_that_is_right_is_asked_for_all_rows_and_serves(tmp_path: Path) -> None:
    with peer("right", tmp_path) as (server, url):
        server.check()
        assert seen(url) == len(ROWS)


@pytest.mark.parametrize(("behaviour", "why"), [("cached", "expected"), ("mixed", "expected"), ("short", "11 bytes")])
def test_a_peer_that_answers_wrongly_is_not_measured(behaviour: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(WrongAnswer, match=why), peer(behaviour, tmp_path):
        pass


def test_a_peer_whose_answers_become_wrong_is_found_out_after_the_turn(tmp_path: Path) -> None:
    with peer("right", tmp_path) as (server, _):
        server._turns = Turns(CASE, ROWS, [row * 3 for row in ROWS])
        with pytest.raises(WrongAnswer):
            server.check()


def test_answers_whose_rows_are_not_known_must_be_those_of_many_rows() -> None:
    answers = [answer.tobytes() for answer in TURNS.expected]
    CASE.check_unordered(answers[::-1] * 3, TURNS.expected)
    CASE.check_unordered(answers[:5], TURNS.expected)  # a slow peer's few
    with pytest.raises(WrongAnswer, match="only 1 differ"):
        CASE.check_unordered(answers[:1] * 48, TURNS.expected)
    with pytest.raises(WrongAnswer, match="the answer to no row"):
        CASE.check_unordered([*answers, ROWS[0].tobytes()], TURNS.expected)
    with pytest.raises(WrongAnswer, match="4 bytes, expected 12"):
        CASE.check_unordered([answers[0][:4]], TURNS.expected)


@needs_wrk
def test_wrk_sends_all_rows_in_turn_and_brings_back_what_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unchecked("right", tmp_path, monkeypatch) as (_, url):
        run = wrk.drive(url, tmp_path / "bodies", {}, 4, 1.0, tmp_path)
        assert seen(url) == len(ROWS)
    assert run.rate > 0
    assert len(run.answers) >= len(ROWS)
    CASE.check_unordered(run.answers, TURNS.expected)
    assert set(run.answers) == {answer.tobytes() for answer in TURNS.expected}


@needs_wrk
def test_wrk_itself_finds_a_peer_that_answers_all_from_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        unchecked("cached", tmp_path, monkeypatch) as (server, _),
        pytest.raises(WrongAnswer, match="only 1 differ"),
    ):
        server.rate(4, 1.0)


@needs_wrk
@pytest.mark.parametrize("status", ["503", "202", "302"])
def test_wrk_takes_nothing_but_200(status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_check(self: HttpServer) -> None:
        """What is asked for at the start and between turns is left out: it would find the peer out before wrk."""

    monkeypatch.setattr(HttpServer, "check", no_check)
    with (
        unchecked(status, tmp_path, monkeypatch) as (server, _),
        pytest.raises(wrk.WrkFailed, match="requests failed"),
    ):
        server.rate(4, 1.0)


def test_a_peer_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(NotServing, match="IndexError"):
        HttpServer([sys.executable, str(SERVER)], {}, f"http://127.0.0.1:{free_port()}/", {}, TURNS, tmp_path)
