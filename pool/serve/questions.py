"""What people and clients ask the pool. Rare, so it may cost what it costs."""

import logging
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

from pool.core.jobs import Counts, Model
from pool.core.scheduler import Refused
from pool.core.slots import SlotState
from pool.log import Log
from pool.plan.rollout import Seat
from pool.serve.changes import Changes, Progress
from pool.serve.door import Door
from pool.serve.fleet import Fleet
from pool.serve.sockets import Answers, Client
from pool.wire import RELEASE
from pool.wire.bodies import HEAD, Body, Kind, failure, pack, plain
from pool.wire.records import LoadRecord, ModelRecord, SlotRecord, Status
from pool.wire.signatures import signature_name
from pool.wire.specs import BadMessage, unpack

LATELY_S = 60
MOST_TRACES = 100
MOST_WAITING, MOST_BYTES = 1000, 16 << 10  # questions without an answer; of one
GPU_FACTS = ("used_bytes", "total_bytes", "utilization", "temperature")
Question = tuple[bytes, int, str, Iterator[object], float]  # route, number, name, what answers it, and until when

log = logging.getLogger("pool.serve")


class Questions:
    def __init__(
        self, fleet: Fleet, changes: Changes, door: Door, kept: Log, stop: Callable[[], None], outbox: Answers
    ) -> None:
        self._fleet, self._scheduler, self._changes, self._door = fleet, fleet.scheduler, changes, door
        self._log, self._stop, self._outbox, self._started = kept, stop, outbox, time.monotonic()
        self._waiting: list[Question] = []  # without an answer
        self._numbers = 0  # of traced runs
        self._counted: deque[tuple[float, dict[Model, Counts]]] = deque([(self._started, {})], maxlen=LATELY_S + 1)

    def count(self, now: float) -> bool:
        """Once a second: what was counted, for the figures of the last minute. False: it is too early."""
        if is_time := now - self._counted[-1][0] >= 1.0:
            counts = [(model, model.counts) for model in self._scheduler.models.values()]
            kept = {model: replace(c, failed=Counter(c.failed), run_times=c.run_times.copy()) for model, c in counts}
            self._counted.append((now, kept))
        return is_time

    def ask(self, client: Client, route: bytes, body: Body, now: float) -> None:
        """Answers at once, or in `ask_again`. Raises `BadMessage`."""
        if len(body.whole) > MOST_BYTES:
            raise BadMessage("a question that is too long")
        match unpack(body.whole[HEAD.size :]):
            case [str() as name, dict() as arguments]:
                self._answer((route, body.job, name, self._answers(client, name, arguments), now + body.seconds), now)
            case _:
                raise BadMessage("a question without name and arguments")

    def ask_again(self, now: float) -> None:
        """On news, and in time to end those whose time is over."""
        waiting, self._waiting = self._waiting, []
        for question in waiting:
            if question[0] in self._fleet.peers:
                self._answer(question, now)

    def _answer(self, question: Question, now: float) -> None:
        route, number, name, answers, until = question
        try:
            answer = next(answers)
            if answer is None and now >= until:
                raise Refused("DeadlineExceeded", f"the question {name!r:.80} has no answer yet: see `pool status`")
            if answer is None and len(self._waiting) >= MOST_WAITING:
                raise Refused("Overloaded", "too many ask for what is not there yet")
            if answer is None:
                self._waiting.append(question)
                return
            said = plain(Kind.REPLY, number, pack(answer))
        except Refused as refused:
            said = failure(number, refused.error, refused.text)
        except Exception as error:  # whoever looks must not end what he looks at
            log.exception("the question %r was not answered", name)
            said = failure(number, "PoolError", f"{type(error).__name__}: {error}")
        self._outbox[route].append(said)

    def _answers(self, client: Client, name: str, arguments: dict[str, Any]) -> Iterator[object]:
        """None as long as there is no answer, and is to be asked for again on news; then the answer. Raises `Refused`.

        A change goes on if nobody waits for it any more.
        """
        if name in ("logs", "stop", "change", "placement") and not client.is_owner:
            raise Refused("NotAllowed", f"uid {client.uid} may submit jobs and ask, but {name} is for the pool's user")
        match name:
            case "change":
                request = self._changes.ask(str(arguments.get("what")), arguments)
                while request.progress is not Progress.OVER:
                    yield None
                if request.error is not None:
                    raise Refused(*request.error)
                names, why = {*self._fleet.plan.models, *self._fleet.plan.missing}, self._fleet.why_unserved
                yield {"lines": request.lines + [f"{n} is not served: {why(n)}" for n in sorted(names) if why(n)]}
            case "placement":
                yield from self._placement(str(arguments.get("name")), str(arguments.get("signature") or ""))
            case "status":
                yield self._status(time.monotonic())
            case "models":
                yield [self._described(model) for model in self._fleet.plan.models]
            case "model":
                while not (found := self._loaded(str(arguments.get("name", "")))):
                    yield None
                yield found
            case "is_ready":
                yield all(map(self._fleet.serving, self._fleet.plan.models)) and not self._fleet.plan.missing
            case "ready":
                one, fleet = arguments.get("name"), self._fleet
                while not all(map(self._loaded, [str(one)] if one else [*fleet.plan.models, *fleet.plan.missing])):
                    yield None
                yield True
            case "logs":
                since = arguments.get("since")
                lines = self._log.since(since if type(since) is int else 0)
                yield {"lines": lines, "next": lines[-1][0] if lines else since}
            case "stop":
                self._stop()
                yield {}
            case _:
                raise Refused("InvalidInput", f"the pool does not know the question {name!r:.80}")

    def _placement(self, model: str, signature: str) -> Iterator[object]:
        """What a worker says of a traced run."""
        name = self._fleet.served_as(model)
        seats = [seat for seat in self._fleet.seats if seat.serves(name)]
        if not seats or (worker := seats[0].worker) is None or len(worker.traces) >= MOST_TRACES:
            raise Refused("Overloaded", f"no worker that serves {name} can trace a run now")
        try:
            signature = signature_name(signature, self._fleet.models[name]["signatures"])
        except LookupError as error:
            raise Refused("InvalidInput", str(error)) from None
        self._numbers = number = self._numbers + 1
        worker.traces[number] = None
        self._fleet.tell(worker, {"trace": number, "model": name, "signature": signature})
        try:
            while worker.seat.worker is worker and worker.traces[number] is None:
                yield None
            said = worker.traces[number] or {"error": "the worker ended while it traced a run"}
        finally:
            del worker.traces[number]
        if "error" in said:
            raise Refused("ModelFailed", str(said["error"]))
        about = {"slot": worker.seat.number, "device": worker.seat.device.label}
        yield about | {"models": [*worker.seat.told["models"]], "devices": said.get("devices")}

    def _loaded(self, asked: str) -> object:
        described = self._described(self._fleet.served_as(asked))
        if why := described["why"]:
            raise Refused("ModelFailed", why)
        return described if described["slots"] else None

    def _described(self, model: str) -> ModelRecord:
        fleet, known = self._fleet, self._fleet.models[model]
        return cast(ModelRecord, known | {"slots": fleet.serving(model), "why": fleet.why_unserved(model)})

    def _status(self, now: float) -> Status:
        scheduler, fleet = self._scheduler, self._fleet
        since = scheduler.waiting_since()
        return {
            "pool": {
                "pid": os.getpid(),
                "release": RELEASE,
                "endpoint": fleet.address,
                "state": fleet.state,
                "uptime_s": now - self._started,
            },
            "slots": [self._slot(seat, now) for seat in sorted(fleet.seats, key=lambda seat: seat.number)],
            "away": sorted(fleet.plan.facts.away),
            "models": [self._model(name, now, since) for name in fleet.models],
            "missing": dict(fleet.plan.missing),
            "changes": [
                {"what": each.what, "progress": each.progress.name, "lines": each.lines}
                for each in self._changes.requests
            ],
            "queue": {
                "jobs": scheduler.jobs,
                "bytes": scheduler.nbytes,
                "max_jobs": fleet.config.queue.max_jobs,
                "max_bytes": fleet.config.queue.max_bytes,
            },
            "clients": sum(isinstance(peer, Client) for peer in {*fleet.peers.values()}),
            "door": {"pid": self._door.pid, "addresses": self._door.addresses},
            "deaths": [{"slot": slot, "ago_s": now - when, "why": why} for when, slot, why in fleet.deaths],
        }

    def _slot(self, seat: Seat, now: float) -> SlotRecord:
        slot, worker = seat.slot, seat.worker
        levels, doing = self._fleet.monitor.gpus, worker.phase if worker is not None else ""
        if worker is not None and worker.core is not None:
            batches = worker.core.running.values()
            runs = [f"{len(each.jobs)} of {each.model.name} for {now - each.began:.1f} s" for each in batches]
            doing = "runs " + ", ".join(runs) if runs else "idle"
        return {
            "slot": slot.number,
            "device": seat.device.label,
            "uuids": seat.device.uuids,
            "gpus": [
                {"uuid": uuid} | {name: getattr(levels.get(uuid), name, None) for name in GPU_FACTS}
                for uuid in seat.device.uuids
            ],
            "pid": worker.pid if worker is not None else None,
            "state": slot.state.name,
            "for_s": now - slot.since,
            "models": sorted(worker.loaded) if worker is not None else [],
            "versions": {name: [each["version"], each["files"]] for name, each in seat.told["models"].items()},
            "failed": seat.failed,
            "doing": doing,
            "busy": len(worker.core.running) if worker and worker.core else 0,
            "jobs": seat.jobs,
            "restarts": max(0, slot.incarnation - 1),
            "deaths": self._fleet.death_causes[slot.number],
            "why": slot.reason if slot.state is not SlotState.READY else "",
        }

    def _model(self, name: str, now: float, waiting_since: dict[Model, float]) -> LoadRecord:
        model = self._scheduler.models[name]
        counts = model.counts
        ready = self._fleet.serving(name)
        why = self._fleet.why_unserved(name) if name in self._fleet.plan.models else "it is served no more"
        batches = [batch for worker in self._scheduler.workers for batch in worker.running.values()]
        running = sum(len(batch.jobs) for batch in batches if batch.model is model)
        since, counted = self._counted[0]
        before = counted.get(model) or Counts()
        run_times = [count - old for count, old in zip(counts.run_times, before.run_times, strict=True)]
        return {
            "name": name,
            "state": "READY" if ready else "FAILED" if why else "LOADING",
            "why": why,
            "waiting": max(0, self._scheduler.load_of(name) - running),
            "oldest_s": now - waiting_since.get(model, now),
            "running": running,
            "done": counts.answered,
            "cancelled": counts.cancelled,
            "failed": counts.failed.total(),
            "errors": counts.failed,
            "recent_errors": counts.failed - before.failed,
            "refused": counts.refused,
            "joined": counts.joined,
            "run_s": counts.run_s,
            "run_times": counts.run_times,
            "rate": (counts.answered - before.answered) / max(1.0, now - since),
            "p50_s": quantile(run_times, 0.5),
            "p99_s": quantile(run_times, 0.99),
            "slots": ready,
        }


def quantile(histogram: list[int], share: float) -> float | None:
    """Seconds, to a factor of 1.5, from buckets that double; None if nothing was counted."""
    wanted = math.ceil(sum(histogram) * share)
    for index, count in enumerate(histogram):
        wanted -= count
        if wanted <= 0 < count:
            return 0.75 * float(1 << index) / 1e6
    return None
