"""How far a client runs ahead of the pool's reading, and what it gives up meanwhile."""

from pool.client.pace import KEPT, MARGIN, Pace
from pool.client.window import MOST_UNREAD, PING_AFTER, Window


def filled(jobs: int) -> Window:
    window = Window()
    for _ in range(jobs):
        assert window.is_open()
        window.submitted()
    return window


def test_it_closes_after_so_many_unread_jobs() -> None:
    assert filled(MOST_UNREAD - 1).is_open()
    assert not filled(MOST_UNREAD).is_open()


def test_an_answer_shows_that_all_before_it_was_read() -> None:
    window = filled(MOST_UNREAD)
    window.answered(MOST_UNREAD // 2)
    assert window.is_open()
    window.answered(3)  # an older one says nothing new
    for _ in range(MOST_UNREAD // 2):
        assert window.is_open()
        window.submitted()
    assert not window.is_open()


def test_a_pong_shows_what_was_read_before_its_ping() -> None:
    window = filled(PING_AFTER)
    assert window.wants_ping()
    window.pinged()
    assert not window.wants_ping()
    for _ in range(MOST_UNREAD - PING_AFTER):
        window.submitted()
    assert not window.is_open()
    window.ponged()
    for _ in range(PING_AFTER):
        assert window.is_open()
        window.submitted()
    assert not window.is_open()


def test_few_jobs_need_no_ping() -> None:
    window = Window()
    for place in range(1, 1000):
        assert window.submitted() == place
        assert not window.wants_ping()
        window.answered(place)


def test_pings_are_asked_for_until_the_window_is_full() -> None:
    window, pings = Window(), 0
    while window.is_open():
        window.submitted()
        if window.wants_ping():
            window.pinged()
            pings += 1
    assert pings == MOST_UNREAD // PING_AFTER
    for _ in range(pings):
        window.ponged()
    assert window.is_open()
    window.ponged()  # one that nobody waits for


def test_the_pace_is_known_after_some_answers_and_one_slow_one_moves_nothing() -> None:
    pace = Pace()
    for _ in range(KEPT - 1):
        pace.answered(0.0, 0.1)
    assert pace.answer_s == 0.0
    pace.answered(0.0, 9.0)
    assert pace.answer_s == 0.1 * MARGIN


def test_answers_that_waited_while_this_process_stood_still_say_nothing_about_the_pool() -> None:
    pace = Pace()
    pace.stood_still(10.0)
    for _ in range(2 * KEPT):
        pace.answered(9.9, 13.0)
    assert pace.answer_s == 0.0
    for _ in range(KEPT):
        pace.answered(10.0, 10.5)
    assert pace.answer_s == 0.5 * MARGIN
