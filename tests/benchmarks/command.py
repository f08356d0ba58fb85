"""`python tests/benchmarks`: the pool beside the same models in this process, and beside its peers, in one run.

Prints one table, and writes `benchmarks.json` and `benchmarks.png` into `--out`. Needs `[worker,plot]`, for the peers
pip and `wrk`, for the bare path the folder that has it (`--stick`). About 20 minutes on two quiet cores with all of it;
`--quick --peers ''` takes four.
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Container, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from rich.console import Console

from benchmarks import report
from benchmarks.cases import Case
from benchmarks.models import make
from benchmarks.ours import Ours, serving
from benchmarks.peers.bouts import MODELS, bouts
from benchmarks.peers.doors import doors
from benchmarks.peers.environment import default_folder
from benchmarks.peers.peers import PEERS
from benchmarks.picture import draw
from benchmarks.reference import Reference
from benchmarks.run import Run
from benchmarks.sections import SECTIONS, measured

__all__ = ["main"]

PROBE_S = 2.0
WIDTH = 170


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    console = Console(stderr=True)
    began = time.monotonic()

    def say(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.0f} s[/] {text}", highlight=False)

    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        folder = Path(temporary)
        say("making the models")
        cases = make(folder, say)
        for case in cases.values():
            case.write(folder)
        references = {name: Reference(cases[name]) for name in MODELS}
        run = Run(folder, cases, references, options.rounds, options.seconds, say, stick=options.stick)
        gc.collect()
        gc.freeze()  # TensorFlow's half a million objects are no client's, and would be walked again and again
        try:
            _measure(run, options)
        finally:  # what was measured before a failure or Ctrl-C is shown all the same
            options.out.mkdir(parents=True, exist_ok=True)
            report.write(run, options.out / "benchmarks.json")
            report.show(run, Console(width=None if sys.stdout.isatty() else WIDTH))
            draw(run, options.out / "benchmarks.png")
            say(f"written: {options.out}/benchmarks.json and .png")
    if set(run.failures) & set(SECTIONS):
        sys.exit(1)  # of ours; that a peer fails is its own affair


def _measure(run: Run, options: argparse.Namespace) -> None:
    cases = list(run.cases.values())
    workers = options.workers or _best_workers(run, cases)
    run.settings["pool"] = f"{workers} workers"
    with serving(cases, workers) as client:
        measured(run, client, {name: SECTIONS[name] for name in options.sections})
        if not options.only_gateway:
            bouts(run, client, options.peers, options.models, options.peers_env)
        doors(run, client, options.peers, options.peers_env)


def _best_workers(run: Run, cases: Sequence[Case]) -> int:
    """What the peers are granted: one or two, whichever does more rows of `mlp` and `image`."""
    scores: dict[int, float] = {}
    for workers in (1, 2):
        run.say(f"probing the pool: {workers} workers")
        with serving(cases, workers) as client:
            rates = [Ours(client, run.references[name].turns).flow(PROBE_S) for name in ("mlp", "image")]
        scores[workers] = rates[0] * rates[1]
    return max(scores, key=lambda workers: scores[workers])


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python tests/benchmarks", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--peers", type=_words(PEERS), default=list(PEERS), help=f"of {', '.join(PEERS)}; '' for none")
    parser.add_argument(
        "--models", type=_words(MODELS), default=list(MODELS), help=f"to measure peers with: {', '.join(MODELS)}"
    )
    parser.add_argument("--sections", type=_words(SECTIONS), default=list(SECTIONS), help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--only-gateway", action="store_true", help="set no other way than the gateway against peers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn; of wrk's whole ones")
    parser.add_argument("--workers", type=int, default=0, help="of the pool; 0: one or two, by a probe")
    parser.add_argument("--quick", action="store_true", help="3 rounds of half a second")
    parser.add_argument("--stick", type=Path, help="the folder with straight.py and many.py, the bare path")
    parser.add_argument("--peers-env", type=Path, default=default_folder(), help="where they are installed")
    parser.add_argument("--out", type=Path, default=Path("build", "benchmarks"))
    options = parser.parse_args(argv)
    if options.quick:
        options.rounds, options.seconds = 3, 0.5
    return options


def _words(known: Container[str]) -> Callable[[str], list[str]]:
    def words(text: str) -> list[str]:
        chosen = [word for word in text.split(",") if word]
        unknown = [word for word in chosen if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is unknown")
        return chosen

    return words
