"""What clients ask the pool itself, and its answers."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from pool.core import Machine
from pool.core.events import DrainAsked, Event, RestartAsked, StopAsked
from pool.core.fleet import SlotState
from pool.devices import Device, Reading
from pool.logs import about, since
from pool.plan import Answer, request_of
from pool.processes import RESTART_NEEDED
from pool.recorder import Recorder
from pool.serve.front import Front, Question
from pool.serve.offers import offers
from pool.serve.refusals import count
from pool.serve.sight import explained_for, metrics_for, models_for, sees, status_for
from pool.serve.standing import Standing, other_models
from pool.serve.status import model_counts, models_status, pool_status, slot_status
from pool.wire.faults import Fault
from pool.wire.rights import RIGHTS, needed
from pool.wire.signatures import Refused

__all__ = ["Admin"]

log = logging.getLogger("pool")

SLOT = "slot:"  # and its number, in place of a job's
ROLLING = "rolling"  # after a slot's number: one of many that are restarted in turn


class Admin:
    def __init__(
        self,
        machine: Machine,
        devices: Sequence[Device],
        readings: Callable[[int], Sequence[Reading]],
        front: Front,
        recorder: Recorder,
        feed: Callable[[Event], None],
        pool: Callable[[], dict[str, Any]],
        reload: Callable[[str, str, Answer], None],
        remarks: Callable[[str], list[str]],
    ) -> None:
        """`feed` tells the core; `pool` is what the status says of the pool as a whole; `reload` calls the answer.

        `remarks`: what workers have found odd about a model.
        """
        self._machine = machine
        self._devices = devices
        self._readings = readings
        self._front = front
        self._recorder = recorder
        self._feed = feed
        self._pool = pool
        self._reload = reload
        self._remarks = remarks

    def answer(self, question: Question) -> None:
        """Whatever goes wrong with it, its asker is told, and nobody else hears of it."""
        try:
            self._answer(question)
        except Refused as refused:
            self._front.reply(question, refused)
        except Exception as error:
            kind = f"the pool failed to answer this question: {type(error).__name__}"
            what = f"{kind}: {error}"
            if count(self._front.refused, kind):
                log.error("%s", what, exc_info=error, extra=about("question_failed", reason=what))
            self._front.reply(question, Refused(what, Fault.POOL_FAILED))

    def _answer(self, question: Question) -> None:
        """Raises `Refused`."""
        who = question.standing
        if question.what in RIGHTS and question.what not in who.may:
            raise Refused(needed(question.what, question.what), Fault.NOT_ALLOWED)
        match question.what:
            case "status":
                self._front.reply(question, status_for(who, self._status()))
            case "metrics":
                counts, nameless = model_counts(self._machine), dict(self._machine.answered_nameless)
                told = {"status": self._status(), "models": counts, "nameless": nameless}
                self._front.reply(question, metrics_for(who, told))
            case "models":
                found = self._pool()
                away, unloadable = found["failover"]["away"], found["unloadable"]
                models = models_status(self._machine, away, unloadable, self._remarks, time.monotonic())
                self._front.reply(question, models_for(who, models))
            case "offers":
                self._front.reply(question, offers(self._machine, question.about, who))
            case "explain" if question.about.startswith(SLOT):
                self._front.reply(question, self._explain_slot(question))
            case "explain":
                self._front.reply(question, self._explain(question.about, who))
            case "logs":
                self._front.reply(question, _logs(question.about))
            case "restart" | "drain":
                self._front.reply(question, self._change_slot(question))
            case "stop":
                self._front.reply(question)
                self._feed(StopAsked("a client requested it"))
            case "load" | "unload" if not sees(who, name := _named(question)):
                raise Refused(other_models(who, question.what, name), Fault.NOT_ALLOWED)
            case "reload" | "load" | "unload":
                self._reload(question.what, question.about, partial(self._front.reply, question))
            case other:
                raise Refused(f"this pool does not know how to answer {other!r:.40}", Fault.NOT_UNDERSTOOD)

    def _status(self) -> dict[str, Any]:
        connections = self._front.connections()
        return pool_status(self._machine, self._devices, self._readings, time.monotonic(), self._pool(), connections)

    def _change_slot(self, question: Question) -> dict[str, int]:
        """The answer to a restart is the incarnation that is to follow."""
        fleet, (asked, _, how) = self._machine.fleet, question.about.partition(" ")
        if how not in ("", ROLLING):
            raise Refused(f"{how!r:.40} is not a change of a slot")
        if not _is_number(asked):
            raise Refused(f"{asked!r:.40} is not a slot number")
        slot, restart = int(asked), question.what == "restart"
        why = fleet.replacements.cannot_restart(slot) if restart else fleet.replacements.cannot_drain(slot)
        in_vain = restart and any(other.waits_for_release for other in fleet.slots)
        if why is None and in_vain and fleet.slots[slot].state is SlotState.READY:
            why = f"slot {slot} keeps its worker, because a new one could not start: {RESTART_NEEDED}"
        if why is not None:
            raise Refused(why, Fault.INVALID_INPUT if slot >= len(fleet.slots) else Fault.INVALID_STATE)
        incarnation = fleet.slots[slot].worker.incarnation
        extra = about(f"{question.what}_asked", slot=slot, incarnation=incarnation)
        log.info("slot %d: %s requested", slot, question.what, extra=extra)
        follows = fleet.slots[slot].named + 1
        self._feed(RestartAsked(slot, sparing=how == ROLLING) if restart else DrainAsked(slot))
        return {"slot": slot, "incarnation": follows} if restart else {"slot": slot}

    def _explain(self, asked: str, who: Standing) -> dict[str, Any]:
        history = self._machine.explain(asked)
        if history is not None and not asked:
            history["deaths"] = self._recorder.deaths()
        if (told := explained_for(who, history)) is None:
            raise Refused(f"this pool knows no job {asked!r:.40}; it remembers only recent jobs, by its own numbers")
        return told

    def _explain_slot(self, question: Question) -> dict[str, Any]:
        """A worker's output may have anything in it, so it is told as the log is."""
        asked, slots = question.about.removeprefix(SLOT), self._machine.fleet.slots
        if "logs" not in question.standing.may:
            raise Refused(needed("a question about crash reports", "logs"), Fault.NOT_ALLOWED)
        if not (_is_number(asked) and int(asked) < len(slots)):
            raise Refused(f"there is no slot {asked!r:.40}; the last is {len(slots) - 1}")
        number, now = int(asked), time.monotonic()
        return {
            "slot": slot_status(self._machine, self._devices[number], number, self._readings(number), now),
            "crash_reports": self._recorder.reports(number),
            "folder": self._recorder.folder(),
        }


def _named(question: Question) -> str:
    """The model that is to come or go; "" for what names none, and is refused for that."""
    try:
        return request_of(question.what, question.about).model
    except ValueError:
        return ""


def _logs(after: str) -> dict[str, Any]:
    if not _is_number(after):
        raise Refused(f"{after!r:.40} is not a number of a line")
    found = since(int(after))
    return {"last": found[-1][0] if found else int(after), "lines": [asdict(entry) for _, entry in found]}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
