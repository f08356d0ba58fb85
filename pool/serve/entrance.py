"""The pool's gateway, if it has one: it comes before the first worker, and goes before the core is told to stop.

    StopAsked ─► the gateway accepts nothing any more and finishes what it has ─► the core drains ─► the workers go

So a request that was accepted is answered. Where that takes longer than a moment, the core is told meanwhile: jobs of
the gateway are finished like any others, and it ends with the pool at the latest.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from pool.core.events import StopAsked
from pool.errors import InvalidConfig
from pool.loop import Loop
from pool.processes.gateways import Gateways, listen, not_installed
from pool.wire.gateway import GatewaySettings

__all__ = ["Entrance"]

FIRST_S = 2.0  # for which the core waits with its own end
LAST_S = 1.0  # in which it may write the last answers, when the pool has ended


class Entrance:
    """Used from the pool's loop. What becomes of the gateway never ends the pool."""

    def __init__(
        self,
        settings: GatewaySettings | None,
        environ: Mapping[str, str],
        loop: Loop,
        tell: Callable[[StopAsked], None],
    ) -> None:
        """Opens the socket; `settings` None: there is no gateway. `tell` tells the core.

        Raises `CannotListen`, and `InvalidConfig` where the gateway's packages are not installed.
        """
        self._tell = tell
        self._asked: StopAsked | None = None  # what the core is not told yet
        self._turn = loop.alarm(self._tell_core)
        self._gateways: Gateways | None = None
        if settings is not None:
            if missing := not_installed():
                raise InvalidConfig(f"[gateway]: {missing}")
            self._gateways = Gateways(settings, listen(settings.listen), environ, loop)

    @property
    def stops(self) -> bool:
        """Whether the core is about to be told to stop."""
        return self._asked is not None

    @property
    def longest_stop_s(self) -> float:
        """How much longer the pool's end may take because of it."""
        return 0.0 if self._gateways is None else FIRST_S + LAST_S

    def start(self) -> None:
        if self._gateways is not None:
            self._gateways.start()

    def adopt(self, settings: GatewaySettings | None) -> None:
        """REQUIRES that there are some where there is a gateway: one never goes or comes while the pool runs."""
        if self._gateways is not None and settings is not None:
            self._gateways.adopt(settings)

    def stop(self, event: StopAsked, at_once: bool) -> None:
        """Tells the core, a moment later where there is a gateway. Asked again, or `at_once`, nothing waits."""
        if self._gateways is None:
            self._tell(event)
        elif self._asked is None and not at_once:
            self._asked = event
            self._turn.by(time.monotonic() + FIRST_S)
            self._gateways.stop(self._turn.soon)
        else:
            self._gateways.kill()
            self._tell_core()
            self._tell(event)

    def kill(self) -> None:
        if self._gateways is not None:
            self._gateways.kill()

    def close(self) -> None:
        """The pool has ended."""
        if self._gateways is not None:
            self._gateways.close(LAST_S)

    def status(self) -> dict[str, Any] | None:
        return None if self._gateways is None else self._gateways.status()

    def _tell_core(self) -> None:
        event, self._asked = self._asked, None
        if event is not None:
            self._tell(event)
