"""`pool doctor`: whether TensorFlow and the GPUs of this machine are what a pool needs.

TensorFlow and NVML run in processes of their own, each with a time-out, for a driver may hang in any call.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial

import click

from pool.cli.screen import as_json, echo_json
from pool.devices import Device, cpu_share, environment, slots
from pool.devices.monitor import Monitor
from pool.errors import PoolError
from pool.log import printable


@click.command()
@click.option("--timeout", type=click.FloatRange(1), default=150.0, show_default=True, help="Of each try, in seconds.")
@as_json
def doctor(timeout: float, as_json: bool) -> int:
    """Check whether TensorFlow works here, on the CPU and on each GPU. Exit status 1 if not."""
    found = []

    def look(check: str, act: Callable[[], str]) -> None:
        try:
            verdict, text = "ok", act()
        except PoolError as error:
            verdict, text = "failure", str(error)
        found.append({"check": check, "verdict": verdict, "text": text})
        if not as_json:
            click.echo(f"{click.style(verdict, 'green' if verdict == 'ok' else 'red')}: {check}: {printable(text)}")

    gpus: list[Device] = []
    look("NVML", partial(listed, gpus))
    for device in (Device("cpu"), *gpus):
        look(device.label, partial(tried, device, timeout))
    if as_json:
        echo_json(found)
    return int(any(each["verdict"] == "failure" for each in found))


def listed(gpus: list[Device]) -> str:
    """Adds those that a pool would use."""
    with closing(Monitor()) as monitor:
        gpus += [device for device in slots(None, os.environ, monitor) if device.uuids]
    return f"GPUs that can be used: {len(gpus)}"


def tried(device: Device, timeout_s: float) -> str:
    """What `workers.probe` says of a device."""
    environ = environment(device, os.environ, {"log_device_placement": False}, cpu_share([device]))
    argv, pipe = [sys.executable, "-P", "-m", "workers.probe", str(len(device.uuids))], subprocess.PIPE
    child = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        texts = [output.decode(errors="replace").strip() for output in child.communicate(timeout=timeout_s)]
    except subprocess.TimeoutExpired:
        raise PoolError(f"TensorFlow is silent for {timeout_s:g} s: see `nvidia-smi`, or give --timeout") from None
    finally:
        child.kill()  # and not waited for: the driver may hold it
    said, errors = (text.rpartition("\n")[2] for text in texts)
    if child.returncode:
        raise PoolError(f"TensorFlow ends its process with status {child.returncode}: {errors:.600}")
    return f"{said}, computes on {device.name}"
