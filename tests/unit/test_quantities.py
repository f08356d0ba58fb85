"""Durations and sizes as people write them."""

import pytest
from pydantic import TypeAdapter

from pool.config.quantities import Bytes, parse_duration, parse_duration_or_auto, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60.0),
        ("250ms", 0.25),
        ("2m", 120.0),
        ("1h", 3600.0),
        ("1.5 s", 1.5),
        (3, 3.0),
        (0.5, 0.5),
        ("0s", 0),
    ],
)
def test_durations_are_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "bad",
    ["", "60", "s", "-1s", "1d", "1 s s", "1S", -1, True, None, float("nan"), float("inf"), 10**400, "٣s"],
)
def test_what_is_no_duration_is_told_what_would_be_right(bad: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write a number with its unit"):
        parse_duration(bad)


def test_auto_is_a_duration_only_where_it_may_be() -> None:
    assert parse_duration_or_auto("auto") == "auto"
    assert parse_duration_or_auto("2m") == 120.0
    for bad in ("never", 0):
        with pytest.raises(ValueError, match='is not a duration; write "auto", or one such as "120s"'):
            parse_duration_or_auto(bad)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 * 2**30),
        ("512MiB", 2**29),
        ("1GB", 10**9),
        ("100kB", 100_000),
        ("1.5KiB", 1536),
        ("7B", 7),
        (123, 123),
    ],
)
def test_sizes_are_bytes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("bad", ["", "2", "2Gb", "2gib", "-1GiB", 0, -5, 1.5, True, None, "0B", "99999999TiB"])
def test_what_is_no_size_is_told_what_would_be_right(bad: object) -> None:
    with pytest.raises(ValueError, match=r'is not a size; write .* such as "2GiB"'):
        parse_size(bad)


def test_a_size_is_read_once() -> None:
    adapter: TypeAdapter[int] = TypeAdapter(Bytes)
    assert adapter.validate_python(adapter.validate_python("2GiB")) == 2 * 2**30
