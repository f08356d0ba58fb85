"""A client whose rows are images: `ENDPOINT EDGE`. The model is named after it and gives the sum of each.

Asked `{"way": "submit", "seconds": 1.0}` it answers with the rows a second and its own processor time a row, in
milliseconds. `submit` has 64 in flight, and is answered before the next 64; `map` keeps 64 in flight.
"""

import json
import sys
import time
from collections.abc import Iterator

import numpy as np

from pool import Client

__all__: list[str] = []

IN_FLIGHT, DISTINCT, UP_S = 64, 16, 300.0


def main(endpoint: str, edge: int) -> None:
    rng = np.random.default_rng(edge)
    images = [rng.integers(0, 9, (1, edge, edge, 3)).astype(np.float32) for _ in range(DISTINCT)]
    sums = [float(image[0, ::8, ::8].sum()) for image in images]
    model = f"sum{edge}"
    with Client(endpoint, connect_timeout=UP_S) as client:

        def submitted(end: float) -> Iterator[float]:
            while time.perf_counter() < end:
                turns = [images[number % DISTINCT] for number in range(IN_FLIGHT)]
                yield from [
                    float(future.result()["y"][0]) for future in [client.submit(model, image) for image in turns]
                ]

        def mapped(end: float) -> Iterator[float]:
            def rows() -> "Iterator[np.ndarray[tuple[int, ...], np.dtype[np.float32]]]":
                while time.perf_counter() < end:
                    yield from images

            for answer in client.map(model, rows(), in_flight=IN_FLIGHT):
                yield float(answer["y"][0])

        ways = {"submit": submitted, "map": mapped}

        def turn(way: str, seconds: float) -> dict[str, float]:
            began, spent, rows = time.perf_counter(), time.process_time(), 0
            for found in ways[way](began + seconds):
                assert found == sums[rows % DISTINCT], (rows, found)
                rows += 1
            took = time.perf_counter() - began
            return {"rows": rows, "rate": rows / took, "client": (time.process_time() - spent) / rows * 1e3}

        client.run(model, images[0], timeout=UP_S)
        for way in ways:
            turn(way, 1.0)  # the proof that rows are independent is over by then
        print(json.dumps({"ready": True}), flush=True)  # noqa: T201
        for line in sys.stdin:
            print(json.dumps(turn(**json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
