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
        """A recent job's history, as `pool explain --json` prints it; `job` is its `future.timeline.job`.

        For a slot, {"slot": …, "crash_reports": …, "folder": …}: its state as in `status()`, and the crash reports of
        its last workers, newest first; only from the local machine. For neither, {"jobs": …, "deaths": …}: the recent
        ones, newest first. Raises `PoolError` for an unknown job or slot, `ValueError` if both are given.
        """
        if job is not None and slot is not None:
            raise ValueError("explain takes a job or a slot, not both")
        about = "" if job is None else str(job)
        return self._ask("explain", about if slot is None else f"slot:{slot}")  # type: ignore[no-any-return]

    def restart(self, slot: int, *, rolling: bool = False) -> int:
        """Requests a new worker for a slot. The old worker finishes what it runs. A FATAL slot is tried again.

        Returns at once, with the incarnation of the new worker; a later one may follow instead. `status()` shows when
        it is READY. If it fails, `status()` has `replacement_failure`, and the old worker keeps serving. `rolling`: if
        the old worker must end first, it waits until `min_ready` others are READY. Raises `PoolError` if the slot
        cannot have a new worker. Only from the local machine.
        """
        about = f"{slot} rolling" if rolling else str(slot)
        return self._ask("restart", about)["incarnation"]  # type: ignore[no-any-return]

    def drain(self, slot: int) -> None:
        """Takes a slot out of service when its worker has finished what it runs. `restart` brings it back.

        Returns at once; `status()` shows when it is STOPPED. Raises `PoolError` if the slot cannot be drained. Only
        from the local machine.
        """
        self._ask("drain", str(slot))

    def reload(self) -> dict[str, Any]:
        """Makes the pool read its `config.toml` again and apply all changes, or none.

        Returns {"changes": …, "slots": …}: each change with its key, `before`, `after` and a `line` for people, and the
        slots that get new workers for it, one after the other. `status()["rolling_update"]` shows the progress. Raises
        `InvalidConfig` with a line for each mistake, and for each change that needs a new pool. Only from the local
        machine.
        """
        return self._changed("reload")

    def _changed(self, what: str, about: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = self._ask(what, about)
        if "refused" in answer:
            raise InvalidConfig(answer["refused"])
        return answer

    def load(self, model: str, path: str | os.PathLike[str]) -> dict[str, Any]:
        """Adds a model to the running pool. The other models stay where they are.

        `path`: on the pool's machine, as in `config.toml`. A model that is already served gets this path. Returns as
        `reload` does, before a worker has loaded the model: it is not done while `status()["rolling_update"]["left"]`
        names a slot. If a worker cannot load it, the pool drops it and serves what it served before. The model stays
        until the pool ends, you unload it, or a `reload` finds a model of its name in the file. Raises `InvalidConfig`
        if there is no room. Only from the local machine.
        """
        where = os.fspath(path)
        if not where.startswith("stub:"):
            where = os.path.abspath(where)
        return self._changed("load", json.dumps([model, where]))

    def unload(self, model: str) -> dict[str, Any]:
        """Removes a model from the running pool. New workers replace its own, which frees all of its memory.

        Returns as `reload` does. Running jobs are finished. Jobs that wait when its last worker goes, and later jobs,
        end in `ModelNotFound`. A `reload` brings back what the file names. Raises `InvalidConfig` for a model that is
        not served, and for the last one. Only from the local machine.
        """
        return self._changed("unload", model)

    def stop(self) -> None:
        """Asks the pool to finish its jobs and stop. Returns when it has begun. Only from the local machine."""
        self._ask("stop")
