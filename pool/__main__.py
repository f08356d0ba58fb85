"""`pool start`: the demo model on two CPU workers."""

import argparse
import os
import sys
from pathlib import Path

from pool.serve.service import Service

__all__ = ["endpoint", "main"]

DEMO = Path(__file__).parent.parent / "workers" / "demo" / "digits"


def endpoint() -> str:
    if named := os.environ.get("POOL_ENDPOINT"):
        return named
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/pool-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return f"ipc://{folder}/pool.sock"


def main() -> None:
    parser = argparse.ArgumentParser(prog="pool")
    start = parser.add_subparsers(required=True).add_parser("start", help="start a pool")
    start.add_argument("--model", action="append", metavar="NAME=FOLDER", help="instead of the demo; may be repeated")
    start.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    models = dict(each.split("=", 1) for each in options.model or [f"digits={DEMO}"])
    where = endpoint()
    service = Service(where, models, options.workers)
    print(f"ready: {', '.join(models)} at {where}", file=sys.stderr, flush=True)
    service.run()


if __name__ == "__main__":
    main()
