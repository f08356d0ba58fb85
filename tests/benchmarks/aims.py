"""The aims of the project, and whether a run has met them."""

from dataclasses import dataclass

from benchmarks.rounds import Spread

__all__ = ["AIMS", "Aim", "Result"]


@dataclass(frozen=True, slots=True)
class Aim:
    """`bound` is met at most, or at least."""

    name: str
    what: str
    against: str
    bound: float
    at_most: bool

    @property
    def text(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.bound:g} × {self.against}"

    def met_by(self, measured: float) -> bool:
        return measured <= self.bound if self.at_most else measured >= self.bound


@dataclass(frozen=True, slots=True)
class Result:
    """`ratio` is None where there is none, and `note` says why; else it may say which way was taken."""

    aim: Aim
    ratio: Spread | None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured"
        return "met" if self.aim.met_by(self.ratio.median) else "missed"


AIMS = {
    aim.name: aim
    for aim in (
        Aim("alone", "mlp, one job at a time, p50", "Session.run", 1.0, True),
        Aim("mosec", "mlp, one client, 256 in flight", "mosec under wrk", 2.0, False),
        Aim("loop", "mlp, one client, 256 in flight", "a loop of Session.run", 10.0, False),
        Aim("map", "mlp, map of single rows of an array", "the callable at the same batch size", 0.5, False),
        Aim("image_mosec", "image, one client", "mosec under wrk", 8.0, False),
        Aim("image_callable", "image, one client", "the faster callable (batch 1 or the pool's)", 0.7, False),
        Aim("echo64", "echo64, one job at a time", "one copy of 64 MiB", 1.5, True),
        Aim("echo64_empty", "echo64 from client.empty", "the same with 1 MiB", 1.25, True),
        Aim("four", "mlp, four clients at once", "one client", 1.0, False),
        Aim("restart", "a killed worker's slot answers again", "import + load", 1.15, True),
        Aim("standby", "the same with a standby", "(1.3 × load + 0.3 s)", 1.0, True),
        Aim("memory", "the pool's process after all jobs", "80 MB", 1.0, True),
        Aim("flat", "the same", "what it held after a tenth of them", 1.05, True),
        Aim("flat_client", "the client's process", "what it held after a tenth of them", 1.05, True),
        Aim("import", "import pool, without numpy", "100 ms", 1.0, True),
    )
}
