"""Sizes are shown with their unit, and a size beside its limit never looks as if it fitted."""

import pytest

from pool.wire.sizes import exceeds, readable, rounded

GIB = 2**30


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**20, "1.0 MiB"), (1.5 * GIB, "1.5 GiB"), (99.6, "100 B")],
)
def test_a_size_has_a_unit(size_bytes: float, shown: str) -> None:
    assert readable(size_bytes) == shown


def test_a_limit_is_shown_as_one_would_write_it() -> None:
    assert [rounded(size) for size in (2 * GIB, 2.5 * GIB, 1000)] == ["2 GiB", "2.5 GiB", "1000 B"]


def test_what_is_too_large_is_told_with_its_limit() -> None:
    assert exceeds(int(2.1 * GIB), "max_bytes", 2 * GIB) == "2.1 GiB exceeds max_bytes (2 GiB)"


def test_what_is_too_large_by_a_byte_is_told_by_how_much() -> None:
    assert exceeds(2 * GIB + 1, "max_bytes", 2 * GIB) == "max_bytes (2 GiB) is exceeded by 1 B"
