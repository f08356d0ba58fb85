"""`python -m workers …`: one worker process. Its first acts: to tie its life to the pool's, and to look around."""

import os
import signal
import sys
from typing import NoReturn

from pool.wire.exits import Exit
from workers import environment, stacks
from workers.leaving import leave


def main() -> NoReturn:
    # The pool decides when a worker stops; a terminal's Ctrl-C or systemd's SIGTERM to the group would cut a drain.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assignment = environment.parse(sys.argv[1:])
    except environment.OtherCommandLine as error:
        text = f"this command line is not from a pool of this release: {error}"
        print(text, file=sys.stderr)  # noqa: T201  # the pool reads this
        leave(Exit.OTHER_RELEASE)
    try:
        environment.die_with_parent(assignment.parent)
        stacks.hand_out(assignment.stacks_fd)
        environment.check(assignment, os.environ)
        environment.bind(assignment.cores)
    except environment.WrongEnvironment as error:
        print(f"worker of slot {assignment.slot}: {error}", file=sys.stderr)  # noqa: T201  # the pool reads this
        leave(Exit.WRONG_ENVIRONMENT)
    from workers.worker import run

    leave(run(assignment))


if __name__ == "__main__":
    main()
