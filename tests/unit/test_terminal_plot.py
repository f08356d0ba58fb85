"""A plot of characters: its axes, its curves and the line at its end."""

from pool.terminal import Curve, plot
from pool.terminal.plot import HEIGHT, MARGIN

RISING = Curve("p99", "●", "red", [(0.0, 1.0), (50.0, 10.0), (100.0, 100.0)])


def drawn(*curves: Curve, width: int = 60) -> list[str]:
    return plot(curves, width, across="answers/s", up="ms", most=100.0, mark="capacity 100.0/s").plain.splitlines()


def test_points_lie_where_the_axes_say() -> None:
    lines = drawn(RISING)
    rows = [line[MARGIN + 2 :] for line in lines[1 : HEIGHT + 1]]
    columns = 60 - MARGIN - 2
    assert [(row.index("●"), number) for number, row in enumerate(rows) if "●" in row] == [
        (columns - 1, 0),
        (round(50 / 100 * (columns - 1)), round((HEIGHT - 1) / 2)),
        (0, HEIGHT - 1),
    ]
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line] == ["100", "10", "1"]
    assert all("·" in row for row in rows), "the points are joined, and were not lost behind the line"


def test_the_end_has_its_mark_and_its_value() -> None:
    lines = drawn(RISING)
    assert lines[0].split() == ["ms", "●", "p99", "capacity", "100.0/s"]
    assert lines[-1].split() == ["0", "answers/s", "100.0"]
    assert all(line[-1] == "┊" for line in lines[2 : HEIGHT + 1])


def test_one_point_and_a_narrow_terminal() -> None:
    one = drawn(Curve("p50", "○", "cyan", [(100.0, 5.0)]), width=10)
    assert sum(line.count("○") for line in one[1:]) == 1
    assert [line.split("┤")[0].strip() for line in one if "┤" in line] == ["10", "1"]
