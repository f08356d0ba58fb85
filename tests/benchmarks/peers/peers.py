"""The peers, and the settings among which a probe finds each one's best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cases import Case
from benchmarks.peers.server import HandleServer, HttpServer, Server, free_port
from benchmarks.turns import Turns

__all__ = ["PEERS", "Peer", "Setting", "start"]

IN_FLIGHT = (32, 128, 256)
"""Connections or handle calls that a probe tries."""


@dataclass(frozen=True)
class Setting:
    workers: int
    wait_ms: float = 0
    extra: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join((f"{self.workers} workers, wait {self.wait_ms:g} ms", *self.extra, *self.env))


@dataclass(frozen=True)
class Peer:
    """`argv`: what follows the module's name, of (case file, expected file, case, setting, port).

    `path`: of its HTTP, with the model's name; "" where it is driven by handle.
    """

    name: str
    requirements: tuple[str, ...]
    argv: Callable[[str, str, Case, Setting, int], Sequence[str]]
    settings: tuple[Setting, ...]
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_http(self) -> bool:
        return bool(self.path)


def _mosec(case_file: str, _: str, case: Case, setting: Setting, port: int) -> Sequence[str]:
    own = ["--address", "127.0.0.1", "--port", str(port), "--timeout", "60000", "--log-level", "warning"]
    return [case_file, str(setting.workers), str(case.max_batch), f"{setting.wait_ms:g}", *own]


def _litserve(case_file: str, _: str, case: Case, setting: Setting, port: int) -> Sequence[str]:
    batch, wait = str(case.max_batch), f"{setting.wait_ms:g}"
    return [case_file, str(setting.workers), batch, wait, str(port), *setting.extra]


def _ray(case_file: str, expected: str, case: Case, setting: Setting, _: int) -> Sequence[str]:
    return [case_file, expected, str(setting.workers), str(case.max_batch), f"{setting.wait_ms:g}"]


def _pytriton(case_file: str, _: str, case: Case, setting: Setting, port: int) -> Sequence[str]:
    return [case_file, str(setting.workers), str(case.max_batch), f"{setting.wait_ms * 1000:.0f}", str(port)]


OCTETS = {"Content-Type": "application/octet-stream"}
# The caller has no event loop of its own, so the router keeps its loop.
FASTER = {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "1"}
# Ray's workers are nice by 15 unless told otherwise, and get nothing beside anything else that runs.
PLAIN_RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_LOG_TO_STDERR": "0", "RAY_worker_niceness": "0"}

PEERS = {
    peer.name: peer
    for peer in (
        Peer("mosec", ("mosec",), _mosec, (Setting(1, 1), Setting(2, 1)), "inference", OCTETS),
        Peer(
            "litserve",
            ("litserve",),
            _litserve,
            (Setting(1, 2, ("0",)), Setting(1, 2, ("1",)), Setting(2, 2, ("0",))),  # a wait of 0 spins
            "predict",
            OCTETS,
        ),
        Peer("ray", ("ray[serve]",), _ray, (Setting(1), Setting(1, env=FASTER), Setting(2)), env=PLAIN_RAY),
        Peer(
            "pytriton",
            ("nvidia-pytriton",),
            _pytriton,
            (Setting(1), Setting(2)),
            "v2/models/{model}/infer",
            # Triton's cheapest: the tensor alone, no JSON before it.
            {**OCTETS, "Inference-Header-Content-Length": "0"},
        ),
    )
}


def start(
    peer: Peer,
    setting: Setting,
    python: Path,
    turns: Turns,
    files: tuple[Path, Path],
    folder: Path,
) -> Server:
    """`files`: the case and the expected answers, as `turns` has them. Raises what the servers raise."""
    port = free_port()
    case = turns.case
    module = f"benchmarks.servers.serve_{peer.name}"
    argv = [str(python), "-m", module, *peer.argv(str(files[0]), str(files[1]), case, setting, port)]
    env = {**peer.env, **setting.env, "CUDA_VISIBLE_DEVICES": ""}  # as for the pool, whose workers are the CPU's
    if not peer.by_http:
        return HandleServer(argv, env, folder)
    url = f"http://127.0.0.1:{port}/{peer.path.format(model=case.name)}"
    return HttpServer(argv, env, url, peer.headers, turns, folder)
