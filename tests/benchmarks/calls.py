"""What a lone job calls: `python tests/benchmarks/calls.py [--stub]`.

Python and C calls in the client, in the pool (both turns of its loop) and in the lane, as `sys.setprofile` counts
them; and sends and receives of ZeroMQ, which are Cython's and not seen by it. Counts are the same on any machine, fast
or slow. `--stub`: a stub in place of the model `mlp`, which needs no TensorFlow.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

from rich.console import Console
from rich.table import Table

from benchmarks.cases import Case
from benchmarks.line_process import LineProcess, python_module
from support.pool_process import pool_process, stub_config

__all__ = ["BUDGETS", "STUB", "budgets", "counted"]

STUB = Case("rows", "stub:rows", "double", "x", "y", "float32", (), 8)
JOBS, BLOCKS = 25, 24
HOOK = Path(__file__).with_name("count_hook")
START_S, ANSWER_S = 300.0, 120.0
ROLES = ("client", "pool", "lane")
BUDGETS: Mapping[str, int] = {"calls_client": 150, "calls_pool": 200, "calls_lane": 100, "socket_operations": 12}


def counted(case: Case, folder: Path) -> dict[str, dict[str, float]]:
    """A job's, by what is counted and by role: medians of blocks, for now and then a timer falls into one."""
    return {what: _counted(what, case, folder) for what in ("calls", "sockets")}


def budgets(counts: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, float, int]]:
    """The aim's name, what was counted, and what is allowed."""
    for role in ROLES:
        yield f"calls_{role}", counts["calls"][role], BUDGETS[f"calls_{role}"]
    yield "socket_operations", sum(counts["sockets"].values()), BUDGETS["socket_operations"]


def _counted(what: str, case: Case, folder: Path) -> dict[str, float]:
    counters = folder / f"counters-{what}"
    counters.mkdir()
    path = os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "COUNT_INTO": str(counters), "COUNT_WHAT": what}
    model = f'[[model]]\nname = "{case.name}"\npath = "{case.path}"\nmax_batch = {case.max_batch}\n'
    with pool_process(stub_config(devices='["cpu"]', models=model), env) as pool:
        argv = python_module("benchmarks.calls_process", pool.endpoint, str(case.write(folder)), str(counters))
        log = folder / f"calls-{what}.log"
        process = LineProcess(argv, log, env)
        try:
            process.answer(START_S)
            blocks = process.ask({"jobs": JOBS, "blocks": BLOCKS}, ANSWER_S)
        finally:
            process.end()
    return {role: statistics.median(block[role] for block in blocks) / JOBS for role in ROLES}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="calls-") as temporary:
        folder = Path(temporary)
        case = STUB
        if "--stub" not in sys.argv[1:]:
            from benchmarks.models import make_of_numbers

            case = make_of_numbers(folder)["mlp"]
        counts = counted(case, folder)
    table = Table(
        "of a lone job", *ROLES, "together", title=f"{case.path.rpartition('/')[2]}, medians of {BLOCKS} blocks"
    )
    for what, by_role in counts.items():
        figures = [by_role[role] for role in ROLES]
        table.add_row(what, *(f"{figure:.1f}" for figure in figures), f"{sum(figures):.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
