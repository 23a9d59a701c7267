#!/usr/bin/env python3
"""Wall time of whole commands, in interleaved rounds.

    rounds.py [-n ROUNDS] [-l LIMIT_S] [-b BYTES] NAME=COMMAND ...

Each round runs every command once, so that a noisy moment hits all of them alike, and the order
turns by one from round to round.  The first command is ours: `ratio` is the median over rounds of
its time divided by the other's in the same round.  A command past LIMIT_S is killed with all it
started and counts as late.  With -b the commands move so many bytes, and MB/s is shown too.
Commands run without a shell; use bash -c '...' for a pipeline.
"""
import argparse
import math
import os
import shlex
import signal
import statistics
import subprocess
import threading
import time


def once(words, limit_s):
    """Seconds and how it went: "ok", "late" or "failed"."""
    late = threading.Event()
    begin = time.perf_counter()
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)

    def end():
        late.set()
        os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, end)
    timer.start()
    # wait() with a time limit would poll, and round short times up
    status = process.wait()
    seconds = time.perf_counter() - begin
    timer.cancel()
    return seconds, "late" if late.is_set() else "failed" if status else "ok"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-n", "--rounds", type=int, default=15)
    parser.add_argument("-l", "--limit-s", type=float, default=30)
    parser.add_argument("-b", "--bytes", type=float, default=0)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    options = parser.parse_args()
    commands = {name: shlex.split(line) for name, line in (c.split("=", 1) for c in options.commands)}
    names = list(commands)
    runs = {name: [] for name in names}

    for name in names:  # files into the cache, and what is made on first use
        once(commands[name], options.limit_s)
    for i in range(options.rounds):
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            runs[name].append(once(commands[name], options.limit_s))

    ours = runs[names[0]]
    for name in names:
        good = [s for s, how in runs[name] if how == "ok"]
        middle = statistics.median(good) if good else math.nan
        line = f"{name:22s} median {middle * 1e3:9.1f} ms   least {min(good, default=math.nan) * 1e3:9.1f}"
        if options.bytes:
            line += f"   {options.bytes / middle / 1e6:7.0f} MB/s"
        both = [a / b for (a, how), (b, other) in zip(ours, runs[name]) if how == other == "ok"]
        if name != names[0] and both:
            line += f"   {names[0]}/{name} {statistics.median(both):5.2f}"
        for how in ("late", "failed"):
            count = sum(h == how for _, h in runs[name])
            if count:
                line += f"   {how} {count} of {options.rounds}"
        print(line, flush=True)


main()
