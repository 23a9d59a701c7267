#!/usr/bin/env python3
"""Rows of tests/bench/across.c from several programs, in interleaved rounds.

    across.py [-n ROUNDS] [-l LIMIT_S] NAME=COMMAND ...

Each round runs every command once, so that a noisy moment hits all of them alike, and the order
turns by one from round to round.  The first command is ours.  For each size: the median over rounds
of each one's median, and of how many times faster we were than it in the same round; `best` is the
fastest other of that round, and the last lines the geometric means.
"""
import argparse
import math
import shlex
import statistics
import subprocess
import sys


def once(words, limit_s):
    """{bytes: us} of one run; empty if it takes longer."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=limit_s)
    except subprocess.TimeoutExpired:
        return {}
    rows = {}
    for line in done.stdout.splitlines():
        fields = line.rsplit(">:", 1)[-1].split(",")
        if len(fields) == 6:
            if fields[5] != "ok":
                sys.exit(f"wrong result: {line}")
            rows[int(fields[2])] = float(fields[3])
    if done.returncode or not rows:
        sys.exit(f"{shlex.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("-n", "--rounds", type=int, default=7)
    parser.add_argument("-l", "--limit-s", type=float, default=120)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    options = parser.parse_args()
    commands = {name: shlex.split(line) for name, line in (c.split("=", 1) for c in options.commands)}
    names = list(commands)
    ours, others = names[0], names[1:]
    runs = {name: [] for name in names}
    for i in range(options.rounds):
        turn = i % len(names)
        for name in names[turn:] + names[:turn]:
            runs[name].append(once(commands[name], options.limit_s))

    for name in list(others):
        late = sum(not run for run in runs[name])
        if late:
            print(f"{name}: {late} of {options.rounds} runs took more than {options.limit_s:.0f} s; left out")
            others.remove(name)
    if not others:
        return
    ratios = {name: [] for name in others + ["best"]}
    print(f"{'bytes':>10} {ours + ' us':>12}" +
          "".join(f" {name + ' us':>14} {'ratio':>6}" for name in others) + f" {'best':>6}")
    for size in sorted(runs[ours][0]):
        line = f"{size:10d} {statistics.median(r[size] for r in runs[ours]):12.1f}"
        for name in others:
            ratio = statistics.median(b[size] / a[size] for a, b in zip(runs[ours], runs[name]))
            ratios[name].append(ratio)
            line += f" {statistics.median(r[size] for r in runs[name]):14.1f} {ratio:6.2f}"
        best = statistics.median(min(runs[n][i][size] for n in others) / runs[ours][i][size]
                                 for i in range(options.rounds))
        ratios["best"].append(best)
        print(line + f" {best:6.2f}")
    for name, all_of in ratios.items():
        mean = math.exp(statistics.mean(map(math.log, all_of)))
        print(f"{name}: geometric mean {mean:.2f}, least {min(all_of):.2f}")


main()
