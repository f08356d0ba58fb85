"""Where a job's time went: segments that add up."""

from dataclasses import replace

import pytest

from pool.cli.timeline_bar import where_it_ran
from unit.results import TOLD, result_of


def test_segments_add_up_to_the_wall_time() -> None:
    timeline = result_of({}, held_s=0.0002).timeline
    assert sum(seconds for _, seconds in timeline.segments()) == pytest.approx(0.02, abs=1e-12)
    assert timeline.queue_s == pytest.approx(0.0012)  # the wait here and the wait there
    assert timeline.reply_s == pytest.approx(0.0047)


def test_one_line_for_a_person() -> None:
    timeline = result_of({}).timeline
    assert str(timeline) == (
        "job 7: 20.00 ms = encode 0.10 + queue 1.00 + batch wait 2.00 + feed 3.00 + run 4.00 + fetch 5.00 + reply 4.90;"
        " 3 of 8 rows in slot 2 (gpu:1)"
    )


def test_one_that_was_run_in_pieces_says_so() -> None:
    result = result_of({}, replace(TOLD, rows=80))
    timeline = result.timeline
    assert str(timeline).endswith("; 80 rows in pieces, the last of 8, in slot 2 (gpu:1)")
    result.own_rows = 1  # one that came in a chunk
    assert "1 of 8 rows" in str(result.timeline)
    assert where_it_ran(timeline) == "80 rows run in pieces, the last of 8, slot 2 (gpu:1)"
