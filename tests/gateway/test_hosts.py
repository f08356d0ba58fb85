import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.gateway.hosts import Hosts
from pool.gateway.http import Refused, Request

HOSTS = Hosts(["gpu.example"], ["https://dash.example"])


def status(**headers: str) -> int:
    try:
        HOSTS.check(Request("GET", "/", headers=headers))
    except Refused as refused:
        return refused.status
    return 200


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "10.1.2.3", "gpu.example:80", "GPU.example"]
)
def test_own_names_and_addresses_are_taken(host: str) -> None:
    assert status(host=host) == 200
    assert status(host=host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "a@localhost", "localhost/", "[::1", "x y"],
)
def test_other_names_are_refused(host: str) -> None:
    assert status(host=host) == 421


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:8000", 200),
        ("https://dash.example", 200),
        ("https://DASH.example/", 200),
        ("http://dash.example", 403),
        ("http://evil.example", 403),
        ("http://localhost:9000", 403),
        ("null", 403),
        ("", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_others_are_refused(origin: str, expected: int) -> None:
    assert status(host="localhost:8000", origin=origin) == expected


@given(st.text(), st.text())
def test_any_text_is_taken_or_refused(host: str, origin: str) -> None:
    assert status(host=host, origin=origin) in (200, 403, 421)
