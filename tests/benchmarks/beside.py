"""Images side by side in shared memory: `python tests/benchmarks/beside.py [--than TREE] [--rounds 5] [--seconds 2]`.

64 jobs in flight, each a float32 image of 224 × 224 × 3 (a multiple of 64 bytes) or of 299 × 299 × 3 (none), for a
model that is next to nothing: the way is what is measured. Told are rows a second, the processor time of a row in the
client, in the pool and in the worker, and which share of the rows the lane copied. `--than`: another checkout, whose
client, pool and worker take turns with ours; then ratios within a round are told too.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the folder above: the names here would hide others

from rich.console import Console
from rich.table import Table

from benchmarks.line_process import LineProcess
from benchmarks.processor import spent
from support.pool_process import pool_process, stub_config

__all__: list[str] = []

OURS = Path(__file__).resolve().parents[2]
HOOK = Path(__file__).resolve().parents[1] / "support" / "feed_hook"
EDGES, WAYS, BATCH = (224, 299), ("submit", "map"), 32
START_S, ANSWER_S = 300.0, 60.0
MAKE = """
import sys, tensorflow as tf
for edge in map(int, sys.argv[2:]):
    module = tf.Module()
    sums = tf.function(
        lambda x: {"y": tf.reduce_sum(x[:, ::8, ::8], [1, 2, 3])},
        input_signature=[tf.TensorSpec([None, edge, edge, 3], name="x")],
    )
    tf.saved_model.save(module, f"{sys.argv[1]}/sum{edge}", signatures=sums)
"""

Figures = dict[str, float]


@dataclass
class Side:
    """A checkout's pool with one worker, and its clients. Figures by what is asked, one a round."""

    name: str
    pool: int  # its pid
    counts: Path
    clients: dict[int, LineProcess]
    figures: dict[tuple[int, str], list[Figures]] = field(default_factory=dict)

    def turn(self, edge: int, way: str, seconds: float) -> None:
        (worker,) = [int(path.name.partition("-")[2]) for path in self.counts.iterdir()]
        before = spent(self.pool), spent(worker), self._feeds()
        found: Figures = self.clients[edge].ask({"way": way, "seconds": seconds}, seconds + ANSWER_S)
        rows = int(found["rows"])
        found["pool"] = spent(self.pool).since(before[0]).each(rows)[0] * 1e3
        found["worker"] = spent(worker).since(before[1]).each(rows)[0] * 1e3
        viewed, copied = (now - then for now, then in zip(self._feeds()[2:], before[2][2:], strict=True))
        found["copied"] = copied / max(1, viewed + copied)
        self.figures.setdefault((edge, way), []).append(found)

    def _feeds(self) -> tuple[int, ...]:
        (path,) = self.counts.iterdir()
        return tuple(memoryview(path.read_bytes()).cast("Q"))


@contextmanager
def serving(name: str, tree: Path, folder: Path, models: Path) -> Iterator[Side]:
    counts = folder / "counts"
    counts.mkdir(parents=True)
    named = [f'[[model]]\nname = "sum{edge}"\npath = "{models}/sum{edge}"\nmax_batch = {BATCH}\n' for edge in EDGES]
    environ = {"FEEDS_INTO": str(counts), "PYTHONPATH": os.pathsep.join((str(HOOK), str(tree)))}
    clients: dict[int, LineProcess] = {}
    with pool_process(stub_config(devices='["cpu"]', models="".join(named)), environ) as pool:
        try:
            for edge in EDGES:
                argv = [sys.executable, "-P", "-m", "benchmarks.beside_process", pool.endpoint, str(edge)]
                clients[edge] = LineProcess(argv, folder / f"client-{edge}.log", {"PYTHONPATH": str(tree)})
                clients[edge].answer(START_S)
            yield Side(name, pool.pid, counts, clients)
        finally:
            for client in clients.values():
                client.end()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python tests/benchmarks/beside.py", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--than", type=Path, help="another checkout, to be compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    trees = {"ours": OURS, **({"other": options.than.resolve()} if options.than else {})}
    with tempfile.TemporaryDirectory(prefix="beside-") as temporary, ExitStack() as stack:
        models = Path(temporary, "models")
        subprocess.run([sys.executable, "-c", MAKE, models, *map(str, EDGES)], check=True, capture_output=True)
        sides = [
            stack.enter_context(serving(name, tree, Path(temporary, name), models)) for name, tree in trees.items()
        ]
        for number in range(options.rounds):
            for edge in EDGES:
                for way in WAYS:
                    for side in sides[:: 1 if number % 2 else -1]:
                        side.turn(edge, way, options.seconds)
    _show(sides)


def _show(sides: list[Side]) -> None:
    names = {"rate": "rows/s", "client": "client, ms", "pool": "pool, ms", "worker": "worker, ms", "copied": "copied"}
    table = Table("edge", "way", "", *names.values(), title="medians of the rounds; ratios of ours to the other")
    for edge in EDGES:
        for way in WAYS:
            for side in sides:
                figures = side.figures[edge, way]
                table.add_row(
                    str(edge),
                    way,
                    side.name,
                    *[f"{statistics.median(each[name] for each in figures):.3g}" for name in names],
                )
            if len(sides) > 1:
                ours, other = (side.figures[edge, way] for side in sides)
                ratios = []
                for name in list(names)[:-1]:
                    found = sorted(one[name] / two[name] for one, two in zip(ours, other, strict=True))
                    ratios.append(f"{statistics.median(found):.2f} ({found[0]:.2f}–{found[-1]:.2f})")
                table.add_row(str(edge), way, "ratio", *ratios, "")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
