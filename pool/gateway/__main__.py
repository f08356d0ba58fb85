"""`python -m pool.gateway …`: one process of a gateway. `pool start` and `pool gateway` start it; nobody else does."""

import argparse
import logging
import socket
import sys

from pool.gateway.settings import read_settings
from pool.wire.lifeline import die_with_parent


def main() -> None:
    parser = argparse.ArgumentParser(prog="pool.gateway", description="One process of a gateway.")
    parser.add_argument("--number", type=int, required=True)  # it is in the settings, too; here a person sees it
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--settings-fd", type=int, required=True)
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--counts-fd", type=int, required=True)
    parser.add_argument("--accounts-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
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

    run(settings, listener, link, counts_fd=given.counts_fd, accounts_fd=given.accounts_fd)


if __name__ == "__main__":
    main()
