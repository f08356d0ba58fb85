"""New versions of the models that a running pool serves: found, tried, and given up where they are broken.

    look, in a thread ─► found ─► the plan has it, a roll begins ─┬─► every slot has it
             ▲                                                     └─► one did not come up: broken
             └── not again until its files change, or a reload is asked; the former version is found instead ──┘

One roll after the other, so that it is known what broke it. Where several models had a new version in one that broke,
each of them is tried by itself.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pool.core.versions import Versions
from pool.logs import about
from pool.plan.plan import Plan
from pool.plan.selection import Found
from pool.plan.versions import Look, Served, Stamp, look_again
from pool.wire.entries import entry_name, is_entry, model_of
from pool.wire.worker_messages import ModelSettings

__all__ = ["VersionWatch", "log_several", "log_versions"]

log = logging.getLogger("pool")

SLOW_S = 10.0  # for a look; then somebody should know
LONGEST_S = 3600.0  # between two tries of what another model keeps from coming up


@dataclass(slots=True, eq=False)
class _Looking:
    """`plan` is what was served when it began; `look` what came of it, if anything did once it has ended."""

    plan: Plan
    began: float
    has_ended: bool = False
    look: Look | None = None
    told: bool = False


class VersionWatch:
    """Used from the pool's loop, but for the looking itself."""

    def __init__(self, every_s: float | None, ring: Callable[[], None]) -> None:
        """Seconds between two looks; None: nobody looks. `ring` is called in another thread when one has ended."""
        self._every_s = every_s
        self._ring = ring
        self._next = time.monotonic() + (every_s or 0.0)
        self._looking: _Looking | None = None
        self._seen: Mapping[str, Stamp] = {}
        self._broken: dict[str, Stamp] = {}
        self._alone: list[str] = []  # paths of those that broke a roll together, and are to be tried by themselves
        self._troubles: Mapping[str, str] = {}
        self._families: Found = {}
        self._in_vain = 0  # rolls in a row that failed at something else

    def every(self, every_s: float | None) -> None:
        """Seconds between two looks from now on."""
        if every_s != self._every_s:
            self._every_s, self._next = every_s, time.monotonic() + (every_s or 0.0)

    def adopt(self, every_s: float | None) -> None:
        """A reload was asked: what was broken is to be tried again, now or in as many seconds."""
        self.every(every_s)
        self._broken.clear()
        self._in_vain = 0
        self._alone.clear()

    def refused(self, models: Collection[ModelSettings], plan: Plan) -> None:
        """New versions with which a slot did not come up. What was served before is looked for at once."""
        if self._every_s is None:
            return
        for model in models:
            served = plan.versions.get(model.name)
            self._broken[model.path] = served.stamp if served is not None and served.path == model.path else ()
            again = "is not tried again until its files change, or a reload is asked"
            if len(models) > 1:
                self._alone.append(model.path)
                again = "is tried again by itself"
            log.error(
                "model %s: version %s did not come up, and %s",
                model_of(model.name),
                model.version,
                again,
                extra=about("version_broken", model=model_of(model.name), version=model.version),
            )
        self._next = time.monotonic()

    def postpone(self) -> None:
        """A slot did not come up, and not for what is new: that is found again, after a pause that grows."""
        if self._every_s is not None:
            self._in_vain += 1
            self._next = time.monotonic() + max(self._every_s, min(LONGEST_S, self._every_s * 2.0**self._in_vain))

    def unfit(self, found: Found, plan: Plan) -> None:
        """There is no room for those of these that are new, or something else is wrong with them."""
        for model, several in found.items():
            for served in several:
                if entry_name(model, served.number) not in plan.versions:
                    self._broken[served.path] = served.stamp

    def take_families(self) -> Found:
        """Of models of which all versions are served, those that are to be from now on; once."""
        found, self._families = self._families, {}
        return found

    def next_deadline(self, now: float, rolling: bool) -> float | None:
        """When `tend` is to be called at the latest, but for what `ring` tells."""
        looking = self._looking
        if looking is not None:
            return now if looking.has_ended else None if looking.told else looking.began + SLOW_S
        return None if self._every_s is None or rolling else self._next

    def tend(self, plan: Plan, rolling: bool) -> Mapping[str, Served]:
        """By model, what is to be served from now on. While slots change their settings nothing new is found."""
        now = time.monotonic()
        if self._looking is not None:
            return self._heard(self._looking, plan, now)
        if self._every_s is not None and not rolling and now >= self._next:
            self._begin(plan, now)
        return {}

    def status(self) -> dict[str, object]:
        """For people: what is passed over, and what cannot be seen."""
        return {"broken": sorted(self._broken), "troubles": dict(self._troubles)}

    def _begin(self, plan: Plan, now: float) -> None:
        self._looking = looking = _Looking(plan, now)
        seen, broken = self._seen, dict(self._broken)
        paths = {name: path for name, path in plan.paths.items() if not is_entry(name)}

        def run() -> None:
            try:
                looking.look = look_again(paths, plan.versions, seen, broken, plan.families)
            finally:
                looking.has_ended = True
                self._ring()

        try:
            threading.Thread(target=run, name="versions", daemon=True).start()
        except RuntimeError:  # no thread can be had now
            self._looking, self._next = None, now + (self._every_s or 0.0)

    def _heard(self, looking: _Looking, plan: Plan, now: float) -> Mapping[str, Served]:
        if not looking.has_ended:
            if now >= looking.began + SLOW_S and not looking.told:
                looking.told = True
                text = "the models' folders have not answered for %g s: new versions are not seen"
                log.warning(text, SLOW_S, extra=about("versions_unseen"))
            return {}
        self._looking, self._next = None, now + (self._every_s or 0.0)
        look = looking.look
        if look is None or plan is not looking.plan:
            return {}  # it is not about what is served now
        self._seen = look.seen
        self._tell(look.troubles)
        # Other models' new versions come in a roll of their own.
        self._families = {} if look.found else look.families
        for served in (*look.found.values(), *itertools.chain.from_iterable(self._families.values())):
            self._broken.pop(served.path, None)
        if not look.found and not look.families and not look.seen:
            self._in_vain = 0
            if self._alone:
                self._broken.pop(self._alone.pop(0), None)
        return look.found

    def _tell(self, troubles: Mapping[str, str]) -> None:
        for name, trouble in troubles.items():
            if self._troubles.get(name) != trouble:
                text = "model %s: %s; what is loaded is served on"
                log.warning(text, name, trouble, extra=about("versions_unseen", model=name))
        self._troubles = troubles


def log_versions(former: Mapping[str, Served], found: Mapping[str, Served]) -> None:
    """What is served from now on."""
    for name, served in found.items():
        before = None if name not in former else former[name].number
        extra = about("version_found", model=name, version=served.number, before=before)
        log.info("model %s: version %s → %s, of %s", name, before or "none", served.number, served.path, extra=extra)


def log_several(former: Mapping[str, Versions], latter: Mapping[str, Versions]) -> None:
    """Which versions jobs get from now on, of models of which several are served, and by which labels."""
    for name, versions in latter.items():
        if former.get(name) != versions:
            extra = about("versions_served", model=name, versions=versions.numbers, labels=str(versions))
            log.info("model %s: versions %s are served", name, versions, extra=extra)
