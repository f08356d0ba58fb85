"""What a worker is started with."""

import os

import pytest

from pool.devices import Device
from pool.processes.launch import Launch, cpu_share, worker_launch

GPUS = Device("gpu", ("GPU-a", "GPU-b"), "gpu:0+1", "H200 + H200", None, (0, 1))
CPU = Device("cpu", (), "cpu:0", "CPU", None)
BUDGETS = [
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
]


def launched(device: Device, environ: dict[str, str]) -> Launch:
    return worker_launch(
        slot=3,
        incarnation=7,
        device=device,
        endpoint="ipc:///run/pool/workers.sock",
        link_fd=9,
        parent_pid=123,
        cpu_share=2,
        environ=environ,
        python="/usr/bin/python3",
    )


def test_the_command_line() -> None:
    line = (
        "/usr/bin/python3 -P -m workers --endpoint ipc:///run/pool/workers.sock --slot 3 --incarnation 7"
        " --link-fd 9 --parent 123 --visible-devices"
    )
    assert launched(GPUS, {}).argv == (*line.split(), "GPU-a,GPU-b")
    assert launched(CPU, {}).argv == (*line.split(), "")


def test_the_file_for_its_stacks_is_named_where_there_is_one() -> None:
    argv = worker_launch(
        slot=0,
        incarnation=1,
        device=CPU,
        endpoint="ipc:///none",
        link_fd=9,
        stacks_fd=11,
        parent_pid=123,
        cpu_share=1,
        environ={},
        python="python3",
    ).argv
    assert argv[-2:] == ("--stacks-fd", "11")


def test_a_worker_that_is_bound_has_a_thread_for_each_core() -> None:
    launch = worker_launch(
        slot=0,
        incarnation=1,
        device=CPU,
        endpoint="ipc:///none",
        link_fd=9,
        parent_pid=123,
        cpu_share=1,
        cores=(4, 5, 8),
        environ={},
        python="python3",
    )
    assert launch.argv[-2:] == ("--cores", "4,5,8")
    assert {launch.env[key] for key in BUDGETS} == {"3"}


def test_a_gpu_worker_sees_its_gpus_and_has_no_thread_budget() -> None:
    assert launched(GPUS, {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "7", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}).env == {
        "PATH": "/bin",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }


def test_a_cpu_worker_sees_no_gpu_and_has_its_share_of_the_cores() -> None:
    env = launched(CPU, {"CUDA_VISIBLE_DEVICES": "0"}).env
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert {key: env[key] for key in BUDGETS} == dict.fromkeys(BUDGETS, "2")


def test_what_the_user_has_set_stays() -> None:
    environ = {**dict.fromkeys(BUDGETS, "5"), "TF_CPP_MIN_LOG_LEVEL": "0"}
    env = launched(CPU, environ).env
    assert {key: env[key] for key in environ} == environ


def test_what_systemd_gave_the_pool_is_not_passed_on() -> None:
    own = ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"]
    assert not set(own) & set(launched(GPUS, dict.fromkeys(own, "1")).env)


def test_neither_environment_is_touched() -> None:
    before, given = dict(os.environ), {"NOTIFY_SOCKET": "/x"}
    launched(CPU, given)
    assert given == {"NOTIFY_SOCKET": "/x"}
    assert dict(os.environ) == before


@pytest.mark.parametrize(("cores", "slots", "share"), [(8, 2, 4), (3, 2, 1), (1, 4, 1), (4, 0, 4)])
def test_the_cores_are_shared(cores: int, slots: int, share: int) -> None:
    assert cpu_share(cores, slots) == share
