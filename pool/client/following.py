"""A cluster is looked at once, however many clients of this process follow it: each look is a process of its own."""

import logging
import os
import threading
from collections.abc import Callable, Mapping

from pool.client.discovery import FIRST_S, SCHEME, Discovery

__all__ = ["Following"]

log = logging.getLogger("pool.client")

_lock = threading.RLock()  # a finalizer may come while it is held
_looks: dict[str, "_Look"] = {}


class _Look:
    """One, by the address of its cluster. It ends with the last who follows."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.followers: list[Following] = []
        self.is_over = False
        self.pid = os.getpid()
        self.discovery = Discovery(address, self._tell)

    def _tell(self, pools: Mapping[str, str]) -> None:
        for each in [*self.followers]:
            try:
                each.on_change(pools)
            except Exception as error:  # such as keys that are missing for a new pool: it keeps those of before
                log.warning("%s%s: its pools cannot be used: %s", SCHEME, self.address, error)


class Following:
    """Of one client, from its making until `close` or `release`. Safe for several threads."""

    def __init__(self, address: str, on_change: Callable[[Mapping[str, str]], object]) -> None:
        """As `Discovery`."""
        self.on_change = on_change
        with _lock:
            look = _looks.get(address) or _Look(address)
            look.followers.append(self)
            if look.is_over:  # a finalizer was faster
                look = _Look(address)
                look.followers.append(self)
            self._look = _looks[address] = look

    @property
    def pools(self) -> Mapping[str, str]:
        return self._look.discovery.pools

    def wait(self, timeout_s: float = FIRST_S) -> Mapping[str, str]:
        """As `Discovery.wait`."""
        return self._look.discovery.wait(timeout_s)

    def release(self) -> None:
        """Does not wait."""
        look = self._look
        with _lock:
            if self in look.followers:
                look.followers.remove(self)
            if not look.followers and not look.is_over:
                look.is_over = True
                if _looks.get(look.address) is look:
                    del _looks[look.address]
                look.discovery.release()

    def close(self) -> None:
        """As `Discovery.close`, where nobody else follows."""
        self.release()
        if self._look.is_over:
            self._look.discovery.close()

    def after_fork(self) -> None:
        """In a forked child."""
        if self._look.pid != os.getpid():
            self._look.pid = os.getpid()
            self._look.discovery.after_fork()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_renew_lock)
