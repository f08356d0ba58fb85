"""The clients of the chaos run, each in a process of its own: started, frozen, killed, and what each has told."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from faults import chaos_client

__all__ = ["Crowd", "Member", "Sent"]

END_S = 120.0
DEAD_S = 60.0  # on a busy machine a process that is stopped and then killed may be there for more than ten seconds
THAW_S = 1.0  # so long after a freeze a client still reads what has come meanwhile


@dataclass(slots=True)
class Sent:
    """A job. `ending` is its line in the report; None where its client has heard nothing of it."""

    kind: str
    number: int
    began: float
    ended: float = 0.0
    ending: dict[str, Any] | None = None
    answers: int = 0

    @property
    def took_s(self) -> float:
        return self.ended - self.began

    @property
    def error(self) -> str | None:
        return None if self.ending is None else self.ending.get("error")


@dataclass(slots=True)
class Member:
    number: int
    endpoint: str
    process: "subprocess.Popen[bytes]"
    report: Path
    killed: bool = False
    thaws: float | None = None
    """When it is to run again; None while it does."""
    freezes: list[tuple[float, float]] = field(default_factory=list)
    _told: list[Sent] | None = None

    def jobs(self) -> list[Sent]:
        """In the order of their submission. Read once if the client has ended: on a busy machine that takes seconds."""
        if self._told is None:
            ended = self.process.poll() is not None
            jobs = self._read()
            if not ended:
                return jobs
            self._told = jobs
        return self._told

    def _read(self) -> list[Sent]:
        """The last line of a client that was killed may be half a line."""
        jobs: dict[int, Sent] = {}
        lines = self.report.read_text().split("\n")[:-1] if self.report.exists() else []
        for line in map(json.loads, lines):
            number, at = line.pop("job"), line.pop("at")
            if "kind" in line:
                jobs[number] = Sent(line["kind"], number, at)
            else:
                job = jobs[number]
                job.answers += 1
                job.ended, job.ending = at, line
        return list(jobs.values())

    @property
    def remote(self) -> bool:
        return self.endpoint.startswith(chaos_client.REMOTE)

    def awake(self, job: Sent) -> bool:
        """Whether the client ran all the time that the job was out: otherwise its time says nothing of the pool."""
        return not any(job.began < thawed + THAW_S and job.ended > frozen for frozen, thawed in self.freezes)

    @property
    def has_begun(self) -> bool:
        """Whether it has a job: beside others a program takes many seconds until it comes to its first."""
        return self.report.exists() and self.report.stat().st_size > 0

    def slept_s(self, job: Sent) -> float:
        """For how much of the time that the job was out the client was frozen."""
        return sum(max(0.0, min(job.ended, thawed) - max(job.began, frozen)) for frozen, thawed in self.freezes)


class Crowd:
    """A client at each endpoint at any time: who is killed is replaced."""

    def __init__(self, endpoints: Sequence[str], folder: Path, seed: int) -> None:
        self.members: list[Member] = []
        self._folder = folder
        self._seed = seed
        for endpoint in endpoints:
            self._join(endpoint)

    def _join(self, endpoint: str) -> None:
        number = len(self.members)
        report = self._folder / f"client-{number}.jsonl"
        argv = [sys.executable, "-P", chaos_client.__file__, endpoint, str(report), str(number), str(self._seed)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE)
        self.members.append(Member(number, endpoint, process, report))

    def pick(self, rng: random.Random) -> Member | None:
        """One that runs and has begun: on a busy machine no other would live for as long as its start takes."""
        found = [member for member in self.living() if member.thaws is None and member.has_begun]
        return rng.choice(found) if found else None

    def kill(self, member: Member) -> None:
        """Another takes its place."""
        member.killed = True
        member.process.kill()
        assert member.process.wait(DEAD_S) == -signal.SIGKILL, "it had ended by itself"
        self._join(member.endpoint)

    def freeze(self, member: Member, seconds: float) -> None:
        now = time.monotonic()
        member.process.send_signal(signal.SIGSTOP)
        member.thaws = now + seconds
        member.freezes.append((now, float("inf")))

    def tend(self) -> None:
        """Thaws whose time has come, and asserts that nobody has ended unasked."""
        for member in self.living():
            assert member.process.poll() is None, f"client {member.number} ended with {member.process.returncode}"
            if member.thaws is not None and time.monotonic() >= member.thaws:
                self._thaw(member)

    def _thaw(self, member: Member) -> None:
        member.process.send_signal(signal.SIGCONT)
        member.freezes[-1] = (member.freezes[-1][0], time.monotonic())
        member.thaws = None

    def living(self) -> Sequence[Member]:
        return [member for member in self.members if not member.killed]

    def finish(self) -> None:
        """All submit no more, wait for what is out, and end."""
        for member in self.living():
            if member.thaws is not None:
                self._thaw(member)
            assert member.process.stdin is not None
            member.process.stdin.close()
        for member in self.living():
            assert member.process.wait(END_S) == 0, f"client {member.number}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.process.kill()  # a frozen one, too
                member.process.wait(10)
            if member.process.stdin is not None:
                member.process.stdin.close()
