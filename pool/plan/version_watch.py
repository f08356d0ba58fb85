"""New versions of the models that a running pool serves: found, tried, and given up where they are broken.

    look, in a thread ─► found ─► the world has it, a rollout begins ─┬─► every slot has it
             ▲                                                         └─► one did not come up: broken
             └── not again until its files change, or a reload is asked; the former version is served instead ──┘

One rollout after the other, so that it is known what broke it. Where several models had a new version in one that
broke, each of them is tried by itself.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pool.logs import about
from pool.plan.planning import with_sizes
from pool.plan.reading import Reading
from pool.plan.versions import Look, Served, Stamp, Watched, look_again, select
from pool.plan.world import World

__all__ = ["VersionWatch"]

log = logging.getLogger("pool")

SLOW_S = 10.0  # for a look; then somebody should know
LONGEST_S = 3600.0  # between two tries of what another model keeps from coming up


class VersionWatch:
    """Used from the pool's loop, but for the looking itself. Seconds between two looks: `watch` of `[pool]`."""

    def __init__(self, ring: Callable[[], None]) -> None:
        """`ring` is called in another thread when a look has ended."""
        self._ring = ring
        self._every_s: float | None = None
        self._next = 0.0
        self._looking: Reading[tuple[Look, World | None]] | None = None
        self._told = False  # that it is slow
        self._seen: Mapping[str, Stamp] = {}
        self._alone: list[str] = []  # paths of those that broke a rollout together, and are to be tried by themselves
        self.troubles: Mapping[str, str] = {}
        """By model, why its versions cannot be seen; for people."""
        self._in_vain = 0  # rollouts in a row that failed at something else

    def every(self, every_s: float | None) -> None:
        """Seconds between two looks from now on; None: nobody looks."""
        if every_s != self._every_s:
            self._every_s, self._next = every_s, time.monotonic() + (every_s or 0.0)

    def forget(self) -> None:
        """Somebody has asked: what was broken is to be tried again."""
        self._in_vain = 0
        self._alone.clear()

    def failed(self, broken: Collection[tuple[str, Served]]) -> None:
        """What was new did not come up: these versions of these models are broken, so others are looked for at once.

        Where none is, something else was to blame: what was new is found again, after a pause that grows.
        """
        again = "at a reload" if self._every_s is None else "when its files change or at a reload"
        if len(broken) > 1 and self._every_s is not None:
            self._alone += [served.path for _, served in broken]
            again = "automatically"
        for model, served in broken:
            extra = about("version_broken", model=model, version=served.number)
            text = "model %s: version %s failed to load; it is tried again %s"
            log.error(text, model, served.number, again, extra=extra)
        self._next = time.monotonic()
        if not broken and self._every_s is not None:
            self._in_vain += 1
            self._next += max(self._every_s, min(LONGEST_S, self._every_s * 2.0**self._in_vain))

    @property
    def is_busy(self) -> bool:
        return self._looking is not None

    def next_deadline(self, now: float, rolling: bool) -> float | None:
        """When `tend` is to be called at the latest, but for what `ring` tells."""
        looking = self._looking
        if looking is not None:
            return now if looking.has_ended else None if self._told else looking.began + SLOW_S
        return None if self._every_s is None or rolling else self._next

    def tend(self, world: World, rolling: bool) -> World | None:
        """The world with what is to be served, or to be tried, from now on. While slots change nothing is found."""
        now = time.monotonic()
        if self._looking is not None:
            return self._heard(self._looking, world, now)
        if self._every_s is not None and not rolling and now >= self._next:
            self._begin(world, now)
        return None

    def _begin(self, world: World, now: float) -> None:
        seen = self._seen

        def read() -> tuple[Look, World | None]:
            watched = {
                model.name: Watched(model.path, world.found.get(model.name, ()), model.versions == "all")
                for model in world.settings.model
                if isinstance(model.versions, str)
            }
            served = select(world.settings, world.found).served
            left_out = {each.path: each.stamp for name, each in served.items() if name in world.unloadable}
            look = look_again(watched, seen, {**left_out, **world.broken})
            known = {served.path for several in look.found.values() for served in several}
            broken = {path: stamp for path, stamp in world.broken.items() if path not in known}
            found = replace(world, found={**world.found, **look.found}, broken=broken)
            found = found.trying_again(world, found.found)
            return look, with_sizes(found) if look.found else None

        try:
            self._looking, self._told = Reading("versions", world, read, self._ring), False
        except RuntimeError:
            self._next = now + (self._every_s or 0.0)

    def _heard(self, looking: Reading[tuple[Look, World | None]], world: World, now: float) -> World | None:
        if not looking.has_ended:
            if now >= looking.began + SLOW_S and not self._told:
                self._told = True
                text = "the models' folders have not answered for %g s, so new versions are not seen"
                log.warning(text, SLOW_S, extra=about("versions_unseen"))
            return None
        self._looking, self._next = None, now + (self._every_s or 0.0)
        if looking.result is None or world is not looking.world:
            return None  # it is not about what is served now
        look, after = looking.result
        self._seen = look.seen
        for name, trouble in look.troubles.items():
            if self.troubles.get(name) != trouble:
                text = "model %s: %s; the loaded versions still serve"
                log.warning(text, name, trouble, extra=about("versions_unseen", model=name))
        self.troubles = look.troubles
        if not look.found and not look.seen:
            self._in_vain = 0
            if self._alone:
                path = self._alone.pop(0)
                return replace(world, broken={each: stamp for each, stamp in world.broken.items() if each != path})
        return after
