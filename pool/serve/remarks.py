"""What workers find odd about their models: told once, kept as long as the worker that said it."""

import logging

from pool.core.fleet import WorkerId
from pool.logs import about
from pool.wire.worker_messages import Remark

__all__ = ["Remarks"]

log = logging.getLogger("pool")

MOST_KEPT = 64  # of a worker
MOST_CHARS = 1000


class Remarks:
    def __init__(self) -> None:
        self._said: dict[WorkerId, dict[tuple[str, str], str]] = {}  # by model and what it is about

    def hear(self, worker: WorkerId, remark: Remark) -> None:
        """Logs it, unless another worker that lives has said it before. Past a bound it is dropped."""
        said = self._said.setdefault(worker, {})
        key = (remark.model[:MOST_CHARS], remark.about[:MOST_CHARS])
        if key in said or len(said) >= MOST_KEPT:
            return
        known = any(key in others for others in self._said.values())
        said[key] = remark.text[:MOST_CHARS]
        if not known:
            extra = about("model_remarked", slot=worker[0], incarnation=worker[1], model=key[0])
            log.warning("model %s, %s: %s", key[0], key[1], said[key], extra=extra)

    def of(self, model: str) -> list[str]:
        """A line each."""
        found: dict[str, str] = {}
        for said in self._said.values():
            found.update({subject: text for (name, subject), text in said.items() if name == model})
        return [f"{subject}: {found[subject]}" for subject in sorted(found)]

    def forget(self, worker: WorkerId) -> None:
        """The worker is gone."""
        self._said.pop(worker, None)
