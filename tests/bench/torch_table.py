#!/usr/bin/env python3
"""The table of torch.sh, from lines "ROUND<tab>NAME<tab>ROW<tab>VALUE" on standard input.

A value is the median over the rounds.  A ratio is the median over the rounds of both values of one
round, with the least and the greatest one.  "no": not as fast as its goal.
"""
import statistics
import sys

# The row of Berth, and whose; at most so many us (or percent); then against whom, their row, and how many
# times as fast.
GOALS = [
    ("allreduce 8 B", "berth", 5, "horovod", "allreduce 8 B", 200),
    ("allreduce 4 KiB", "berth", 6, "horovod", "allreduce 4 KiB", 200),
    ("allreduce 64 KiB", "berth", None, "gloo", "all_reduce 64 KiB", 20),
    ("allreduce 2 MiB", "berth", None, "gloo", "all_reduce 2 MiB", 6),
    ("allreduce 128 MiB", "berth", None, "gloo", "all_reduce 128 MiB", 2.5),
    ("64 x 16 KiB", "berth", 400, "horovod", "64 x 16 KiB", 5),
    ("all_reduce 8 B", "berth", 8, "gloo", "all_reduce 8 B", None),
    ("all_gather_into_tensor", "berth", None, "gloo", "all_gather_into_tensor", 8),
    ("reduce_scatter_tensor", "berth", None, "gloo", "reduce_scatter_tensor", 8),
    ("step, hvd", "berth", None, "horovod", "step, hvd", 2),
    ("step, DDP", "berth", None, "gloo", "step, DDP", 2),
    ("optimizer", "berth", 3, "horovod", "optimizer", None),
]


def read(lines):
    """{(name, row): {round: value}}"""
    values = {}
    for line in lines:
        number, name, row, value = line.rstrip("\n").split("\t")
        values.setdefault((name, row), {})[int(number)] = float(value)
    return values


def shown(values, unit):
    if not values:
        return "-"
    value = statistics.median(values.values())
    return f"{value:,.1f}{unit}"


def main():
    values = read(sys.stdin)
    print(f"{'2 ranks, us':24}{'Horovod':>12}{'gloo':>12}{'Berth':>12}  {'times as fast':24}goal")
    missed = 0
    for row, ours, most, peer, their_row, times in GOALS:
        unit = " %" if row == "optimizer" else ""
        mine, theirs = values.get((ours, row), {}), values.get((peer, their_row), {})
        dist_row = row.replace("allreduce", "all_reduce")
        line = f"{row:24}"
        for name, its_row in (("horovod", row), ("gloo", dist_row), (ours, row)):
            line += f"{shown(values.get((name, its_row)), unit):>12}"
        both = [theirs[i] / mine[i] for i in sorted(mine.keys() & theirs.keys())] if not unit else []
        ratio = statistics.median(both) if both else None
        line += "  " + (f"{ratio:.1f} ({min(both):.1f}-{max(both):.1f})" if both else "-").ljust(24)
        goals = []
        if most is not None:
            goals.append(f"at most {most}{unit}")
        if times is not None:
            goals.append(f"{times:g} x {peer}")
        line += ", ".join(goals)
        if not mine:
            line += ": not measured"
        elif (most is not None and statistics.median(mine.values()) > most) or (
                times is not None and ratio is not None and ratio < times):
            line += ": no"
            missed += 1
        print(line)
    sys.exit(1 if missed else 0)


main()
