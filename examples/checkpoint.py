#!/usr/bin/env python3
"""A program that SIGTERM stops, and that continues from its checkpoint when it starts again:

    runner -np 2 python3 examples/checkpoint.py --checkpoint state.json

After SIGTERM all ranks end at the same step, and rank 0 writes the checkpoint.  Resource managers send
SIGTERM before they end a job, or SIGUSR2; contrib/batch has scripts for them."""
import argparse
import json
import os
import signal
import time

import berth


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--checkpoint", metavar="FILE", default="checkpoint.json")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-time", type=float, metavar="SECONDS", default=0.05)
    return parser.parse_args()


def load(file):
    """The state of rank 0 on all ranks: its file system may be the only one with the file."""
    state = {"step": 0, "total": 0}
    if berth.rank() == 0 and os.path.exists(file):
        with open(file) as f:
            state = json.load(f)
    return berth.broadcast_object(state)


def save(state, file):
    """A job that is killed here leaves the old checkpoint or the new one, and never a half."""
    with open(file + ".new", "w") as f:
        json.dump(state, f)
        f.flush()
        os.fsync(f.fileno())
    os.replace(f.name, file)


def main():
    args = arguments()
    got = []
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: got.append(signal.Signals(number).name))
    berth.init()
    state = load(args.checkpoint)
    if berth.rank() == 0:
        print(f"{berth.size()} ranks begin at step {state['step']}", flush=True)
    stop = set()
    while state["step"] < args.steps and not stop:
        time.sleep(args.step_time)  # the training
        # The signal reaches each rank at a time of its own, so they agree on the last step.
        each = berth.allgather_object((state["step"], set(got)))
        state = {"step": state["step"] + 1, "total": state["total"] + sum(step for step, _ in each)}
        stop = set().union(*(signals for _, signals in each))
    if berth.rank() == 0:
        save(state, args.checkpoint)
        why = f" after {' and '.join(sorted(stop))}" if stop else ""
        print(f"the checkpoint is at step {state['step']}{why}, total {state['total']}", flush=True)
    berth.shutdown()


main()
