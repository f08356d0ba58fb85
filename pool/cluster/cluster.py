"""A Ray cluster as somebody sees it who is no part of it: its pools are placed, looked at, and ended.

Ray ends any process that has connected to it a minute after the cluster's head is lost. So commands connect,
but never a pool or a caller's program. Clients read the list of pools, which is in `pool.cluster.directory`.
"""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import ray
from ray.exceptions import GetTimeoutError, RayError

from pool.cluster.directory import knock
from pool.cluster.keeper import KEEPER, MACHINE, NAMESPACE, Keeper, Kept, Placing
from pool.errors import InvalidState, PoolUnreachable

__all__ = ["Cluster"]

# What Ray counts on the head's machine alone. An affinity does not do: Ray places an actor without resources anywhere.
ON_HEAD = {"node:__internal_head__": 0.001}
ASK_S = 10.0
LOOK_S = 1.0
KILL_MARGIN_S = 30.0  # until Ray has ended all actors


class Cluster:
    """Used in a `with` block, one at a time in a process. Every method raises `PoolUnreachable` where Ray is silent."""

    def __init__(self, address: str) -> None:
        """`address`: "HOST:PORT" of the head; "auto": $RAY_ADDRESS, else the cluster that this machine belongs to."""
        try:
            knock(address)
            ray.init(address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        except (RayError, OSError, RuntimeError, ValueError) as error:
            # Ray has found no process of its own here.
            where = (
                "; this machine must be one of the cluster's" if type(error) in (ConnectionError, ValueError) else ""
            )
            raise PoolUnreachable(f"no Ray cluster at {address}: {error}{where}") from None

    def place(self, placing: Placing) -> None:
        """From now on the cluster has pools. Raises `InvalidState` where it has some."""
        options = {"namespace": NAMESPACE, "lifetime": "detached", "max_restarts": -1, "num_cpus": 0}
        try:
            # Where it lives, the head is: else a machine that is cut off could take it along.
            made = ray.remote(Keeper).options(name=KEEPER, max_concurrency=16, resources=ON_HEAD, **options)
            keeper = made.remote(placing)
        except ValueError:  # of the name
            right = "`pool status --cluster` shows them, `pool stop --cluster` ends them"
            raise InvalidState(f"this cluster has its pools already; {right}") from None
        self._answer(keeper.machines.remote(), ASK_S * 6)

    def machines(self) -> tuple[Kept, ...] | None:
        """Those that are to have a pool, in the order of their addresses; None while that is not known yet."""
        found = self._answer(self._keeper().machines.remote(), ASK_S)
        return None if found is None else tuple(sorted(found, key=lambda kept: (kept.host, kept.node)))

    def command(self, kept: Kept, arguments: Sequence[str]) -> tuple[int, str, str]:
        """As `Machine.command`, which takes what it takes. A machine that does not answer meanwhile is given up."""
        actor = self._actor(f"{MACHINE}{kept.node}")
        # Else one that hangs now would run it whenever it goes on.
        self._answer(actor.tell.remote(), ASK_S, "the machine")
        ref = actor.command.remote(list(arguments))
        while not ray.wait([ref], timeout=LOOK_S)[0]:
            self._answer(actor.tell.remote(), ASK_S, "the machine")
        done: tuple[int, str, str] = self._answer(ref, ASK_S, "the machine")
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

    def _answer(self, ref: Any, timeout_s: float, who: str = "the cluster") -> Any:
        try:
            return ray.get(ref, timeout=timeout_s)
        except GetTimeoutError:
            raise PoolUnreachable(f"{who} did not answer within {timeout_s:g} s") from None
        except RayError as error:
            first, *_ = str(error).strip().splitlines()  # names of Ray's own follow
            raise PoolUnreachable(f"{who} did not answer: {first}") from None
