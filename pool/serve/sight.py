"""What a client is told that may use some models only: nothing that names another model, and of no other client.

    the answer for all ──► `status_for`, `metrics_for`, `models_for`, `explained_for` ──► the answer for it

Texts that the pool or a worker has written may name any model, so they are left out, whatever they say.
"""

from collections.abc import Sequence
from typing import Any

from pool.serve.standing import Standing
from pool.wire.entries import model_of

__all__ = ["explained_for", "metrics_for", "models_for", "sees", "status_for"]

UNTOLD = "only who may use all models is told why"

Answer = dict[str, Any]


def sees(standing: Standing, model: str) -> bool:
    """`model`: its name, or that of a version of it."""
    return standing.models is None or model_of(model) in standing.models


def models_for(standing: Standing, models: Sequence[Answer]) -> list[Answer]:
    return [each for each in models if sees(standing, each["name"])]


def metrics_for(standing: Standing, metrics: Answer) -> Answer:
    if standing.models is None:
        return metrics
    models = models_for(standing, metrics["models"])
    return {"status": status_for(standing, metrics["status"]), "models": models, "nameless": {}}


def status_for(standing: Standing, status: Answer) -> Answer:
    if standing.models is None:
        return status

    def seen(entries: Sequence[Answer]) -> list[Answer]:
        return [each for each in entries if sees(standing, each["model"])]

    update, failover = status["rolling_update"], status["failover"]
    return {
        **status,
        "refused": {},
        "dropped": {},
        "rolling_update": {**update, "failure": UNTOLD if update["failure"] else ""},
        "versions": {"broken": [], "troubles": {}},
        "failover": {
            "away": seen(failover["away"]),
            "stays": [model for model in failover["stays"] if sees(standing, model)],
        },
        "copies": seen(status["copies"]),
        "slots": [_slot(standing, slot) for slot in status["slots"]],
        "models": models_for(standing, status["models"]),
        "gateway": None,
        "unloadable": seen(status["unloadable"]),
        "accounts": [account for account in status["accounts"] if account["name"] == standing.account],
    }


def explained_for(standing: Standing, history: Answer | None) -> Answer | None:
    """A job, or those of late; None for a job that is not known, or of a model that it may not use."""
    if standing.models is None or history is None:
        return history
    if "jobs" in history:
        return {"jobs": [job for job in history["jobs"] if sees(standing, job["model"])], "deaths": []}
    return history if sees(standing, history["model"]) else None


def _slot(standing: Standing, slot: Answer) -> Answer:
    failure = slot["replacement_failure"]
    return {
        **slot,
        "reason": "",
        "doing": "",
        "models": [model for model in slot["models"] if sees(standing, model)],
        "versions": {model: version for model, version in slot["versions"].items() if sees(standing, model)},
        "replacement": _beside(slot["replacement"]),
        "standby": _beside(slot["standby"]),
        "replacement_failure": None if failure is None else {**failure, "reason": UNTOLD},
        "leaving": [_beside(each) for each in slot["leaving"]],
    }


def _beside(worker: Answer | None) -> Answer | None:
    return None if worker is None else {**worker, "doing": ""}
