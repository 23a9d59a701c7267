"""Functions as jobs: run() starts one on many ranks, and returns what all of them return.

runner starts the ranks.  Each reads the function from its standard input, and prints what it returned, on
lines that only run() reads: nothing but the job's own connections carries it.  Both are pickles, and to
unpickle is to run code: a host that somebody has taken over takes over this one, too.
"""
from __future__ import annotations

import base64
import os
import pickle
import re
import secrets
import shutil
import site
import subprocess
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, TypeVar

from . import trust

R = TypeVar("R")

_HERE = os.path.dirname(os.path.abspath(__file__))

# What Horovod's run() takes, and the option of runner's that says it.  runner ignores or refuses, in words,
# what makes no sense here.
_OPTIONS = {
    "min_num_proc": "--min-np", "max_num_proc": "--max-np", "slots": "--slots",
    "reset_limit": "--reset-limit", "cooldown_range": "--blacklist-cooldown-range", "hosts": "-H",
    "hostfile": "--hostfile", "host_discovery_script": "--host-discovery-script",
    "start_timeout": "--start-timeout", "ssh_port": "-p", "ssh_identity_file": "-i",
    "disable_cache": "--disable-cache", "output_filename": "--output-filename", "verbose": "-v",
    "use_gloo": "--gloo", "use_mpi": "--mpi", "mpi_args": "--mpi-args",
    "network_interfaces": "--network-interfaces",
}
# Not -m: that looks in the current folder first, which may be like /tmp.
_RANK = ("import sys; sys.path[:] = [p for p in sys.path if p]; from berth.launch_rank import main; "
         "sys.exit(main())")
_LABEL = re.compile(rb"(\A|\] |<stdout>:)\Z")


def runner_path() -> str:
    """runner's file: of the tree, of the installation that this package is in, or in PATH."""
    refused = ""
    for root in ("../../../build/bin", "../../../../bin"):
        path = os.path.normpath(os.path.join(_HERE, root, "runner"))
        if os.access(path, os.X_OK):
            reason = trust.refusal(_HERE, path)
            if not reason:
                return path
            refused = f" (another user could replace {path}: {reason})"
    found = shutil.which("runner")
    if not found:
        raise FileNotFoundError(f"no runner in PATH{refused}: build it with make and install it with make "
                                "install, or add its directory to PATH")
    return found


def run(func: Callable[..., R], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None,
        num_proc: int = 1, min_num_proc: int | None = None, max_num_proc: int | None = None,
        slots: int | None = None, reset_limit: int | None = None,
        cooldown_range: Sequence[int] | None = None, hosts: str | None = None, hostfile: str | None = None,
        host_discovery_script: str | None = None, start_timeout: int | None = None,
        ssh_port: int | None = None, ssh_identity_file: str | None = None, disable_cache: bool | None = None,
        output_filename: str | None = None, verbose: int | bool | None = None, use_gloo: bool | None = None,
        use_mpi: bool | None = None, mpi_args: str | None = None,
        network_interface: str | Sequence[str] | None = None,
        network_interfaces: str | Sequence[str] | None = None, executable: str | None = None,
        np: int | None = None, min_np: int | None = None, max_np: int | None = None) -> List[R]:
    """Call FUNC(*ARGS, **KWARGS) on NUM_PROC ranks (or NP), and return a list of what it returns, in the
    order of the ranks.  The output of the ranks is shown here.

    HOSTS: "a:8,b:8"; without it and HOSTFILE, this machine.
    HOSTFILE: a file of hosts.
    EXECUTABLE: the Python of the ranks, on each host; this one.
    START_TIMEOUT: seconds.

    MIN_NUM_PROC, MAX_NUM_PROC: the number of ranks follows the hosts; the list has as many results as there
    were ranks at the end.

    The others are options of runner's.  cloudpickle, if it is there, lets FUNC be of any kind; else FUNC must
    be importable on each host.

    What FUNC returns on a host comes here as a pickle: a host that somebody has taken over can run code
    here.

    RuntimeError: FUNC raised one, with the traceback of the rank that raised it; or the job failed.
    ValueError: FUNC is not importable.  FileNotFoundError: there is no runner.

    >>> hvd.run(max, args=(1, 2), np=2)
    [2, 2]
    """
    given = {k: v for k, v in locals().items() if k in _OPTIONS}
    given.update({k: v for k, v in (("min_num_proc", min_np), ("max_num_proc", max_np)) if v is not None})
    if network_interface:
        given["network_interfaces"] = network_interface
    ranks = num_proc if np is None else np
    if not hosts and not hostfile and not host_discovery_script:
        given["hosts"] = f"localhost:{ranks}"
    mark = f"berth-{secrets.token_hex(16)}"
    command = [runner_path(), "-np", str(ranks), "--stdin", "all", "--show", "all", *_folder(executable),
               *_words(given), executable or sys.executable, "-c", _RANK]
    status, ends = _start(command, _payload(mark, func, args, kwargs or {}), mark)
    changes = given.keys() & {"min_num_proc", "max_num_proc", "host_discovery_script"}
    return _results(ends, max(ends, default=-1) + 1 if changes else ranks, status)


def _folder(executable: str | None) -> List[str]:
    """What lets the ranks find this package, on each host where it is and nobody else could change it.  What
    the user names in PYTHONPATH is taken as it is, and an interpreter finds its own packages.
    """
    folder = os.path.dirname(_HERE)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if executable in (None, sys.executable):
        known += [*site.getsitepackages(), site.getusersitepackages()]
    if os.path.realpath(folder) in [os.path.realpath(path) for path in known if path]:
        return []
    return ["--berth-folder", folder]


def _words(given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if value is None or value is False:
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        if value is True or name == "verbose":
            values = []
        elif name == "network_interfaces":
            values = [",".join(values)]
        yield _OPTIONS[name]
        yield from map(str, values)


def _payload(mark: str, func: Callable[..., object], args: Sequence[object],
             kwargs: Mapping[str, object]) -> bytes:
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
        if getattr(func, "__module__", None) == "__main__" or "<" in getattr(func, "__qualname__", "<"):
            raise ValueError(f"{func} is not importable on the ranks: install cloudpickle, or move it into "
                             "a module") from None
    function: bytes = pickler.dumps((func, args, kwargs))
    return pickle.dumps((mark, sys.path)) + function


def _start(command: List[str], payload: bytes, mark: str) -> tuple[int, Dict[int, bytes]]:
    """(runner's status, {rank: the bytes of its end}), with the ranks' output passed on."""
    parts: Dict[int, List[bytes]] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        assert runner.stdin and runner.stdout
        try:
            runner.stdin.write(payload)
            runner.stdin.close()
        except BrokenPipeError:
            pass  # runner says why it ended
        for line in runner.stdout:
            text, found, part = line.partition(mark.encode())
            if found:
                rank, data = part.split()
                parts.setdefault(int(rank), []).append(base64.b64decode(data))
                if _LABEL.search(text):
                    continue
                line = text + b"\n"  # the rank had not ended its own line
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()
    return runner.returncode, {rank: b"".join(data) for rank, data in parts.items()}


def _results(ends: Dict[int, bytes], ranks: int, status: int) -> List[Any]:
    """Of a rank that was ended early only a part may have come.  A rank that raised has status 1: with
    another one it was not what ended the job.
    """
    results, raised = {}, []
    for rank, data in ends.items():
        try:
            failed, value = pickle.loads(data)
        except Exception:
            if not status:
                raise
            continue
        if failed:
            raised.append(f"rank {rank} raised:\n{value}")
        else:
            results[rank] = value
    if raised and status == 1:
        raise RuntimeError(raised[0])
    if status or len(results) != ranks:
        raise RuntimeError(f"runner ended with status {status}, and {ranks - len(results)} of {ranks} ranks "
                           "returned nothing: see its messages on stderr")
    return [results[rank] for rank in range(ranks)]
