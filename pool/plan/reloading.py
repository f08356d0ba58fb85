"""Who asks for a reload, and what they, the log and the service manager are told of it."""

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from pool.logs import about, callers
from pool.plan.plan import Plan
from pool.plan.reloads import NO_FILE, Outcome, Reloaded, Reloads
from pool.plan.selection import Found, entered
from pool.plan.wishes import RELOAD, Wish, wish_of
from pool.router.front import Question
from pool.systemd.notify import Notifier

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["Reloading"]

log = logging.getLogger("pool")

STOPPING = "the pool is stopping"


class Reloading:
    """Used from the pool's loop."""

    def __init__(
        self,
        reloads: Reloads | None,
        notifier: Notifier,
        serves: Callable[[], bool],
        stops: Callable[[], bool],
        reply: Callable[[Question, dict[str, Any] | None, str | None], None],
        adopt: Callable[[Reloaded, Wish], list[int]],
        unfit: Callable[[Wish], None],
    ) -> None:
        """`reloads` None: there is no file. `reply` has a value or an error; `adopt` returns who gets new workers.

        `unfit` is told of versions that were found and cannot be served.

        `serves`: whether the service manager was told that the pool is ready.
        """
        self._reloads = reloads
        self._notifier = notifier
        self._serves = serves
        self._stops = stops
        self._reply = reply
        self._adopt = adopt
        self._unfit = unfit

    def ask(self, question: Question | None) -> None:
        """Of a client, or of a signal."""
        reloads = self._reloads
        try:
            wish = RELOAD if question is None else wish_of(question.what, question.about)
        except ValueError as error:
            wish, why = RELOAD, str(error)
        else:
            unread = reloads is None or (wish == RELOAD and not reloads.has_file)
            why = STOPPING if self._stops() else NO_FILE if unread else ""
        if reloads is not None and not why:
            reloads.ask(wish, question)
            if self._serves():
                self._notifier.reloading("reads the configuration again", time.monotonic_ns() // 1000)
            return
        if question is None:
            log.warning("not reloaded: %s", why, extra=about("not_reloaded", reason=why))
        else:
            self._reply(question, None, why)

    def settings_of(self, plan: Plan) -> "Settings | None":
        """By which the plan was made, with an entry for each of its models; None where nobody knows them."""
        if self._reloads is None:
            return None
        return entered(self._reloads.settings, plan.versions, [model.name for model in plan.models])

    def found(self, versions: Found, running: Plan) -> None:
        """Of models of which all versions are served, those that are to be from now on."""
        if self._reloads is not None:
            self._reloads.ask(Wish("versions", versions=versions, seen=running), None)

    @property
    def is_busy(self) -> bool:
        """Whether something is being decided that may change what is served."""
        return self._reloads is not None and self._reloads.is_busy

    def proven(self) -> None:
        """Every slot has come up with what the settings say."""
        if self._reloads is not None:
            self._reloads.proven()

    def restore(self, names: AbstractSet[str] | None) -> None:
        """A slot did not come up with what is new of these models, or, for None, of whatever: it is as before."""
        if self._reloads is not None:
            self._reloads.restore(names)

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest."""
        return None if self._reloads is None else self._reloads.next_deadline(now)

    def tend(self, running: Plan, towards: Plan) -> None:
        """`towards`: what follows the running plan, or that one itself."""
        if self._reloads is None:
            return
        for outcome in self._reloads.tend(running, towards):
            self._settle(
                self._reloads, Outcome(outcome.wish, outcome.askers, None, STOPPING) if self._stops() else outcome
            )

    def _settle(self, reloads: Reloads, outcome: Outcome) -> None:
        if outcome.found is None:
            answer: dict[str, Any] = {"refused": outcome.refusal}
            what = "not reloaded" if outcome.wish.versions is None else "versions that came are not served"
            asked = outcome.wish.what in ("load", "unload")  # else it is about files: whoever reads the log has them
            for line in [callers(outcome.refusal)] if asked else outcome.refusal.splitlines():
                log.error("%s: %s", what, line, extra=about("not_reloaded", reason=line))
            if outcome.wish.versions is not None:
                self._unfit(outcome.wish)
        else:
            reloads.adopted(outcome.found)
            answer = _told(outcome.found, self._adopt(outcome.found, outcome.wish))
        for question in outcome.askers:
            if question is not None:
                self._reply(question, answer, None)
        if self._serves() and not self._stops():
            self._notifier.ready("not reloaded, see the log" if outcome.found is None else "reloaded")


def _told(found: Reloaded, slots: list[int]) -> dict[str, Any]:
    """For who asked, and for the log."""
    for change in found.changes:
        log.info("reloaded: %s", change.line, extra=about("reloaded", key=change.key))
    if slots:
        text = "reloaded: slots %s get new workers, one after the other"
        log.info(text, ", ".join(map(str, slots)), extra=about("reload_rolls", slots=slots))
    elif not found.changes:
        log.info("reloaded: nothing is another than before", extra=about("reloaded"))
    changes = [
        {"key": change.key, "before": change.before, "after": change.after, "line": change.line}
        for change in found.changes
    ]
    return {"changes": changes, "slots": slots}
