"""The one actor of a cluster that sees to its pools: where one should be and is none, it has Ray make one.

It holds nothing that it could not find again: Ray starts it anew where it dies, and it adopts the machines' actors by
their names. What ends, an actor or its pool, is one event: the actor's `await_end` returns or fails.
"""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pool.cluster.choice import Node, Wanted, choose
from pool.cluster.directory import Directory, Listed
from pool.cluster.machine import Machine, Order, Told
from pool.errors import PoolUnreachable

__all__ = ["KEEPER", "NAMESPACE", "Keeper", "Kept", "Placing"]

log = logging.getLogger("pool.cluster")

NAMESPACE = "pool"
KEEPER = "keeper"
MACHINE = "machine-"  # and the id of its node
TURN_S = 0.5
BACKOFF_S = (1.0, 30.0)  # the first pause after an end, and the longest; each doubles
EARNED_S = 60.0  # a pool that was ready for so long has not failed
ADOPT_S = 10.0  # an actor that Ray has not started yet says nothing
SILENT_S = 10.0  # who ends all pools does not wait for an actor that says nothing
RAY_PATIENCE_S = 65.0  # by default: five times 3 s, and 10 s for an answer
CALLS = 16  # of an actor at once; those that wait for an end take one each


@dataclass(frozen=True, slots=True)
class Placing:
    """The order for all machines, from `[cluster]`. `name` may hold "{node}"."""

    config: str | None
    name: str
    wanted: Wanted
    cpus: int
    hung_after_s: float


@dataclass(frozen=True, slots=True)
class Kept:
    """A machine that is to have a pool. `told`: by its actor; None while there is none that has started the pool.

    `known`: what was told when the pool served last, for clients. It stays while the machine is there: they find out by
    themselves that a pool is gone, and jobs of a model that keeps state must not change their pool with each restart.
    `reason`: why the last pool ended; "" if the present one serves.
    """

    node: str
    host: str
    told: Told | None
    known: Told | None
    reason: str

    @property
    def serves(self) -> bool:
        return self.told is not None and not self.told.waits_for


@dataclass(eq=False, slots=True)
class _Place:
    """One machine: its actor, if it has one now, and the calls to it that are not answered yet.

    `silent_s`: for so long the actor has not answered. The keeper's turns count, for it may have stood still itself.
    None: it never did, and Ray may not have started it.
    """

    node: Node
    actor: Any = None
    end: Any = None
    tell: Any = None
    told: Told | None = None
    known: Told | None = None
    silent_s: float | None = None
    ready_since: float | None = None
    failures: int = 0
    retry_at: float = 0.0
    reason: str = ""


class Keeper:
    """`machines` and `stop` may be called at any time, by several."""

    def __init__(self, placing: Placing) -> None:
        """Returns at once; Ray calls it again, with the same order, in the actor's next life."""
        self._placing = placing
        self._places: dict[str, _Place] = {}
        self._lock = threading.Lock()
        self._kept: tuple[Kept, ...] | None = None
        self._stopped = False
        self._patience_s = ray_patience_s() + placing.hung_after_s
        self._listed: list[Listed] | None = None  # in the directory
        self._machine = ray.remote(Machine)
        self._adopted = {name.removeprefix(MACHINE) for name in ray.util.list_named_actors()}
        self._adopt_until = time.monotonic() + ADOPT_S
        threading.Thread(target=self._keep, name="keeper", daemon=True).start()

    def machines(self) -> tuple[Kept, ...] | None:
        """None until each actor that a former life of this one has left was heard, or is gone."""
        return self._kept

    def stop(self, timeout_s: float) -> list[str]:
        """Drains all pools at once and ends their actors. Returns the hosts of those that had to be killed."""
        with self._lock:
            self._stopped = True
            late = self._drain(time.monotonic() + timeout_s)
            for place in self._places.values():
                self._end(place)
            self._kept = ()
            _directory().remove()
        return late

    def _drain(self, deadline: float) -> list[str]:
        """Returns the hosts of those that have not finished by then, or whose actor says nothing."""
        # One that Ray has not started yet has nothing to drain, and would not answer.
        left = {place.actor.drain.remote(): place for place in self._places.values() if place.told is not None}
        late: list[str] = []
        while left:
            done, _ = ray.wait(list(left), num_returns=len(left), timeout=TURN_S)
            for ref in done:
                del left[ref]
            asked = {place.actor.tell.remote(): ref for ref, place in left.items()}
            told, _ = ray.wait(list(asked), num_returns=len(asked), timeout=SILENT_S) if asked else ([], [])
            in_time = time.monotonic() < deadline
            heard = {asked[tell] for tell in told if in_time and not isinstance(_answer(tell), str)}
            late += [left.pop(ref).node.host for ref in left.keys() - heard]
        return late

    def _keep(self) -> None:
        while not self._stopped:
            try:
                with self._lock:
                    if not self._stopped:
                        self._turn()
            except (RayError, PoolUnreachable) as error:  # the head is away; the next turn sees
                log.warning("a turn failed: %s", error)
            except Exception:
                log.exception("a turn failed")
            time.sleep(TURN_S)

    def _turn(self) -> None:
        now = time.monotonic()
        nodes = {node["NodeID"]: _node(node) for node in ray.nodes() if node["Alive"]}
        for id_ in self._places.keys() - nodes.keys():  # it died, and its actor with it
            self._end(self._places.pop(id_))
        for node in choose(list(nodes.values()), self._places.keys() | self._adopted, self._placing.wanted):
            place = self._places.setdefault(node.id, _Place(node))
            if place.actor is None and now >= place.retry_at:
                self._place(place)
        for place in self._places.values():
            self._hear(place, now)
        unheard = [place for id_, place in self._places.items() if id_ in self._adopted and place.told is None]
        if not unheard or now > self._adopt_until:
            self._adopted.clear()
            self._kept = tuple(map(_kept, self._places.values()))
            self._list(self._kept)

    def _list(self, machines: Iterable[Kept]) -> None:
        """For clients. What a former life of this actor has listed stays until all of it was heard."""
        listed = [_listed(kept, kept.known) for kept in machines if kept.known]
        listed.sort(key=lambda each: (each.host, each.name))
        if listed != self._listed:
            _directory().write(listed)
            self._listed = listed

    def _place(self, place: _Place) -> None:
        node, placing = place.node, self._placing
        order = Order(
            config=placing.config,
            name=placing.name.replace("{node}", node.id[:8]),
            host=node.host,
            gpus=placing.wanted.gpus_on(node),
            hung_after_s=placing.hung_after_s,
        )
        # Not restarted by Ray: a second life of the actor could not see the pool of the first.
        place.actor = self._machine.options(
            name=f"{MACHINE}{node.id}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=0,
            max_concurrency=CALLS,
            num_gpus=order.gpus,
            num_cpus=placing.cpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        ).remote(order)
        place.end, place.tell, place.told = place.actor.await_end.remote(), place.actor.tell.remote(), None
        place.silent_s = 0.0 if node.id in self._adopted else None

    def _hear(self, place: _Place, now: float) -> None:
        if place.actor is None:
            return
        answered, _ = ray.wait([place.end, place.tell], num_returns=2, timeout=0)
        if place.end in answered:
            self._ended(place, _answer(place.end), now)
            return
        if place.silent_s is not None:
            place.silent_s += TURN_S
        if place.tell in answered:
            told = _answer(place.tell)
            if not isinstance(told, str):  # else its end follows
                place.silent_s = 0.0
            if isinstance(told, Told):
                place.told = told
                if not told.waits_for:
                    place.known, place.reason = told, ""
                    place.ready_since = place.ready_since or now
            place.tell = place.actor.tell.remote()
        if place.silent_s is not None and place.silent_s > self._patience_s:
            self._ended(place, f"its actor answered nothing for {place.silent_s:g} s, so it was killed", now)

    def _ended(self, place: _Place, why: object, now: float) -> None:
        served = place.ready_since is not None and now - place.ready_since >= EARNED_S
        place.failures = 1 if served else place.failures + 1
        first_s, longest_s = BACKOFF_S
        place.retry_at = now + min(longest_s, first_s * 2 ** (place.failures - 1))
        place.reason = str(why)
        log.warning("the pool on %s is over: %s", place.node.host, why)
        self._end(place)

    def _end(self, place: _Place) -> None:
        """Its name is free for the next one afterwards."""
        if place.actor is not None:
            ray.kill(place.actor)
        place.actor = place.end = place.tell = place.told = place.silent_s = place.ready_since = None


def ray_patience_s() -> float:
    """Ray gives a machine up that it has not reached for so long. One that is cut off for less keeps its pool."""
    try:
        from ray._raylet import Config  # type: ignore[attr-defined]  # compiled
    except ImportError:  # Ray promises no name there
        return RAY_PATIENCE_S
    each_ms = Config.health_check_period_ms() + Config.health_check_timeout_ms()
    return float(Config.health_check_failure_threshold() * each_ms / 1000)


def _answer(ref: Any) -> object:
    """What was answered, or in its place, as a text, why nothing was."""
    try:
        return ray.get(ref, timeout=1.0)
    except RayError as error:
        return f"its actor is gone: {str(error).strip().partition(chr(10))[0]}"


def _node(told: dict[str, Any]) -> Node:
    return Node(told["NodeID"], told["NodeManagerAddress"], int(told["Resources"].get("GPU", 0)), told["Labels"])


def _directory() -> Directory:
    return Directory(ray.get_runtime_context().gcs_address)


def _listed(kept: Kept, known: Told) -> Listed:
    name = f"{kept.host}/{Path(known.endpoint).stem}"
    return Listed(name, kept.host, known.endpoint, known.folder, known.remote[0] if known.remote else "")


def _kept(place: _Place) -> Kept:
    return Kept(place.node.id, place.node.host, place.told, place.known, place.reason)
