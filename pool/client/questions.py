"""What a client asks the pool itself, rather than a model."""

import json
import os
from abc import ABC, abstractmethod
from typing import Any

from pool.errors import InvalidConfig

__all__ = ["Questions"]


class Questions(ABC):
    """The part of a `Client` that asks. Each raises `PoolUnreachable` when no answer comes in time."""

    @abstractmethod
    def _ask(self, what: str, about: str = "") -> Any: ...

    def status(self) -> dict[str, Any]:
        """What `pool status --json` prints."""
        return self._ask("status")  # type: ignore[no-any-return]

    def models(self) -> list[dict[str, Any]]:
        """What `pool models --json` prints: each model with its signatures."""
        return self._ask("models")  # type: ignore[no-any-return]

    def explain(self, job: int | None = None, *, slot: int | None = None) -> dict[str, Any]:
        """A recent job's story, as `pool explain --json` prints it; `job` is its `future.timeline.job`.

        Of a slot, {"slot": …, "bundles": …, "folder": …}: what it is now, as in `status()`, and what is known of its
        last workers that died, newest first; from the local machine only. Of neither, {"jobs": …, "deaths": …}: the
        recent ones, newest first. Raises `PoolError` for what the pool does not know, `ValueError` for both at once.
        """
        if job is not None and slot is not None:
            raise ValueError("explain takes a job or a slot, not both")
        about = "" if job is None else str(job)
        return self._ask("explain", about if slot is None else f"slot:{slot}")  # type: ignore[no-any-return]

    def restart(self, slot: int, *, rolling: bool = False) -> int:
        """Asks for a new worker in a slot; what the old one runs is finished. A FATAL slot is tried again.

        Returns at once, with the incarnation that is to follow, or a later one will: `status()` tells when it is READY,
        and under `successor_failure` that it will not be, while the old worker serves on. `rolling`: where the old
        worker has to go first, it goes only while `min_ready` others are READY. Raises `PoolError` where the slot
        cannot have a new one. From the local machine only.
        """
        about = f"{slot} rolling" if rolling else str(slot)
        return self._ask("restart", about)["incarnation"]  # type: ignore[no-any-return]

    def drain(self, slot: int) -> None:
        """Takes a slot out of service, once its worker has finished what it runs, until `restart` brings it back.

        Returns at once: `status()` tells when it is STOPPED. Raises `PoolError` where that cannot be. From the local
        machine only.
        """
        self._ask("drain", str(slot))

    def reload(self) -> dict[str, Any]:
        """Has the pool read its `config.toml` again and apply what is another: all of it or nothing.

        Returns {"changes": …, "slots": …}: each change with its key, `before`, `after` and a `line` for people, and the
        slots that get new workers for it, one after the other; `status()["roll"]` tells how far that is. Raises
        `InvalidConfig`, with a line for each mistake and for each change that only a new pool can have. From the local
        machine only.
        """
        return self._changed("reload")

    def _changed(self, what: str, about: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = self._ask(what, about)
        if "refused" in answer:
            raise InvalidConfig(answer["refused"])
        return answer

    def load(self, model: str, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Has the pool serve one model more, beside those that it has, which stay where they are.

        `path`: on the pool's machine, as in `config.toml`. Of a model that is served already the path becomes this one.
        Returns as `reload` does, before a worker has loaded it: while `status()["roll"]["left"]` names a slot it is on
        its way; if a slot does not come up with it, it is given up, and what was served before goes on. It
        lasts until the pool ends, is unloaded, or a `reload` finds a model of its name in the file. Raises
        `InvalidConfig` where it has no room. From the local machine only.
        """
        where = os.fspath(path)
        if not where.startswith("stub:"):
            where = os.path.abspath(where)
        return self._changed("load", json.dumps([model, where]))

    def unload(self, model: str) -> dict[str, Any]:
        """Has the pool serve a model no more: its workers are replaced, which gives all of its memory back.

        Returns as `reload` does. Its jobs that run are finished, those that wait when its last worker goes, and new
        ones from then on, are `ModelNotFound`. A `reload` brings back what the file names. Raises `InvalidConfig` for a
        model that is not served, and for the last one. From the local machine only.
        """
        return self._changed("unload", model)

    def stop(self) -> None:
        """Asks the pool to finish what it holds and stop; returns when it has begun to. From the local machine only."""
        self._ask("stop")
