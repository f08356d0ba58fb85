"""What a process of the gateway is started with. That no digest is among it is for the tests with a real pool."""

from pool.processes.gateways.launch import gateway_launch
from pool.processes.launch import THREAD_BUDGETS


def launched(**environ: str) -> tuple[str, dict[str, str]]:
    launch = gateway_launch(
        number=1,
        link_fd=5,
        settings_fd=6,
        socket_fd=7,
        counts_fd=8,
        accounts_fd=9,
        parent_pid=123,
        environ=environ,
        python="/usr/bin/python3",
    )
    return " ".join(launch.argv), dict(launch.env)


def test_the_command_line() -> None:
    line, _ = launched()
    assert line == (
        "/usr/bin/python3 -P -m pool.gateway --number 1 --link-fd 5 --settings-fd 6 --socket-fd 7 --counts-fd 8"
        " --accounts-fd 9 --parent 123"
    )


def test_the_environment_is_the_parents_without_what_is_for_the_pool_alone() -> None:
    _, env = launched(PATH="/bin", NOTIFY_SOCKET="/run/n", WATCHDOG_USEC="3", LISTEN_FDS="1", POOL_ENDPOINT="gpu")
    assert env == {
        "PATH": "/bin",
        "POOL_ENDPOINT": "gpu",
        "PYTHONUNBUFFERED": "1",
        **dict.fromkeys(THREAD_BUDGETS, "1"),
    }


def test_a_budget_of_threads_that_the_user_has_set_stays() -> None:
    assert launched(OMP_NUM_THREADS="3")[1]["OMP_NUM_THREADS"] == "3"
