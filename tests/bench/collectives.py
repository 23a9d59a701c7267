#!/usr/bin/env python3
"""Table of what collectives.c measured, from its rows on stdin, each with its round in front.

    collectives.py [--least] [--ours NAME] [--beside NAME] [--limit NAME] GOALS

Rows are compared within a round, and only if the hand-over of a cache line took the same time,
within 30 %, before and after each: in a virtual machine the cores move.  S1: hand-over under
100 ns, the cores share a cache.  S2: they do not, or by a mesh.  `best` is the peer whose median is
least; `ratio` the median over rounds of its time by ours.  Peers named --beside are shown and are no
candidates.  GOALS: rows BYTES:S1:S2, for sizes up to BYTES, in the order of sizes.
"""
import argparse
import statistics
import sys
from collections import defaultdict


def size(text):
    return int(text[:-1]) << {"K": 10, "M": 20}[text[-1]] if text[-1] in "KM" else int(text)


def shown(n):
    return f"{n >> 20} MiB" if n >= 1 << 20 else f"{n >> 10} KiB" if n >= 1 << 10 else f"{n} B"


def alike(*handovers):
    return max(handovers) <= 1.3 * min(handovers)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--least", action="store_true", help="the least batch of each row, not the median")
    parser.add_argument("--ours", default="berth")
    parser.add_argument("--beside", action="append", default=[])
    parser.add_argument("goals", nargs="*")
    options = parser.parse_args()
    goals = [(size(b), (float(x), float(y))) for b, x, y in (g.split(":") for g in options.goals)]
    runs = defaultdict(dict)  # (bytes, state) -> (round, name) -> (us, ns before, ns after)
    names, mixed, wrong = [], 0, 0

    for line in sys.stdin:
        fields = line.strip().split(",")
        if len(fields) != 9:
            continue
        turn, name, _, length, median, least, how, before, after = fields
        before, after = float(before), float(after)
        wrong += how != "ok"
        if before and not alike(before, after):
            mixed += 1
            continue
        state = "-" if not before else "S1" if before < 100 else "S2"
        if name not in names:
            names.append(name)
        runs[int(length), state][turn, name] = (float(least if options.least else median), before, after)

    others = [n for n in names if n not in [options.ours] + options.beside]
    met = True
    for state in ("S1", "S2", "-"):
        lengths = sorted(n for n, s in runs if s == state)
        if not lengths:
            continue
        print(f"{state}   us        " + "".join(f"{n:>11s}" for n in names) + "   best/ours  goal  rounds")
        for length in lengths:
            row = runs[length, state]
            middle = {n: statistics.median(v[0] for (_, m), v in row.items() if m == n)
                      for n in names if any(m == n for _, m in row)}
            text = f"{shown(length):>10s}    " + "".join(
                f"{middle[n]:11.2f}" if n in middle else f"{'-':>11s}" for n in names)
            best = min((n for n in others if n in middle), key=middle.get, default=None)
            ratios = []
            for (turn, name), ours in row.items():
                peer = row.get((turn, best))
                if name == options.ours and peer and (not ours[1] or alike(*ours[1:], *peer[1:])):
                    ratios.append(peer[0] / ours[0])
            if ratios:
                ratio = statistics.median(ratios)
                goal = next((g[state == "S2"] for b, g in goals if length <= b), None)
                missed = goal is not None and ratio < goal
                met = met and not missed
                text += f"   {ratio:6.2f}x  {f'{goal:4.2f}x' if goal else '':>6s} {len(ratios):4d}"
                text += "   under" if missed else ""
            print(text)
        handovers = [v[1] for key, row in runs.items() if key[1] == state for v in row.values()]
        if state != "-":
            median = statistics.median(handovers)
            print(f"     hand-over {min(handovers):.0f}-{max(handovers):.0f} ns, median {median:.0f}")
    print(f"{mixed} rows dropped: the cores moved meanwhile")
    if wrong:
        print(f"{wrong} rows with WRONG results")
    sys.exit(0 if met and not wrong else 1)


main()
