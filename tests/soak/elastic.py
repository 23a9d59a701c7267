#!/usr/bin/env python3
"""Kill random ranks of tests/helpers/elastic.c: status 0, the state of an undisturbed training, and all ranks
are there at the end.  With --gap 0.003-0.05 many are killed while the others change their world.  --dies MS:
the ranks kill themselves, MS apart on average in each; so they may be on other hosts.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time


class Job:
    """A training of RANKS whose events are read as they come."""

    def __init__(self, command, folder, dies):
        self.stop, self.out, self.err = folder / "stop", folder / "out", folder / "err"
        self.events, self.at, self.pids = folder / "events", 0, {}
        self.counts = {"rank starts again": 0, "rank is back": 0, "restart": 0}
        arguments = [self.stop, "1", "all", *([f"dies={dies}"] if dies else [])]
        self.process = subprocess.Popen(
            [command[0], "--no-tag", "--events", self.events, *command[1:], *arguments],
            stdin=subprocess.DEVNULL, stdout=self.out.open("w"), stderr=self.err.open("w"))

    def read(self):
        """What has come since the last time."""
        if not self.events.exists():
            return
        with self.events.open() as f:
            f.seek(self.at)
            lines = f.read()
        lines = lines[:lines.rfind("\n") + 1]
        self.at += len(lines.encode())
        for event in map(json.loads, lines.splitlines()):
            name = event["event"]
            if name in self.counts:
                self.counts[name] += 1
            if name == "rank started":
                self.pids[event["rank"]] = event["pid"]
            elif name == "rank ended":
                self.pids.pop(event["rank"], None)

    def kill(self):
        """One rank that runs; whether there was one."""
        self.read()
        if not self.pids:
            return False
        rank = random.choice(sorted(self.pids))
        try:
            os.kill(self.pids.pop(rank), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def begin(self, limit_s):
        """Before its first step no rank has said that it goes on without others."""
        until = time.monotonic() + limit_s
        while "all have begun" not in self.out.read_text() and time.monotonic() < until:
            time.sleep(0.02)

    def end(self, ranks, limit_s):
        """The training ends once all RANKS are there again: its status.  All would start again if one
        died when others had ended.
        """
        until = time.monotonic() + limit_s
        while len(self.pids) < ranks and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
            self.read()
        self.stop.touch()
        return self.process.wait(limit_s)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runner")
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--gap", default="0.05-0.5", help="seconds between two kills")
    parser.add_argument("--seed", type=int, default=random.randrange(100000))
    parser.add_argument("--dies", type=int, default=0, help="milliseconds")
    parser.add_argument("--folder", help="that all hosts see")
    parser.add_argument("--options", default="", help="of runner")
    a = parser.parse_args()
    random.seed(a.seed)
    least, most = map(float, a.gap.split("-"))
    with tempfile.TemporaryDirectory(dir=a.folder) as folder:
        job = Job([a.runner, "--oversubscribe", "--restarts", "1000000/1h", *a.options.split(), "-np",
                   str(a.ranks), a.program], pathlib.Path(folder), a.dies)
        job.begin(30)
        begun, kills = time.monotonic(), 0
        while kills < a.kills and job.process.poll() is None:
            time.sleep(random.uniform(least, most))
            if a.dies:
                job.read()
                kills = job.counts["rank starts again"]
            else:
                kills += job.kill()
        try:
            status = job.end(a.ranks, 60)
        except subprocess.TimeoutExpired:
            status = "none after 60 s"
            job.process.send_signal(signal.SIGTERM)
            job.process.wait()
        last = (job.out.read_text().splitlines() or [""])[-1]
        job.read()
        good = status == 0 and last.startswith(f"{a.ranks} ranks, ") and not job.counts["restart"]
        print(f"seed {a.seed}: {kills} kills in {time.monotonic() - begun:.1f} s: status {status}, {last}; "
              f"{job.counts}")
        if not good:
            print(job.err.read_text()[-3000:])
        sys.exit(not good)


if __name__ == "__main__":
    main()
