#!/usr/bin/python3
"""verdict.py [RUNS [SECONDS]]: does --monitor name the cause?

Each run draws a cause of tests/helpers/steps.c, the guilty rank, the number of ranks and the times at
random.  The verdict must name that cause and that rank alone; its gain is compared with what the
same job gains without the cause.  As many quiet runs, with busy processes beside some of them, must
name none.  Prints a table, and each run that was judged wrongly.
"""
import json
import os
import random
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNNER = os.path.join(ROOT, "build/bin/runner")
STEPS = os.path.join(ROOT, "build/helpers/steps")

# cause: a text of the finding, options, whether the guilty rank is known
CAUSES = {
    "work": ("computes", [], True), "lock": ("waited outside of libberth", [], True),
    "file": ("reading", [], True), "crowd": ("had no CPU", ["--bind-to", "core"], True),
    "later": ("before for the last", [], True),
    "moved": ("changed its CPUs", ["--bind-to", "none"], True), "loader": ("loader", [], False),
}


def run(np, options, seconds, ms, cause, rank, extra):
    """The findings, and the milliseconds of a step."""
    command = [RUNNER, "-np", str(np), "--monitor", "0.5", "--summary=json", *options, STEPS, str(seconds),
               f"{ms:.2f}", cause, str(rank), f"{extra:.2f}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 4 * seconds)
    assert done.returncode == 0, done.stderr
    step_ms = float(re.search(r"([\d.]+) ms", done.stdout)[1])
    return json.loads(done.stderr.splitlines()[-1])["verdict"], step_ms


def guilty(cause, count, seconds):
    text, options, known = CAUSES[cause]
    right, gains = 0, []
    for _ in range(count):
        np, ms = random.choice((2, 2, 4) if cause not in ("crowd", "later") else (2,)), random.uniform(3, 12)
        rank, extra = random.randrange(np), ms * random.uniform(0.8, 3)
        if cause == "loader":
            np, extra = 2, ms * random.uniform(1.6, 3)
        found, slow_ms = run(np, options, seconds, ms, cause, rank, extra)
        # loaders that share cores may be slow alike, or one of them is: then its rank is named, with advice
        good = [f for f in found if text in f["text"] + (f["try"] if cause == "loader" else "") and
                (not known or f["ranks"] == [rank])]
        if good and len(found) <= (2 if cause == "moved" else 1):
            right += 1
        else:
            print(f"wrong: {cause} np {np} rank {rank} {ms:.1f}+{extra:.1f} ms: {found}", flush=True)
        if good and good[0]["gain"] and cause in ("work", "lock", "file"):
            _, quiet_ms = run(np, options, seconds, ms, "none", rank, 0)
            gains.append((good[0]["gain"], 1 - quiet_ms / slow_ms))
    near = sum(abs(told - real) <= 0.3 * real for told, real in gains)
    pairs = " ".join(f"{told:.2f}/{real:.2f}" for told, real in gains)
    print(f"{cause:8} named {right} of {count}; gain within 30 % {near} of {len(gains)}: {pairs}", flush=True)
    return right == count


def quiet(count, seconds):
    right = 0
    for i in range(count):
        np, ms, busy = random.choice((2, 4, 8)), random.uniform(3, 12), (0, 6)[i % 2]
        beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            found, _ = run(np, [], seconds, ms, "none", 0, 0)
        finally:
            for p in beside:
                p.kill()
                p.wait()
        right += not found
        if found:
            print(f"wrong: quiet np {np} {ms:.1f} ms, {busy} beside: {found}", flush=True)
    print(f"quiet    silent {right} of {count}", flush=True)
    return right == count


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 8
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    random.seed(seed)
    print(f"SEED={seed}", flush=True)
    good = [guilty(cause, count, seconds) for cause in CAUSES] + [quiet(count, seconds)]
    sys.exit(not all(good))


main()
