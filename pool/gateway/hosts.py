"""Whose name a request may call this gateway by: against pages in a browser that turn their own name to this address.

Such a page can send requests to 127.0.0.1 from behind every firewall. Its name is in `Host`, or in `Origin`.
"""

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from pool.gateway.http import Refused, Request

__all__ = ["Hosts"]


class Hosts:
    def __init__(self, hosts: Collection[str] = (), origins: Collection[str] = ()) -> None:
        """`hosts`: names beside localhost and the machine's own. `origins`: such as "https://dash.example"."""
        own = socket.gethostname().lower()
        self._hosts = {"localhost", own, own.partition(".")[0], *(host.lower() for host in hosts)}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._known: set[str] = set()  # that were found good, as they came

    def check(self, request: Request) -> None:
        """Raises `Refused`."""
        host = request.headers.get("host", "")
        if host and host not in self._known:
            self._check_host(host)
        origin = request.headers.get("origin")
        if origin is not None and origin.lower().rstrip("/") not in self._origins and not self._is_own(origin, host):
            raise Refused(403, f"requests of pages from {origin!r:.200} are refused; add it to [gateway] origins")

    def _check_host(self, host: str) -> None:
        name = _name(host)
        if name is None or not (_is_address(name) or name in self._hosts):
            raise Refused(421, f"Host is {host!r:.200}, which this gateway is not; add it to [gateway] hosts")
        if len(self._known) < 64:
            self._known.add(host)

    @staticmethod
    def _is_own(origin: str, host: str) -> bool:
        try:
            return bool(host) and urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            return False


def _name(host: str) -> str | None:
    """Without the port."""
    try:
        parts = urlsplit(f"//{host}")
        return None if parts.username is not None or parts.path or parts.query else parts.hostname
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
