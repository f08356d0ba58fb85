"""What encryption costs: processor time of both ends for one message over TCP, without CURVE and with it.

    python tests/benchmarks/curve.py        one line a size and way, the median of five rounds

A process sends to another one over the loopback interface, which answers with a byte. The pool takes no part.
"""

import multiprocessing
import resource
import statistics
from multiprocessing.connection import Connection

import zmq

SIZES = (64, 8_192, 602_112)  # a tiny job, a small one, an image
MESSAGES, ROUNDS = 300, 5


def spent_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def answer(link: Connection, keys: "tuple[bytes, bytes] | None") -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        if keys is not None:
            router.curve_server, router.curve_secretkey = True, keys[1]
        link.send(router.bind_to_random_port("tcp://127.0.0.1"))
        while True:
            if router.poll(50):
                route, _ = router.recv_multipart(copy=False)
                router.send_multipart([route, b"!"])
            elif link.poll():
                if not link.recv():
                    return
                link.send(spent_s())


def measured_us(size_bytes: int, encrypted: bool) -> float:
    """Both processes together, for one message and its answer."""
    keys = zmq.curve_keypair() if encrypted else None
    spawn = multiprocessing.get_context("spawn")
    link, theirs = spawn.Pipe()
    other = spawn.Process(target=answer, args=(theirs, keys))
    other.start()
    rounds: list[float] = []
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        if keys is not None:
            dealer.curve_serverkey = keys[0]
            dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.connect(f"tcp://127.0.0.1:{link.recv()}")
        data = bytes(size_bytes)
        for number in range(ROUNDS + 1):
            link.send(True)
            began = spent_s() + float(link.recv())
            for _ in range(MESSAGES):
                dealer.send(data, copy=False)
                dealer.recv()
            link.send(True)
            if number:  # the first warms both up
                rounds.append((spent_s() + float(link.recv()) - began) / MESSAGES * 1e6)
    link.send(False)
    other.join()
    return statistics.median(rounds)


def main() -> None:
    for size_bytes in SIZES:
        plain, encrypted = (measured_us(size_bytes, way) for way in (False, True))
        print(f"{size_bytes:>8,} bytes: {plain:,.0f} µs without CURVE, {encrypted:,.0f} µs with it")  # noqa: T201


if __name__ == "__main__":
    main()
