"""What people and clients ask the pool: status, models, logs, and to stop. Rare, so it may cost what it costs."""

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Set
from typing import Any

from pool.config import Config
from pool.core.failures import Refused
from pool.core.jobs import Counts
from pool.core.scheduler import Scheduler
from pool.core.slots import SlotState
from pool.log import Log
from pool.serve.clients import Client
from pool.serve.fleet import Fleet, Seat
from pool.wire import RELEASE
from pool.wire.bodies import HEAD, Body, Kind, failure, pack, unpack
from pool.wire.signatures import choice
from pool.wire.specs import BadMessage

__all__ = ["Questions"]

MOST_WAITING = 1000
RATE_S = 10.0
COMING = (SlotState.STARTING, SlotState.LOADING)

log = logging.getLogger("pool.serve")

Waiting = tuple[float, bytes, int, str]


class Questions:
    def __init__(
        self,
        config: Config,
        endpoint: str,
        scheduler: Scheduler,
        fleet: Fleet,
        clients: Set[Client],
        kept: Log,
        tell: Callable[[bytes, bytes], None],
        stop: Callable[[], None],
    ) -> None:
        """`tell(route, body)` sends; `stop` begins to stop the pool."""
        self._config, self._endpoint, self._started = config, endpoint, time.monotonic()
        self._scheduler, self._fleet, self._clients, self._log = scheduler, fleet, clients, kept
        self._tell, self._stop_pool = tell, stop
        self._waiting: list[Waiting] = []
        """For a model that nobody has loaded yet: until when, who, which question, which model."""
        self._rates: deque[tuple[float, dict[str, int]]] = deque(maxlen=int(RATE_S) + 1)
        self._answers: dict[str, Callable[[Client, dict[str, Any], float], object]] = {
            "status": self._status,
            "models": self._models,
            "logs": self._logs,
            "stop": self._stop,
        }

    def ask(self, client: Client, route: bytes, body: Body, now: float) -> None:
        """Raises `BadMessage` for what is no question."""
        match unpack(body.whole[len(body.whole) - (body.ends - body.begins) :]):
            case [str() as name, dict() as arguments]:
                pass
            case _:
                raise BadMessage("a question without name and arguments")
        try:
            if name == "model":
                self._ask_model(route, body, str(arguments.get("name", "")), now)
                return
            if name not in self._answers:
                raise Refused("InvalidInput", f"the pool does not know the question {name!r:.80}")
            self._reply(route, body.job, self._answers[name](client, arguments, now))
        except Refused as refused:
            self._tell(route, failure(body.job, refused.error, refused.text))
        except Exception as error:  # whoever looks must not end what he looks at
            log.exception("the question %r was not answered", name)
            self._tell(route, failure(body.job, "PoolError", f"{type(error).__name__}: {error}"))

    def forget(self, route: bytes) -> None:
        if self._waiting:
            self._waiting = [each for each in self._waiting if each[1] != route]

    def expire(self, now: float) -> None:
        if not self._rates or now - self._rates[-1][0] >= 1.0:
            done = {name: model.counts.answered for name, model in self._scheduler.models.items()}
            self._rates.append((now, done))
        for each in [each for each in self._waiting if each[0] <= now]:
            self._waiting.remove(each)
            text = f"no worker has loaded the model {each[3]!r} yet"
            self._tell(each[1], failure(each[2], "DeadlineExceeded", text))

    def models_changed(self) -> None:
        """A model is READY, or cannot be loaded: whoever waits for it hears of it."""
        waiting, self._waiting = self._waiting, []
        for until, route, number, name in waiting:
            self._answer_model(route, number, name, until)
        for name in self._fleet.models:
            if why := self.why_unserved(name):
                self._scheduler.give_up(name, why)
                for client in self._clients:
                    client.account.calls.clear()  # the next job of each is told so at once

    # --- models -------------------------------------------------------------------------------------------------

    def why_unserved(self, name: str) -> str:
        """Why no slot will serve the model; "" as long as one does or may."""
        facts = self._fleet.models[name]
        seats = [seat for seat in self._fleet.seats if name in seat.models]
        texts = []
        for seat in seats:
            failed = facts.failed.get(seat.slot.number)
            if seat.slot.state is SlotState.FATAL:
                texts.append(failed or f"slot {seat.slot.number} is FATAL: {seat.slot.reason}")
            elif failed and seat.worker is not None and seat.worker.core is not None:
                texts.append(failed)
            else:
                return ""
        return texts[0] if texts else "no slot has it among its models"

    def _ask_model(self, route: bytes, body: Body, name: str, now: float) -> None:
        if name not in self._fleet.models:
            known = choice(name, self._fleet.models)
            raise Refused("ModelNotFound", f"the pool serves no model {name!r:.80}; {known}")
        if len(self._waiting) >= MOST_WAITING:
            raise Refused("Overloaded", "too many ask for models that are not loaded yet")
        self._answer_model(route, body.job, name, now + body.seconds)

    def _answer_model(self, route: bytes, number: int, name: str, until: float) -> None:
        if self._ready_slots(name):
            self._reply(route, number, self._described(name))
        elif why := self.why_unserved(name):
            self._tell(route, failure(number, "ModelFailed", why))
        else:
            self._waiting.append((until, route, number, name))

    def _ready_slots(self, name: str) -> list[int]:
        return [
            seat.slot.number
            for seat in self._fleet.seats
            if seat.slot.state is SlotState.READY and seat.worker is not None and name in seat.worker.loaded
        ]

    def _described(self, name: str) -> dict[str, Any]:
        facts = self._fleet.models[name]
        return {
            "name": name,
            "path": facts.settings["path"],
            "batching": facts.settings["batching"],
            "is_stateful": facts.is_stateful,
            "signatures": facts.signatures,
            "left_out": facts.left_out,
            "notes": facts.notes,
            "slots": self._ready_slots(name),
            "why": self.why_unserved(name),
        }

    def _models(self, client: Client, arguments: dict[str, Any], now: float) -> object:  # noqa: ARG002
        return [self._described(name) for name in self._fleet.models]

    # --- status -------------------------------------------------------------------------------------------------

    def _status(self, client: Client, arguments: dict[str, Any], now: float) -> object:  # noqa: ARG002
        scheduler, queue = self._scheduler, self._config.queue
        slots = [self._slot(seat, now) for seat in self._fleet.seats]
        models = [self._model(name, now) for name in self._fleet.models]
        return {
            "pool": {
                "pid": os.getpid(),
                "release": RELEASE,
                "endpoint": self._endpoint,
                "state": self.state,
                "uptime_s": now - self._started,
            },
            "slots": slots,
            "models": models,
            "queue": {
                "jobs": scheduler.jobs,
                "bytes": scheduler.nbytes,
                "max_jobs": queue.max_jobs,
                "max_bytes": queue.max_bytes,
            },
            "clients": len(self._clients),
            "deaths": self._fleet.deaths[-10:],
        }

    @property
    def state(self) -> str:
        """STARTING until all slots have come up or failed, then READY, or DEGRADED if something is missing."""
        if not self._scheduler.is_taking:
            return "DRAINING"
        slots = [seat.slot for seat in self._fleet.seats]
        if any(slot.state in COMING and slot.incarnation == 1 for slot in slots):
            return "STARTING"
        if all(slot.state is SlotState.READY for slot in slots):
            return "DEGRADED" if any(facts.failed for facts in self._fleet.models.values()) else "READY"
        return "DEGRADED"

    def _slot(self, seat: Seat, now: float) -> dict[str, Any]:
        slot, worker = seat.slot, seat.worker
        failed = {
            name: facts.failed[slot.number] for name, facts in self._fleet.models.items() if slot.number in facts.failed
        }
        return {
            "slot": slot.number,
            "device": seat.device.label,
            "uuids": seat.device.uuids,
            "pid": worker.process.pid if worker is not None else None,
            "state": slot.state.name,
            "for_s": now - slot.since,
            "models": sorted(worker.loaded) if worker is not None else [],
            "failed": failed,
            "phase": worker.phase if worker is not None else "",
            "doing": self._doing(seat, now),
            "jobs": seat.jobs,
            "restarts": max(0, slot.incarnation - 1),
            "why": slot.reason if slot.state is not SlotState.READY else "",
        }

    def _doing(self, seat: Seat, now: float) -> str:
        worker = seat.worker
        if worker is None:
            return ""
        if worker.core is None:
            return worker.phase
        running = [
            f"{len(batch.jobs)} of {batch.model.name} for {now - batch.began:.1f} s"
            for batch in worker.core.running.values()
        ]
        return "runs " + ", ".join(running) if running else "idle"

    def _model(self, name: str, now: float) -> dict[str, Any]:
        model = self._scheduler.models[name]
        counts = model.counts
        ready, why = self._ready_slots(name), self.why_unserved(name)
        live = counts.accepted - counts.answered - counts.cancelled - sum(counts.failed.values())
        running = sum(
            len(batch.jobs)
            for worker in self._scheduler.workers
            for batch in worker.running.values()
            if batch.model is model
        )
        return {
            "name": name,
            "state": "READY" if ready else "FAILED" if why else "LOADING",
            "why": why,
            "waiting": max(0, live - running),
            "running": running,
            "done": counts.answered,
            "failed": sum(counts.failed.values()),
            "errors": counts.failed,
            "refused": counts.refused,
            "joined": counts.joined,
            "rate": self._rate(name, counts, now),
            "p50_s": quantile(counts.run_times, 0.5),
            "p99_s": quantile(counts.run_times, 0.99),
            "slots": ready,
        }

    def _rate(self, name: str, counts: Counts, now: float) -> float:
        """Jobs answered a second, over the last ten."""
        if not self._rates or now <= self._rates[0][0]:
            return 0.0
        before, done = self._rates[0]
        return (counts.answered - done.get(name, 0)) / (now - before)

    # --- the rest -----------------------------------------------------------------------------------------------

    def _logs(self, client: Client, arguments: dict[str, Any], now: float) -> object:  # noqa: ARG002
        self._only_owner(client, "logs")
        since = arguments.get("since", 0)
        lines = self._log.since(since if type(since) is int else 0)
        return {"lines": lines, "next": lines[-1][0] if lines else since}

    def _stop(self, client: Client, arguments: dict[str, Any], now: float) -> object:  # noqa: ARG002
        self._only_owner(client, "stop")
        self._stop_pool()
        return {}

    def _only_owner(self, client: Client, what: str) -> None:
        if not client.is_owner:
            raise Refused("NotAllowed", f"uid {client.uid} may submit jobs and ask, but {what} is for the pool's user")

    def _reply(self, route: bytes, number: int, value: object) -> None:
        data = pack(value)
        head = HEAD.pack(Kind.REPLY, 0, 0, 0, 0, len(data), number, 0.0, 0.0)
        self._tell(route, head + data)


def quantile(histogram: list[int], share: float) -> float | None:
    """Seconds, to a factor of 1.5, from buckets that double; None if nothing was counted."""
    total = sum(histogram)
    if not total:
        return None
    seen = 0
    for index, count in enumerate(histogram):
        seen += count
        if seen >= math.ceil(total * share):
            return 0.75 * float(1 << index) / 1e6
    return None
