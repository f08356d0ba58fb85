"""The bytes of a response's head."""

import time
from collections.abc import Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

__all__ = ["head_of"]

_WEIRD = frozenset("\r\n\0")


def head_of(status: int, headers: Sequence[tuple[str, str]], size_bytes: int, connection: str) -> bytes:
    """`connection`: the header's value, "" for none."""
    lines = [_first(status), f"Date: {_date(int(time.time()))}", f"Content-Length: {size_bytes}"]
    lines += [f"{name}: {value}" for name, value in headers if _WEIRD.isdisjoint(value)]
    if connection:
        lines.append(f"Connection: {connection}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")


@lru_cache(64)
def _first(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


@lru_cache(1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)
