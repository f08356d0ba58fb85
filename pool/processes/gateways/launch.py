"""What `Popen` needs for one process of the gateway. Pure, as `pool.processes.launch`."""

from collections.abc import Mapping

from pool.processes.launch import THREAD_BUDGETS, Launch, inherited

__all__ = ["gateway_launch"]


def gateway_launch(
    *,
    number: int,
    link_fd: int,
    settings_fd: int,
    socket_fd: int,
    counts_fd: int,
    accounts_fd: int,
    parent_pid: int,
    environ: Mapping[str, str],
    python: str,
) -> Launch:
    """`link_fd`: its end of the socketpair; `settings_fd`: a file with its settings; `socket_fd`: where it accepts.
    `counts_fd`, `accounts_fd`: files where all of them count their requests, and write what they hold.

    The caller passes them on with `pass_fds`. It does no arithmetic, so numpy's libraries start one thread.
    """
    argv = (
        python,
        *("-P", "-m", "pool.gateway"),  # `-P`: as for a worker
        *("--number", str(number)),
        *("--link-fd", str(link_fd)),
        *("--settings-fd", str(settings_fd)),
        *("--socket-fd", str(socket_fd)),
        *("--counts-fd", str(counts_fd)),
        *("--accounts-fd", str(accounts_fd)),
        *("--parent", str(parent_pid)),
    )
    env = inherited(environ)
    env["PYTHONUNBUFFERED"] = "1"
    for name in THREAD_BUDGETS:
        env.setdefault(name, "1")
    return Launch(argv, env)
