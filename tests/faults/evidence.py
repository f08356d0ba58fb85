"""What a long run leaves behind when it fails: all of it in the test's folder, its essence in the test's output."""

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.pool_process import PoolProcess
from support.processes import children, state

__all__ = ["keep_log", "kept"]

LAST_LINES = 40
UNFINISHED = ("QUEUED", "LEASED")
ASK_S = 5.0


def keep_log(pool: PoolProcess, folder: Path) -> None:
    """The pool's whole log; that of each pool before it has a file of its own."""
    shutil.copy(pool.log, folder / f"pool-{len(list(folder.glob('pool-*.log')))}.log")


@contextlib.contextmanager
def kept(pool: PoolProcess, folder: Path, what: str) -> Iterator[None]:
    """Whatever fails within is told after the pool's log, its status, the unfinished jobs' histories and its files.

    `what`: the run and its seed.
    """
    try:
        yield
    except BaseException as error:
        _keep(pool, folder, f"{what}: {type(error).__name__}: {error}")
        raise


def _keep(pool: PoolProcess, folder: Path, what: str) -> None:
    essence = [f"{what}; everything is kept in {folder}"]
    keep_log(pool, folder)
    if pool.running.poll() is not None:
        essence.append(f"the pool has ended with {pool.running.returncode}")
    else:
        answers = _asked(pool)
        answers["files"] = _files(pool.pid)
        answers["processes"] = {pid: state(pid) for pid in (pool.pid, *children(pool.pid))}
        (folder / "left.json").write_text(json.dumps(answers, indent=1, default=repr))
        essence += _told(answers)
    own = [line for line in pool.text().splitlines() if " | " not in line]
    essence += ["the pool's last lines:", *own[-LAST_LINES:]]
    print("\n".join(essence))  # noqa: T201  # pytest shows it


def _asked(pool: PoolProcess) -> dict[str, Any]:
    """What the pool says of itself; the error in its place where it says nothing."""
    answers: dict[str, Any] = {}
    try:
        with pool.client(connect_timeout=ASK_S) as client:
            answers["status"] = client.status().to_dict()
            answers["explain"] = client.explain().to_dict()
            left = [job["job"] for job in answers["explain"]["jobs"] if job["state"] in UNFINISHED]
            answers["unfinished"] = [client.explain(job).to_dict() for job in left]
            answers["slots"] = [client.explain(slot=slot["slot"]).to_dict() for slot in answers["status"]["slots"]]
    except Exception as error:
        answers["unanswered"] = repr(error)
    return answers


def _told(answers: dict[str, Any]) -> Iterator[str]:
    status = answers.get("status", {})
    if "unanswered" in answers:
        yield f"the pool does not answer: {answers['unanswered']}"
    yield f"processes: {answers['processes']}"
    for slot in status.get("slots", ()):
        yield f"slot {slot['slot']}: {slot['state']} incarnation {slot['incarnation']} pid {slot['pid']}"
    yield f"queue: {status.get('queue')}; unread bytes: {status.get('unread_bytes')}; roll: {status.get('roll')}"
    yield from (f"unfinished: {job}" for job in answers.get("unfinished", ())[:10])
    yield f"files: {dict(Counter(path.partition(':')[0] for path in answers['files']))}"


def _files(pid: int) -> list[str]:
    """What the process's descriptors are of."""
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return sorted(found)
