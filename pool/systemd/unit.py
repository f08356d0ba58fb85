"""The text of `tf-worker-pool.service`, or of `pool@.service`, of which each pool with a name is an instance.

Pure: what stands in it is given, nothing is looked up.
"""

import math
from collections.abc import Sequence

from pool.errors import InvalidConfig

__all__ = ["TEMPLATE_NAME", "UNIT_NAME", "unit"]

UNIT_NAME = "tf-worker-pool.service"
TEMPLATE_NAME = "pool@.service"  # `pool@NAME.service` is an instance

MARGIN_S = 10.0  # for what the pool does before its first worker and after its last: imports, files, the exit itself

_START_LIMIT = """\
# This restarts the pool alone: the pool restarts its workers itself. After three failed starts the pool stays down.
# `systemctl status` shows the reason.
StartLimitIntervalSec=300
StartLimitBurst=3
"""

_RUNNING = """\
# SIGTERM goes to the pool alone, which drains its workers. SIGKILL goes to all that is left after the time-out.
KillMode=mixed
Restart=on-failure
RestartSec=5
# 2 is a refused configuration, and a new start would refuse it again. After 3 (no slot left) and 4 (an internal
# fault), a new start may help.
RestartPreventExitStatus=2
# The pool's loop itself reports to systemd. A loop that hangs for this time is killed, and its workers end with it.
WatchdogSec=30
# The kernel kills a worker. The pool answers its jobs and starts another, so the service goes on.
OOMPolicy=continue
# The pool limits what it logs of each worker. The journal's own limit would also drop the pool's lines.
LogRateLimitIntervalSec=0
UMask=0077
"""

# What seccomp and no_new_privs do without any privilege: for a user's own manager too.
_CONFINED = """\
NoNewPrivileges=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
LockPersonality=yes
# AF_NETLINK: libraries use it to list the machine's network interfaces.
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
# MemoryDenyWriteExecute is not set: XLA and the CUDA driver compile kernels into memory and run them.
"""

_FOLDERS = """\
# The pool listens in $RUNTIME_DIRECTORY and keeps the inputs of deadly jobs in $STATE_DIRECTORY.
RuntimeDirectory={folder}
RuntimeDirectoryMode={mode}
StateDirectory={folder}
StateDirectoryMode=0700
# Compiled kernels outlive the pool: without a cache each start on a new GPU takes minutes.
CacheDirectory={folder}
CacheDirectoryMode=0700
Environment=CUDA_CACHE_PATH=%C/{folder}
"""

_ISOLATED = """\
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
# ProcSubset=pid is not set: the driver's libraries read /proc/driver/nvidia, and the pool reads the number of cores.
# PrivateUsers is not set: the pool knows its clients by their user ids.
# PrivateNetwork and IPAddressDeny are not set: [pool] listen may have TCP endpoints.
"""

# A group, for a path of DeviceAllow takes no wildcard. It covers nvidia-frontend too, an older driver's nvidia and
# nvidiactl.
_DEVICES = """\
# PrivateDevices is not set: it would hide the GPUs. It opens NVIDIA's devices, /dev/null and the like instead.
# NVIDIA's are the groups nvidia* of /proc/devices: nvidia0 and on, nvidiactl, nvidia-uvm, nvidia-caps and so on.
# systemd looks them up when the pool starts, so load the driver's modules before. The set-uid nvidia-modprobe cannot
# load them here: it has no privilege.
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
"""


def unit(
    *,
    executable: str,
    config: str,
    user_unit: bool,
    start_s: float,
    stop_s: float,
    user: str | None = None,
    writable: Sequence[str] = (),
    private_tmp: bool = True,
    endpoint: str | None = None,
    group: str | None = None,
    template: bool = False,
) -> str:
    """A unit that runs `executable -P -m pool start --config config`.

    `executable` is the Python that the pool is installed in; it and `config` are absolute paths.
    `user_unit`: for a user's own manager, which lacks the privilege for namespaces, devices and capabilities, so these
    parts are left out, and `user`, `writable` and `private_tmp` mean nothing. `start_s`, `stop_s`: the longest that the
    pool's start and end may take; a margin is added. `user`: whom a system unit runs as, None: root. `writable`:
    folders outside of systemd's own that the pool writes into. `private_tmp`: whether the service has a /tmp of its
    own. `endpoint`: where the pool is to be asked to reload, None: where a pool of this service is by default.
    `group`: whose members may connect; None: nobody else. `template`: for each NAME whose configuration is
    `NAME.toml` in the folder of `config`.

    Raises `InvalidConfig` for a path or name that cannot be said in a unit.
    """
    folder, served, asked = "pool", _argument(config), "" if endpoint is None else f" --endpoint {_argument(endpoint)}"
    if template:
        file = "%i.toml".join(_argument(f"{config.rpartition('/')[0]}/%i.toml").rsplit("%%i.toml", 1))
        folder, served, asked = "pool-%i", f"{file} --name %i", " --name %i"
    service = [
        "Type=notify\nNotifyAccess=main\n",
        # `-P`: what lies in the working directory must not stand in for the pool.
        f"ExecStart={_program(executable)} -P -m pool start --config {served}\n",
        # Not `kill -HUP`: so `systemctl reload` waits for the answer, and fails with its reason.
        f"ExecReload={_program(executable)} -P -m pool reload{asked}\n",
        f"# Importing, loading and warming up, as [health] allows.\nTimeoutStartSec={_whole(start_s)}\n",
        f"# Draining, then the workers' ends.\nTimeoutStopSec={_whole(stop_s)}\n",
        f"{_RUNNING}SyslogIdentifier={folder}\n",
    ]
    if user_unit:
        # RuntimeDirectory is not set: the pool makes the same folder itself, and the manager would remove it from under
        # a pool that was started by hand. StateDirectory: before systemd 254 that was ~/.config.
        about = "# Runs while you are logged in; `loginctl enable-linger` has it run from boot on.\n"
        confined = [_CONFINED]
        target = "default.target"
    else:
        about = "After=network.target nvidia-persistenced.service\n"
        confined = [
            f"User={_name(user)}\n" if user is not None else "",
            f"# Its members may connect.\nSupplementaryGroups={_name(group)}\n" if group else "",
            _FOLDERS.format(folder=folder, mode="0711" if group else "0700"),
            _CONFINED,
            _ISOLATED,
            _tmp(private_tmp),
            "".join(f"ReadWritePaths={_quoted(f'-{folder}')}\n" for folder in writable),
            _DEVICES,
        ]
        target = "multi-user.target"
    return (
        "# Written by `pool systemd`.\n"
        f"[Unit]\nDescription=TensorFlow worker {folder.replace('-', ' ')}\n{about}{_START_LIMIT}\n"
        f"[Service]\n{''.join(service)}{''.join(confined)}\n"
        f"[Install]\nWantedBy={target}\n"
    )


def _whole(longest_s: float) -> int:
    return math.ceil(longest_s + MARGIN_S)


def _tmp(private: bool) -> str:
    if private:
        return "PrivateTmp=yes\n"
    return "# PrivateTmp is not set: the pool's endpoint, or something that it reads, lies in /tmp or /var/tmp.\n"


def _program(path: str) -> str:
    """The first word of a command is read by rules of its own: nothing is expanded in it, no quote may stand in it."""
    if not path.startswith("/") or set(path) & set("\"'\\$"):
        raise InvalidConfig(f"systemd cannot run {path!r}: it must be absolute, without quotes, '\\' and '$'")
    return _quoted(path)


def _argument(text: str) -> str:
    return _quoted(text).replace("$", "$$")


def _quoted(text: str) -> str:
    """One word of a line, in quotes where it needs them, with nothing for the manager to expand but `$`."""
    _printable(text)
    escaped = text.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return escaped if escaped == text and not set(text) & set(" ';#") else f'"{escaped}"'


def _name(user: str) -> str:
    _printable(user)
    return user.replace("%", "%%")


def _printable(text: str) -> None:
    if not text.isprintable():  # a line break would begin a line of its own
        raise InvalidConfig(f"{text!r} cannot stand in a systemd unit: it has characters that are not printable")
