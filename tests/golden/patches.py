"""The core with one promise broken, which its outcomes must tell, and with another way of its own, which they must not.

Each is a patch of one place of `pool/core`, and fits exactly once. Where the core is rebuilt, they are written anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pool

__all__ = ["BROKEN", "OTHERWISE", "Patch", "differences"]


@dataclass(frozen=True, slots=True)
class Patch:
    """In `file` of `pool/core`, `old` becomes `new`, and so on. `kinds`: of the programs that are to tell."""

    name: str
    kinds: tuple[str, ...]
    places: tuple[tuple[str, str, str], ...]

    def apply(self, core: Path) -> None:
        """REQUIRES that each place is there once."""
        for file, old, new in self.places:
            source = (core / file).read_text()
            if source.count(old) != 1:
                raise ValueError(f"{self.name}: the patch fits {source.count(old)} times into {file}")
            (core / file).write_text(source.replace(old, new))


BROKEN = (
    Patch(
        "a stateful job runs again",
        ("lone",),
        (
            (
                "trial/table.py",
                "    Cause.DIED_ALONE:      Rule(singly,   Next.ALONE,         LOST, ",
                "    Cause.DIED_ALONE:      Rule(singly,   Next.ALONE,         None, ",
            ),
        ),
    ),
    Patch(
        "a job is lost with its worker",
        ("lone",),
        (("trial/verdicts.py", "                    again.append(part)\n", "                    pass\n"),),
    ),
    Patch(
        "a wrong fault",
        ("lone",),
        (("trial/table.py", "Fault.QUARANTINED, confines", "Fault.WORKER_LOST, confines"),),
    ),
    Patch(
        "an attempt too many",
        ("lone",),
        (
            (
                "trial/verdicts.py",
                "self._kept_state(job.key, slot), attempts >= self._policy.max_attempts)\n",
                "self._kept_state(job.key, slot), attempts > self._policy.max_attempts)\n",
            ),
        ),
    ),
    Patch(
        "a batch that was never sent is an attempt",
        ("lone",),
        (
            (
                "trial/verdicts.py",
                '        self._again(batch, Cause.UNSENT, self._back(batch, Cause.UNSENT, "", now), now)\n',
                '        parts = self._back(batch, Cause.UNSENT, "", now)\n'
                "        for part in parts:\n            part.job.deaths += 1\n"
                "        self._again(batch, Cause.UNSENT, parts, now)\n",
            ),
        ),
    ),
    Patch(
        "the last of a client comes first",
        ("ordered",),
        (
            (
                "queue/line.py",
                "                for first in jobs:\n",
                "                for first in reversed(jobs):\n",
            ),
        ),
    ),
    Patch(
        "priorities ignored",
        ("ordered",),
        (
            (
                "queue/line.py",
                "        if not queue.waiting or job.priority > queue.top:\n",
                "        if not queue.waiting:\n",
            ),
        ),
    ),
    Patch(
        "clients share by jobs, not by time",
        ("shared",),
        (
            (
                "queue/line.py",
                "queue.used_s += seconds / client.account.weight\n",
                "queue.used_s += 1.0\n",
            ),
        ),
    ),
    Patch(
        "weights ignored",
        ("shared",),
        (
            (
                "queue/models.py",
                "        self.used_s += seconds / self.policy.weight\n",
                "        self.used_s += seconds\n",
            ),
        ),
    ),
    Patch(
        "all are guilty",
        ("batched",),
        (
            (
                "trial/verdicts.py",
                "        case told.Spoiled(fault) if len(batch.parts) > 1:\n",
                "        case told.Spoiled(fault) if len(batch.parts) > 2:\n",
            ),
        ),
    ),
    Patch(
        "a cancelled job starts",
        ("manners",),
        (
            (
                "machine.py",
                "        self._answers.cancel(job, now)\n",
                "        if batch is not None or job.key.gathered:\n            self._answers.cancel(job, now)\n",
            ),
        ),
    ),
    Patch(
        "versions ignored",
        ("changing",),
        (
            (
                "queue/line.py",
                "        return self.version is None or slot.versions.get(self.model.name) == self.version\n",
                "        return True\n",
            ),
        ),
    ),
    Patch(
        "pins ignored",
        ("batched",),
        (
            (
                "queue/line.py",
                "        if self.device is not None and self.device not in slot.names:\n            return False\n",
                "",
            ),
        ),
    ),
    Patch(
        "a stop without an end",
        ("ending",),
        (
            (
                "machine.py",
                '                case ("drain",):\n                    self._abandon(',
                '                case ("drain",):\n                    print(end="") if now else self._abandon(',
            ),
        ),
    ),
)
OTHERWISE = (
    Patch(
        "the lane that was idle longest goes first",
        (),
        (("dispatch.py", "lane = slot.idle_lanes.pop()", "lane = slot.idle_lanes.pop(0)"),),
    ),
    Patch(
        "a failed batch is taken apart from its end",
        (),
        (("trial/table.py", "Rule(bisected, Next", "Rule(lambda parts: bisected(parts)[::-1], Next"),),
    ),
)


def differences(patch: Patch, folder: Path) -> list[str]:
    """What the patched core does otherwise than was recorded, in a process of its own; of a broken one the first."""
    shutil.copytree(Path(pool.__file__).parent, folder / "pool", ignore=shutil.ignore_patterns("__pycache__"))
    patch.apply(folder / "pool" / "core")
    found = subprocess.run(
        [sys.executable, str(Path(__file__).parent), *(["--first"] if patch.kinds else []), *patch.kinds],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert found.returncode in (0, 1), found.stderr
    assert not found.stderr, found.stderr
    return found.stdout.splitlines()
