#!/usr/bin/env python3
"""The table of tensorflow.sh, from lines "ROUND<tab>NAME<tab>ROW<tab>VALUE" on standard input.

A value is the median over the rounds.  A ratio is the median over the rounds of both values of one
round, with the least and the greatest one.  "no": not as fast as its goal.
"""
import statistics
import sys

TUNED = 3  # times as fast as Horovod with HOROVOD_CYCLE_TIME=0

# The row; at most so many us (or percent), or so many times another row of Berth's; how many times as fast as
# Horovod.
GOALS = [
    ("8 B, chain", 30, None, 40),
    ("64 KiB, chain", 50, None, 30),
    ("2 MiB, chain", 300, None, 15),
    ("8 B, eager", 1.5, "x + 1, eager", 15),
    ("161 tensors, 99 MiB", 1.3, "one tensor, 99 MiB", 3),
    ("Keras step, added", None, None, 1 / 0.15),
    ("optimizer, 1 rank", 1, None, None),
    ("import", 100000, None, None),
    ("x + 1, eager", None, None, None),
    ("one tensor, 99 MiB", None, None, None),
    ("Keras step, plain", None, None, None),
]


def read(lines):
    """{(name, row): {round: value}}"""
    values = {}
    for line in lines:
        number, name, row, value = line.rstrip("\n").split("\t")
        values.setdefault((name, row), {})[int(number)] = float(value)
    return values


def shown(values, unit):
    return f"{statistics.median(values.values()):,.1f}{unit}" if values else "-"


def ratios(a, b):
    """Of the rounds that both have, in order."""
    return sorted(a[i] / b[i] for i in a.keys() & b.keys())


def middle(ratios):
    return f"{statistics.median(ratios):.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})" if ratios else "-"


def goals_of(row, most, than, times, unit, mine, values):
    """What is wanted, and whether it is so."""
    wanted, good = [], True
    if than:
        of_it = ratios(mine, values.get(("berth", than), {}))
        wanted.append(f"at most {most} x {than}: {middle(of_it)}")
        good = bool(of_it) and statistics.median(of_it) <= most
    elif most is not None:
        wanted.append(f"at most {most:,}{unit}")
        good = statistics.median(mine.values()) <= most
    for name, enough in (("horovod", times), ("horovod-tuned", times and TUNED)):
        of_it = ratios(values.get((name, row), {}), mine)
        if enough and of_it:
            wanted.append(f"{enough:.3g} x {name}")
            good = good and statistics.median(of_it) >= enough
    return ", ".join(wanted), good


def main():
    values = read(sys.stdin)
    names = ("horovod", "horovod-tuned", "berth")
    print(f"{'2 ranks, us':22}{'Horovod':>12}{'tuned':>12}{'Berth':>12}  "
          f"{'times as fast':20}{'tuned':20}goal")
    missed = 0
    for row, most, than, times in GOALS:
        unit = " %" if row.startswith("optimizer") else ""
        mine = values.get(("berth", row), {})
        line = f"{row:22}"
        for name in names:
            line += f"{shown(values.get((name, row), {}), unit):>12}"
        line += "  "
        for name in names[:2]:
            line += middle(ratios(values.get((name, row), {}), mine) if times else []).ljust(20)
        if not mine:
            print(line + "not measured")
            continue
        wanted, good = goals_of(row, most, than, times, unit, mine, values)
        missed += not good
        print(line + wanted + ("" if good else ": no"))
    sys.exit(1 if missed else 0)


main()
