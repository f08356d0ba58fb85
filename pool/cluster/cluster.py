"""A Ray cluster as somebody sees it who is no part of it: its pools are placed, looked at, and ended.

Ray ends any process that has connected to it a minute after the cluster's head is lost. So commands connect, and a
process of its own for discovery, but never a pool or a caller's program.
"""

import logging
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import GetTimeoutError, RayError

from pool.cluster.keeper import KEEPER, MACHINE, NAMESPACE, Keeper, Kept, Placing
from pool.cluster.machine import COMMAND_S
from pool.errors import InvalidState, PoolUnreachable

__all__ = ["Cluster"]

KNOCK_S = 5.0
ASK_S = 10.0
KILL_MARGIN_S = 30.0  # until Ray has ended all actors


class Cluster:
    """Used in a `with` block, one at a time in a process. Every method raises `PoolUnreachable` where Ray is silent."""

    def __init__(self, address: str) -> None:
        """`address`: "HOST:PORT" of the head; "auto": $RAY_ADDRESS, else the cluster that this machine belongs to."""
        try:
            _knock(address)
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise PoolUnreachable(f"no Ray cluster at {address}: {error}") from None

    def place(self, placing: Placing) -> None:
        """From now on the cluster has pools. Raises `InvalidState` where it has some."""
        options = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": -1, "num_cpus": 0}
        try:
            keeper = ray.remote(Keeper).options(name=KEEPER, max_concurrency=16, **options).remote(placing)
        except ValueError:  # of the name
            right = "`pool status --cluster` shows them, `pool stop --cluster` ends them"
            raise InvalidState(f"this cluster has its pools already; {right}") from None
        self._answer(keeper.machines.remote(), ASK_S * 6)

    def machines(self) -> tuple[Kept, ...] | None:
        """Those that are to have a pool, in the order of their addresses; None while that is not known yet."""
        found = self._answer(self._keeper().machines.remote(), ASK_S)
        return None if found is None else tuple(sorted(found, key=lambda kept: (kept.host, kept.node)))

    def command(self, kept: Kept, arguments: Sequence[str]) -> tuple[int, str, str]:
        """As `Machine.command`."""
        ref = self._actor(f"{MACHINE}{kept.node}").command.remote(list(arguments))
        done: tuple[int, str, str] = self._answer(ref, COMMAND_S + ASK_S)
        return done

    def stop(self, timeout_s: float) -> list[str]:
        """Ends the pools, after they have finished their jobs, and all actors. Returns who had to be killed."""
        keeper = self._keeper()
        killed: list[str] = self._answer(keeper.stop.remote(timeout_s), timeout_s + KILL_MARGIN_S)
        ray.kill(keeper)
        return killed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ray.shutdown()

    def _keeper(self) -> Any:
        return self._actor(KEEPER)

    def _actor(self, name: str) -> Any:
        try:
            return ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            what = "this cluster has no pools; `pool start --ray` places them"
            raise PoolUnreachable(what if name == KEEPER else "the machine's pool is gone") from None
        except RayError as error:
            raise PoolUnreachable(f"the cluster's head does not answer: {error}") from None

    def _answer(self, ref: Any, timeout_s: float) -> Any:
        try:
            return ray.get(ref, timeout=timeout_s)
        except GetTimeoutError:
            raise PoolUnreachable(f"the cluster did not answer within {timeout_s:g} s") from None
        except RayError as error:
            raise PoolUnreachable(f"the cluster did not answer: {error}") from None


def _knock(address: str) -> None:
    """Ray looks for a head for two minutes. Raises `OSError` where nobody listens."""
    host, _, port = address.rpartition(":")
    if host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCK_S).close()
