#!/usr/bin/env python3
"""A table of what fence.c says: fence.py [--goal RATIO] FOLDER.

FOLDER/BYTES has a line for each pair of steps: microseconds of the echo, of put, commit and fence
together, and of PMIx_Fence alone in them.  FOLDER/BYTES.mpirun is what mpirun's ranks say of theirs.
`ratio` is that of the medians of PMIx_Fence and of the echo.  Ends with 1 if it is above the goal
with 1 KiB, or if a step takes more for a byte than LINEAR times what one of the size before takes.
"""
import argparse
import pathlib
import statistics
import sys

GOAL_BYTES, LINEAR = 1024, 1.5


def columns(path):
    """The echoes, the steps of PMIx, the fences."""
    return list(zip(*([float(x) for x in line.split()] for line in path.read_text().splitlines())))


def within(values, percent):
    return sorted(values)[len(values) * percent // 100]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--goal", type=float, default=2)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    missed, before = [], None
    print("us of a step     echo   90 %  PMIx_Fence   90 %  ratio  with put, commit  ratio   mpirun's  ratio")
    for size in sorted(int(p.name) for p in options.folder.iterdir() if p.name.isdigit()):
        echo, whole, fence = columns(options.folder / str(size))
        middle = statistics.median(fence)
        ratio = middle / statistics.median(echo)
        step = statistics.median(whole)
        line = (f"{size:6d} B {len(echo):4d}x {statistics.median(echo):7.0f} {within(echo, 90):6.0f}"
                f" {middle:11.0f} {within(fence, 90):6.0f} {ratio:6.2f} {step:17.0f}"
                f" {step / statistics.median(echo):6.2f}")
        peer = options.folder / f"{size}.mpirun"
        if peer.exists():
            others = statistics.median(columns(peer)[2])
            line += f" {others:10.0f} {middle / others:6.2f}"
        print(line)
        if size == GOAL_BYTES and ratio > options.goal:
            missed.append(f"{ratio:.2f} with {size} bytes, not {options.goal:g}")
        if before and before[0] and step / size > LINEAR * before[1] / before[0]:
            missed.append(f"not linear from {before[0]} to {size} bytes")
        before = size, step
    for what in missed:
        print(f"missed: {what}")
    sys.exit(1 if missed else 0)


main()
