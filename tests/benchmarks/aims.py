"""The rows of the table: which way of ours is set against what, what is aimed at, and whether a run has met it."""

from dataclasses import dataclass

from benchmarks.rounds import Spread

__all__ = [
    "AIMS",
    "ALL_AT_ONCE",
    "ARRAY",
    "BOUT_WAYS",
    "GATEWAY",
    "KILLED",
    "LENT",
    "MANY",
    "MAP",
    "RUN",
    "RUN_64",
    "RUN_64_FROM_EMPTY",
    "SUBMIT",
    "Aim",
    "Result",
]

RUN, SUBMIT, MAP, MANY = "client.run", "client.submit", "client.map", "client.submit_many"
ARRAY, LENT = "client.map of an array", "client.submit from client.empty"
RUN_64, RUN_64_FROM_EMPTY = "client.run, 64 MiB", "client.run from client.empty, 64 MiB"
GATEWAY = "the gateway under wrk"
ALL_AT_ONCE, KILLED = "4 at once, in total", "killed to answer"

BOUT_WAYS = {"mlp": (SUBMIT, MAP), "image": (MAP,), "cnn": (MAP,), "guesslang": (MAP,)}
"""What takes turns with each peer. Chosen here, before any run: the best of several after it is luck in part."""


@dataclass(frozen=True, slots=True)
class Aim:
    """`way`: what of ours is measured. `bound` is met at most, or at least."""

    name: str
    what: str
    way: str
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
    """`ratio` is None where there is none, and `note` says why."""

    aim: Aim
    ratio: Spread | None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.ratio is None:
            return "not measured"
        return "met" if self.aim.met_by(self.ratio.median) else "missed"


CROWD = "mlp, 32 clients with one job each, two processes"
MAPPED = "mlp, map of single rows of an array"
AIMS = {
    aim.name: aim
    for aim in (
        Aim("alone", "mlp, one job at a time, p50", RUN, "Session.run", 2.0, True),
        Aim("stick", "mlp, one job at a time, p50", RUN, "the straight path, bare", 1.6, True),
        Aim("stick_processor", "mlp, one job at a time, processor time", RUN, "the straight path, bare", 2.0, True),
        Aim("calls_client", "calls of a lone job, client", RUN, "150 calls", 1.0, True),
        Aim("calls_pool", "calls of a lone job, pool", RUN, "200 calls", 1.0, True),
        Aim("calls_lane", "calls of a lone job, lane", RUN, "100 calls", 1.0, True),
        Aim("socket_operations", "socket operations of a lone job", RUN, "12", 1.0, True),
        Aim("crowd_mosec", CROWD, RUN, "mosec under wrk", 1.0, False),
        Aim("crowd_bare", CROWD, RUN, "as many bare", 0.5, False),
        Aim("crowd_processor", f"{CROWD}, processor time of the pool", RUN, "the bare middle", 2.0, True),
        Aim("submit_mosec", "mlp, one client, 256 in flight", SUBMIT, "mosec under wrk", 1.5, False),
        Aim("map_mosec", "mlp, one client, 256 in flight", MAP, "mosec under wrk", 4.0, False),
        Aim("loop", "mlp, one client, 256 in flight", MAP, "a loop of Session.run", 10.0, False),
        Aim("map", MAPPED, ARRAY, "the callable at the same batch size", 0.5, False),
        Aim("image_mosec", "image, one client", MAP, "mosec under wrk", 8.0, False),
        Aim("gateway_mosec", "mlp, HTTP, 64 connections", GATEWAY, "mosec under wrk", 0.7, False),
        Aim("gateway_litserve", "mlp, HTTP, 64 connections", GATEWAY, "LitServe under wrk", 10.0, False),
        Aim("gateway_image", "image, HTTP, 16 connections", GATEWAY, "mosec under wrk", 2.0, False),
        Aim("gateway_alone", "mlp, HTTP, one connection, p50", GATEWAY, "(client.run + 0.3 ms)", 1.0, True),
        Aim("image_callable", "image, one client", MAP, "the faster callable (batch 1 or the pool's)", 0.6, False),
        Aim("image_loop", "image, one client", SUBMIT, "a loop of Session.run", 2.0, False),
        Aim("echo64", "echo64, one job at a time", RUN_64, "one copy of 64 MiB", 1.5, True),
        Aim("echo64_empty", "echo64 from client.empty", RUN_64_FROM_EMPTY, "the same with 1 MiB", 1.25, True),
        Aim("four", "mlp, four clients at once", ALL_AT_ONCE, "one client", 1.0, False),
        Aim(
            "restart", "a killed worker's slot answers again", KILLED, "import + load, to the first answer", 1.15, True
        ),
        Aim("standby", "the same with a standby", KILLED, "(1.3 × load + 0.3 s)", 1.0, True),
        Aim("memory", "the pool's process after all jobs", MAP, "80 MB", 1.0, True),
        Aim("flat", "the same", MAP, "what it held after a tenth of them", 1.05, True),
        Aim("flat_client", "the client's process", MAP, "what it held after a tenth of them", 1.05, True),
        Aim("import", "import pool, without numpy", "import pool", "100 ms", 1.0, True),
    )
}
