"""`python -m pool.gateway …`: one process of a gateway. `pool start` and `pool gateway` start it; nobody else does."""

import argparse
import logging
import socket
import sys

from pool.gateway.settings import read_settings
from pool.wire.lifeline import die_with_parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="pool.gateway", description="One process of a gateway.")
    for name in ("--number", "--link-fd", "--settings-fd", "--socket-fd", "--counts-fd", "--parent"):
        parser.add_argument(name, type=int, required=True)
    given = parser.parse_args()
    try:
        die_with_parent(given.parent)
    except OSError as error:
        sys.exit(str(error))
    # The parent's log adds time and name.
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s: %(message)s")
    settings = read_settings(given.settings_fd)
    listener, link = socket.socket(fileno=given.socket_fd), socket.socket(fileno=given.link_fd)
    listener.setblocking(False)
    link.setblocking(False)
    from pool.gateway.main import run  # after the first act: it takes a while

    run(settings, listener, link, counts_fd=given.counts_fd)


if __name__ == "__main__":
    main()
