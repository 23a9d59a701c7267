#!/usr/bin/python3
"""hostile.py RUNNER AGENT HOSTILE_AGENT FOLDER [ACT...]: runner against an agent that
does not keep to the protocol (tests/helpers/hostile_agent.c), and what must come of it.

Each job has two hosts, both this machine: one is the hostile agent, on the other a real
one has a rank.  Whatever the hostile one does: runner ends in time with the right status
and one message that names the host, takes at most 64 MiB, shows nothing that acts on a
terminal, and leaves no process.  ACT "random:N" is the act "random" with seed N.
Prints a line for each; ends with 1 if one failed."""

import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

RSS_MAX_KB = 64 * 1024 if os.environ.get("SAN") != "1" else 1 << 30  # which keeps what is freed
THIS = os.uname().nodename
HOST = f"(?:localhost|{re.escape(THIS)})"


def broken(text):
    return rf"^runner: {HOST}: the agent's stream is not valid: {text}$"


LATE = rf"^runner: {HOST}: no agent in time: "
UNREAD = "the agent does not read the answers to its requests"
TOO_MUCH = "more output after the end of the ranks than their pipes can hold"
UNCONFIRMED = rf"^runner: {HOST} did not confirm that the job's processes are gone$"
NOT_ITS = "message about a rank of another host"
SLOW = int(os.environ.get("SLOW", "1"))  # tests/run
LONG, SHORT = ["sleep", "1000"], ["true"]
FLOOD_S = {"HOSTILE_FLOOD_S": str(2 * SLOW)} if os.environ.get("CHECK") == "user" else {}
SOON = ["--start-timeout", "4"]  # in which the real agent has come

# act: runner's status, what it says, the ranks' program, options, what is on stdin
ACTS = {
    "noise": (240, broken("no greeting"), LONG, []),
    "zeros": (240, broken("no greeting"), LONG, []),
    "silent": (240, LATE, LONG, SOON),
    "half": (240, LATE, LONG, SOON),
    "complains": (240, rf"^runner: {HOST}: the agent ended with status 3 ", LONG, []),
    "complains-on": (240, LATE, LONG, SOON),
    "heir": (240, rf"^runner: {HOST}: lost its agent", LONG, []),
    "hello-absurd": (240, broken("hello with impossible values"), LONG, []),
    "hello-gpus": (240, broken("hello with impossible values"), LONG, []),
    "hello-address": (240, broken("hello with impossible values"), LONG, []),
    "hello-version": (240, rf"^runner: {HOST}: the agent has version ", LONG, []),
    "length-zero": (240, broken("malformed 'hello' message"), LONG, []),
    "length-over": (240, broken("message larger than its limit"), LONG, []),
    "length-most": (240, broken("message larger than its limit"), LONG, []),
    "type-unknown": (240, broken("message of an unknown type"), LONG, []),
    "early-log": (125, rf"^runner: {HOST}: no \?\]0;owned", LONG, []),
    "hello-again": (240, broken("second 'hello' message"), LONG, []),
    "log-flood": (240, LATE, LONG, SOON),
    "log-large": (240, LATE, LONG, SOON),
    "runners-word": (240, broken("message that only runner sends"), LONG, []),
    "gone-at-once": (240, broken("'cleared' message that nobody asked for"), LONG, []),
    "ended-at-once": (240, broken("'exited' message of a rank that does not run"), LONG, []),
    "no-berth": (240, broken("'placed' message before each rank's berth"), LONG, []),
    "berth-again": (240, broken("second 'berth' message of a rank"), LONG, []),
    "berth-foreign": (240, broken(NOT_ITS), LONG, []),
    "berth-nasty": (0, r"^runner: rank . on .* GPU 0 \?\]0;owned", SHORT, ["--report-bindings", "true"]),
    "placed-again": ({240, 241}, broken("second 'placed' message"), LONG, []),
    "placed-ports": (240, broken("'placed' message with a wrong number of ports"), LONG, []),
    "start-untold": ({240, 241}, broken("'started' message of a rank that was not told to start"), LONG, []),
    "lacks-nasty": (127, r"could not start: \?\]0;owned", LONG, ["--host-timeout", "2"]),
    "lacks-absurd": (240, broken("'placed' message with an impossible error"), LONG, []),
    "check-untold": (241, broken("'check_result' message that nobody asked for"), LONG, []),
    "check-flood": (240, None, LONG, ["--check"]),
    "check-absurd": (240, None, LONG, ["--check"]),
    "started-again": (241, broken("'started' message of a rank that was not told to start"), LONG, []),
    "output-flood": (241, broken("more output than it was granted"), LONG, []),
    "output-small": (124, UNCONFIRMED, LONG, ["--timeout", "1", "--kill-grace", "0"]),
    "output-foreign": (241, broken(NOT_ITS), LONG, []),
    "output-nobody": (241, broken(NOT_ITS), LONG, []),
    "output-stream": (241, broken(NOT_ITS), LONG, []),
    "output-epoch": (241, broken("message about no job"), LONG, []),
    "output-after": (0, None, SHORT, []),
    "output-on": ({0, 241}, f"{broken(TOO_MUCH)}|{UNCONFIRMED}", SHORT, []),
    "ended-foreign": (241, broken(NOT_ITS), LONG, []),
    # the cleanup of its host is on the other one's machine: it may kill that one's rank first
    "ended-again": ({137, 241}, broken("'exited' message of a rank that does not run")
                    + "|was ended by SIGKILL$", LONG, []),
    "ended-cut": (241, rf"^runner: {HOST}: lost its agent", LONG, []),
    "ended-string": (241, broken("malformed 'exited' message"), LONG, []),
    "ended-nasty": (127, r"could not start: no \?\]0;owned", LONG, []),
    "ending-untold": (241, broken("'stop_ack' message before the end"), LONG, []),
    "ending-flood": (124, None, SHORT, ["--timeout", "1", "--kill-grace", "0"]),
    "gone-untold": (241, broken("'cleared' message that nobody asked for"), LONG, []),
    "gone-again": ({0, 124, 241}, None, SHORT, ["--timeout", "1", "--kill-grace", "0"]),
    "gone-port": (241, broken("'cleared' message with an impossible port"), SHORT, []),
    "asks-on": (124, UNCONFIRMED, LONG, ["-np", "1", "--timeout", "3", "--kill-grace", "0"]),
    "stalls-on": (124, rf"^runner: {HOST}: further stalls are not shown$", LONG,
                  ["--timeout", "6", "--kill-grace", "0"]),
    "fences-on": (241, broken(UNREAD), LONG, ["-np", "1", "--timeout", str(15 * SLOW)]),
    "lookups-on": (124, UNCONFIRMED, LONG, ["--timeout", "3", "--kill-grace", "0"]),
    "names-on": (241, broken(UNREAD), LONG, ["--timeout", str(3 * SLOW), "--kill-grace", "0"]),
    "exchanges-on": (241, broken("too many exchanges"), LONG,
                     ["--timeout", str(3 * SLOW), "--kill-grace", "0"]),
    "events-on": ({124, 241}, None, LONG, ["--timeout", "3", "--kill-grace", "0"]),
    "change-foreign": (241, broken("'change' message out of turn"), LONG, []),
    "change-number": (241, broken("'change' message out of turn"), LONG, []),
    "changes-on": (241, broken(UNREAD), LONG, ["-np", "1", "--timeout", str(15 * SLOW)]),
    "healthy-untold": (241, broken("'healthy' message that nobody asked for"), LONG, []),
    "looked-long": (241, broken("malformed 'looked' message"), LONG, []),
    "looked-epoch": (241, broken("message about no job"), LONG, []),
    "looked-on": (124, UNCONFIRMED, LONG, ["--timeout", "1", "--kill-grace", "0"]),
    "looked-life": (124, UNCONFIRMED, LONG,
                    ["--hang-timeout", "0.2", "--timeout", "3", "--kill-grace", "0"]),
    "dumped-foreign": (241, broken(NOT_ITS), LONG, []),
    "dumped-nasty": (124, r"1 rank  .*\?\]0;owned", LONG,
                     ["--hang-timeout", "0.2", "--on-hang", "report", "--timeout", "3", "--kill-grace", "0"]),
    "credit-flood": (241, broken("credit beyond its limit"), LONG, []),
    "credit-steps": (241, broken("credit beyond its limit"), LONG, []),
    "deaf": (124, UNCONFIRMED, LONG, ["--timeout", "1", "--kill-grace", "0", "--stdin", "all"]),
    "beats": (124, UNCONFIRMED, LONG, ["--timeout", "1", "--kill-grace", "0"]),
    "quiet": (241, rf"^runner: {HOST}: no message for ", LONG, ["--host-timeout", "5"]),
    "clocks": (3, r"^runner: rank . on .* exited with status 3$", LONG, []),
    "random": (None, None, LONG, ["--timeout", "2", "--kill-grace", "0"]),
    "never-gone": (124, UNCONFIRMED, LONG, ["--timeout", "1", "--kill-grace", "0"]),
    "never-leaves": (0, None, SHORT, []),
}


def marked(mark):
    """Processes whose environment has MARK."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if mark.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            pass
    return found


class Pipe(threading.Thread):
    """Reads to the end, keeps the first MiB."""

    def __init__(self, file):
        super().__init__(daemon=True)
        self.file, self.text, self.size = file, b"", 0
        self.start()

    def run(self):
        while block := os.read(self.file.fileno(), 65536):
            self.size += len(block)
            self.text = (self.text + block)[: 1 << 20]


def start(act, runner, real, hostile, folder):
    name, _, seed = act.partition(":")
    _, _, program, options = ACTS[name]
    own = os.path.join(folder, act.replace(":", "-"))
    os.makedirs(own)
    environment = dict(os.environ, HOSTILE=name, HOSTILE_DIR=own, HOSTILE_REAL=real, HOSTILE_SEED=seed,
                       **FLOOD_S)
    command = [runner, "--allow-same-host", "-H", f"localhost:1,{THIS}:1", "-np", "2",
               "--launch-agent", hostile, *options, *program]
    stdin = open("/dev/zero" if name in ("deaf", "credit-flood", "credit-steps") else os.devnull)
    p = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         env=environment)
    stdin.close()
    return p, f"HOSTILE_DIR={own}\0", time.monotonic(), Pipe(p.stdout), Pipe(p.stderr)


def wait(p, limit_s):
    """The status (-N: signal N) and the largest memory in KiB; None: too late."""
    fd = os.pidfd_open(p.pid)
    over = select.select([fd], [], [], limit_s)[0]
    os.close(fd)
    if not over:
        p.kill()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = 0  # reaped here
    code = os.waitstatus_to_exitcode(status)
    return code if over else None, usage.ru_maxrss


def check(act, job, limit_s):
    p, mark, began, out, err = job
    said_status, pattern, _, _ = ACTS[act.partition(":")[0]]
    status, rss = wait(p, limit_s)
    took = time.monotonic() - began
    left = marked(mark)
    for pid in left:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    out.join(5), err.join(5)
    text = err.text.decode(errors="replace")
    wrong = []
    allowed = said_status if isinstance(said_status, set) else {said_status}
    if status is None:
        wrong.append(f"runs after {limit_s} s")
    elif said_status is not None and status not in allowed:
        wrong.append(f"status {status}, not {said_status}")
    elif status < 0:
        wrong.append(f"ended by signal {-status}")
    if re.search("AddressSanitizer|LeakSanitizer|runtime error:", text):
        wrong.append("a sanitizer complains")
    if pattern and len(re.findall(pattern, text, re.M)) != 1:
        wrong.append(f"does not say once: {pattern}")
    if re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", err.text):
        wrong.append("shows control characters")
    if err.size > 256 * 1024:
        wrong.append(f"says {err.size} bytes")
    if rss > RSS_MAX_KB:
        wrong.append(f"takes {rss} KiB")
    if left:
        wrong.append(f"leaves {left}")
    print(f"{'FAIL' if wrong else 'ok':4} {act:16} status {status} {took:5.1f} s {rss // 1024:3} MiB "
          + "; ".join(wrong), flush=True)
    if wrong:
        print("  | " + "\n  | ".join(text[:2000].split("\n")), flush=True)
    return not wrong


def main(args):
    programs, folder, acts = args[:3], args[3], args[4:] or list(ACTS)
    at_once = int(os.environ.get("HOSTILE_AT_ONCE", "16"))
    fine, running, left = True, [], list(acts)
    while left or running:
        while left and len(running) < at_once:
            act = left.pop(0)
            running.append((act, start(act, *programs, folder)))
        act, job = running.pop(0)
        fine &= check(act, job, float(os.environ.get("HOSTILE_LIMIT_S", 40 * SLOW)))
    return not fine


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(ACTS))
    else:
        sys.exit(main(sys.argv[1:]))
