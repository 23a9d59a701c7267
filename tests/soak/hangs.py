#!/usr/bin/env python3
"""hangs.py RUNNER PROGRAM [--times N] [--quiet-s S] [--busy N] [--options O]: ranks that hang, and ranks
that do not.

N times (20) for each way to hang one rank of tests/helpers/elastic.c, at random, hangs at a random step:
it alone has to be named, it starts again, and the training ends as if undisturbed.  The ways: stopped; on a
lock in C, or in Python; in an endless loop; in the kernel, as the parent of vfork(2), or reading from a file
system of FUSE whose server is stopped (as root).  Then S seconds (7200) of training in which rank 0 saves for
10 steps at random moments and nobody hangs, with a limit of 0.2 s: nobody may be named.  Beside that run N
loops a CPU, and the kernel gives a third as much to all ranks together as to one of these.
"""
import argparse
import ctypes
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LOCK = """
import sys, threading
import berth
who, when = int(sys.argv[1]), int(sys.argv[2])
berth.init()
for step in range(25):
    if step == when and berth.rank() == who:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    berth.broadcast_object(step, 0)
"""
END = re.compile("^4 ranks, [0-9]+ steps$", re.M)  # 40, or more: they wait for all
FUSE = pathlib.Path(__file__).parents[1] / "cluster/fuse.py"
WAYS = {"s": "SIGSTOP", "l": "a lock in C", "r": "an endless loop", "v": "D: a parent of vfork",
        "p": "a lock in Python", "d": "a read from a stopped FUSE"}


class Fuse:
    """A file system whose server is stopped once a rank reads; WHERE it is, or None."""

    def __init__(self, folder):
        self.where, self.server = None, None
        if os.geteuid() or not os.path.exists("/dev/fuse"):
            return
        mount, contents = folder / "fuse", folder / "contents"
        mount.mkdir()
        contents.write_text("x\n")
        self.server = subprocess.Popen([sys.executable, FUSE, mount, contents, contents], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if self.server.stdout.readline() == "ready\n":
            (mount / "agent-x").open().close()
            self.server.send_signal(signal.SIGSTOP)
            self.where = mount

    def close(self):
        if self.where:
            self.server.send_signal(signal.SIGCONT)
            ctypes.CDLL(None).umount2(str(self.where).encode(), 2)  # MNT_DETACH
        if self.server:
            self.server.kill()
            self.server.wait()


def run(a, folder, program, ranks=4, limit_s=300):
    """Its status, what it printed, its events."""
    events = folder / "events"
    events.unlink(missing_ok=True)
    command = [a.runner, "--no-tag", "--oversubscribe", "--restarts", "3", "--events", events,
               *a.options.split(), "-np", str(ranks), *program]
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=limit_s,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return done.returncode, done.stdout, [json.loads(line) for line in events.read_text().splitlines()]


def hang(a, folder, way, fuse):
    """Whether the one that hangs was named, alone, and what followed was right; how long that took."""
    rank, step = random.randrange(4), random.randrange(1, 20)
    if way == "p":
        options = ["-x", f"PYTHONPATH={a.python}", "-x", f"BERTH_LIBRARY={a.library}", "-x",
                   "PYTHONFAULTHANDLER=1"]
        program = ["--hang-timeout", "1", "--on-hang", "kill", *options,
                   "/usr/bin/python3", folder / "lock.py", rank, step]
    else:
        program = ["--hang-timeout", "0.4", "-x", f"ELASTIC_READS={fuse.where}/agent-x", a.program, 40, 1,
                   "all", f"{rank}@{step}{way}"]
    status, said, events = run(a, folder, program)
    named = [e for e in events if e["event"] == "hang"]
    if way == "p":  # in no elastic world: the others cannot go on
        first = named[0].get("rank") == rank if named else False
        good = first and all(e.get("rank") == rank for e in named) and "lock.py\", line 10 in" in said
    else:
        good = status == 0 and [e.get("rank") for e in named] == [rank] and END.search(said)
        good = good and len([e for e in events if e["event"] == "rank starts again"]) == 1
    if not good:
        print(f"way {way}, rank {rank}, step {step}: status {status}, {named}\n{said}", flush=True)
    return good


def ways(a, folder):
    fine, fuse = True, Fuse(folder)
    (folder / "lock.py").write_text(LOCK)
    try:
        for way in a.ways:
            if way == "d" and not fuse.where:
                print(f"{WAYS[way]:28} cannot be mounted here", flush=True)
                continue
            took, good = [], 0
            for _ in range(a.times):
                begun = time.monotonic()
                good += hang(a, folder, way, fuse)
                took.append(time.monotonic() - begun)
            job_s = statistics.median(took)
            print(f"{WAYS[way]:28} named {good} of {a.times}; a job took {job_s:.1f} s", flush=True)
            fine &= good == a.times
    finally:
        fuse.close()
    return fine


def begin_loops(n):
    """Each in a session of its own, for which the kernel counts it alone, as it does the ranks."""
    return [subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"],
                             start_new_session=True)
            for cpu in os.sched_getaffinity(0) for _ in range(n)]


def quiet(a, folder):
    """Nobody is named in a long training."""
    loops, lower = begin_loops(a.busy), []
    if loops:
        lower = ["sh", "-c", 'echo 5 > /proc/self/autogroup; exec "$@"', "sh"]
    try:
        return train(a, folder, lower)
    finally:
        for one in loops:
            one.kill()
            one.wait()


def train(a, folder, lower):
    """That training; LOWER: before the program."""
    stop = folder / "stop"
    stopper = subprocess.Popen(["sh", "-c", f"sleep {a.quiet_s}; touch {stop}"])
    begun = time.monotonic()
    program = ["--hang-timeout", "0.2", *lower, a.program, stop, 10, "all", "saves=20"]
    status, said, events = run(a, folder, program, limit_s=a.quiet_s + 600)
    stopper.wait()
    named = [e for e in events if e["event"] == "hang"]
    good = status == 0 and not named and not any(e["event"] == "rank starts again" for e in events)
    last = said.splitlines()[-1] if said else ""
    print(f"{time.monotonic() - begun:.0f} s of training, {last}: {len(named)} named, status {status}",
          flush=True)
    if not good:
        print(said, named, sep="\n", flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runner")
    parser.add_argument("program")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--quiet-s", type=float, default=7200)
    parser.add_argument("--busy", type=int, default=0, help="loops a CPU beside the training")
    parser.add_argument("--ways", default="slrvpd")
    parser.add_argument("--python", help="the folder of the package berth")
    parser.add_argument("--library", help="libberth.so")
    parser.add_argument("--folder", help="that all hosts see")
    parser.add_argument("--options", default="", help="of runner")
    parser.add_argument("--seed", type=int, default=random.randrange(100000))
    a = parser.parse_args()
    random.seed(a.seed)
    print(f"seed {a.seed}", flush=True)
    with tempfile.TemporaryDirectory(dir=a.folder) as name:
        folder = pathlib.Path(name)
        good = not a.times or ways(a, folder)
        if a.quiet_s:
            good &= quiet(a, folder)
    return not good


if __name__ == "__main__":
    sys.exit(main())
