#!/usr/bin/python3
"""hostile_runner.py AGENT [ACT...]: an agent whose launcher does not keep to the protocol,
or is cut off anywhere.

Whatever comes: the agent ends in time, by no signal, takes at most 96 MiB, and leaves no
process of its ranks.  Acts: those of the table; "cut:K", the stream ends after K bytes of
a whole dialogue; "random:N", that dialogue with bytes changed, by seed N; "cuts", every
cut.  Prints a line for each that failed and a count; ends with 1 if one failed."""

import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

sys.dont_write_bytecode = True  # nothing of ours lies beside the tests
from hostile import marked

RSS_MAX_KB = 96 * 1024 if os.environ.get("SAN") != "1" else 1 << 30  # which keeps what is freed
LIMIT_S = 60 * int(os.environ.get("SLOW", "1"))  # tests/run
RANK = "trap : WINCH; setsid sleep 1000 & (setsid sleep 1000 &) ; sleep 1000"
MOST = 2**32 - 1


# ---- messages ----

def read_wire(path):
    """{message: (number, [(type, field), ...])} of wire.def."""
    with open(path) as f:
        rows = re.findall(r"^MSG\((\w+), (\d+),(.*?)\n(?=\n|\Z)", f.read(), re.M | re.S)
    return {name: (int(number), re.findall(r"F\((\w+), (\w+)\)", rest)) for name, number, rest in rows}


WIRE = read_wire(os.path.join(os.path.dirname(__file__), "../../common/wire.def"))


def u32(n):
    return struct.pack("<I", n)


def text(t):
    t = t.encode()
    return u32(len(t)) + t + b"\0"


def many(items, pack):
    return u32(len(items)) + b"".join(map(pack, items))


PACK = {"u32": u32, "u64": lambda n: struct.pack("<Q", n), "str": text,
        "bytes": lambda b: u32(len(b)) + b, "strv": lambda v: many(v, text), "u32v": lambda v: many(v, u32)}
EMPTY = {"u32": 0, "u64": 0, "str": "", "bytes": b"", "strv": (), "u32v": ()}


def frame(number, payload=b""):
    return struct.pack("<IB", len(payload), number) + payload


def message(name, **given):
    """A message of wire.def; fields that are not GIVEN are 0 or empty."""
    number, fields = WIRE[name]
    assert set(given) <= {field for _, field in fields}, (name, given)
    return frame(number, b"".join(PACK[kind](given.get(field, EMPTY[kind])) for kind, field in fields))


def app(argv=("bash", "-c", RANK), index=0):
    return message("app", index=index, argv=argv, env=["X=1"], wdir="/")


def job(mark="", epoch=1, ranks=(0, 1), np=None, apps=None, bind=0, flags=0, stdin=0, visible=1, share=0):
    n = len(ranks)
    return message(
        "job", epoch=epoch, job_id=f"hostile{os.getpid()}", nspace="n", key=bytes(32), flags=flags,
        np=n if np is None else np, nodes=1, host="h", own="127.0.0.1", ranks=ranks, apps=apps or [0] * n,
        cross_ranks=[0] * n, cross_sizes=[1] * n, master_addr="127.0.0.1", master_port=20000, bind_to=bind,
        bind_count=1, share=share, gpu_visible=visible, stdin_rank=stdin, umask=0o22, nofile=1024,
        stack=2**64 - 1, memlock=2**64 - 1, credit_bytes=65536, host_timeout_ms=60000,
        env=["PATH=/usr/bin:/bin", mark])


def start(epoch=1):
    return message("start", epoch=epoch)


def tf_config(roles=(2, 2), tasks=(0, 1)):
    return message("tf_config", epoch=1, cluster="{}", roles=roles, tasks=tasks)


def data(n=1, epoch=1):
    return message("input", epoch=epoch, data=b"x" * n)


def credit(n=1000, epoch=1):
    return message("credit", epoch=epoch, bytes=n)


def signo(n, tree=0):
    return message("signal", signo=n, tree=tree)


def end(epoch=1, grace_ms=0):
    return message("stop", epoch=epoch, grace_ms=grace_ms)


def query(epoch=1):
    return message("query", epoch=epoch)


def hung(rank=0, life=1, epoch=1):
    return message("hung", epoch=epoch, rank=rank, life=life)


def sweep(job_id):
    return message("sweep", job_id=job_id)


SUSPEND, RESUME, BYE = message("suspend"), message("resume"), message("shutdown")
BEAT = message("heartbeat", clock_ns=1)


def run(mark):
    return app() + job(mark) + start()


def dialogue(mark):
    return (run(mark) + data(3) + credit() + signo(signal.SIGWINCH) + BEAT + query() + hung()
            + SUSPEND + RESUME + data(0) + end(grace_ms=100) + BYE)


def large_app(index):
    """Chunks of an app of 16 MB: nothing large here, where fork() would count it."""
    n = 16000000
    head = u32(index) + u32(1) + u32(n)
    return [struct.pack("<IB", len(head) + n + 1 + len(u32(0) + text("/")), 2), head,
            *[b"x" * 64000] * (n // 64000), b"\0", u32(0) + text("/")]


def hollow_app():
    """The largest list of the shortest strings."""
    n = 3000000
    tail = u32(0) + text("/")
    return [struct.pack("<IB", 8 + 5 * n + len(tail), 2), u32(0) + u32(n),
            *[b"\0" * 50000] * (n // 10000), tail]


# act: what is sent, bytes or chunks; True where the agent has to end without being left
ACTS = {
    "garbage": (lambda m: os.urandom(4096), True),
    "text": (lambda m: b"GET / HTTP/1.0\r\n\r\n", True),
    "length-zero": (lambda m: frame(2), True),
    "length-over": (lambda m: struct.pack("<IB", 65, 6), True),
    "length-most": (lambda m: struct.pack("<IB", MOST, 3), True),
    "an-agents-word": (lambda m: frame(16, u32(1)), True),
    "job-without-app": (lambda m: job(m), True),
    "job-of-no-rank": (lambda m: app() + job(m, ranks=()), True),
    "job-of-other-app": (lambda m: app() + job(m, apps=[0, 1]), True),
    "job-huge-np": (lambda m: app() + job(m, np=MOST), True),
    "job-many-ranks": (lambda m: app() + job(m, ranks=range(65537)), True),
    "job-rank-beyond": (lambda m: app() + job(m, ranks=(0, 9), np=2), True),
    "job-bind": (lambda m: app() + job(m, bind=7), True),
    "job-share": (lambda m: app() + job(m, share=3), True),
    "job-visible": (lambda m: app() + job(m, visible=MOST), True),
    "job-no-epoch": (lambda m: app() + job(m, epoch=0), True),
    "job-again": (lambda m: run(m) + job(m, 2), True),
    "job-same-epoch": (lambda m: run(m) + end() + app() + job(m, 1), True),
    "app-in-job": (lambda m: run(m) + app(), True),
    "app-flood": (lambda m: large_app(0) + large_app(1) + large_app(2), True),
    "app-order": (lambda m: app(index=1), True),
    "app-strings": (lambda m: hollow_app(), False),
    "no-argv": (lambda m: app(()) + job(m), True),
    "empty-program": (lambda m: app(("",)) + job(m) + start(), False),
    "no-program": (lambda m: app(("/no/such",)) + job(m) + start(), False),
    "tf-config-short": (lambda m: app() + job(m, flags=2048) + tf_config(roles=(2,)), True),
    "tf-config-tasks": (lambda m: app() + job(m, flags=2048) + tf_config(tasks=()), True),
    "tf-config-role": (lambda m: app() + job(m, flags=2048) + tf_config(roles=(2, 6)), True),
    "tf-config-again": (lambda m: app() + job(m, flags=2048) + tf_config() * 2, True),
    "tf-config-early": (lambda m: tf_config() + app() + job(m) + start(), False),
    "tf-config-never": (lambda m: app() + job(m, flags=2048) + start(), False),
    "start-twice": (lambda m: run(m) + start() * 100, False),
    "start-alone": (lambda m: start() + credit() + data() + signo(9) + end(), False),
    "start-after-end": (lambda m: app() + job(m) + end() + start(), False),
    "query-flood": (lambda m: [run(m)] + [query()] * 1000, False),
    "query-alone": (lambda m: query() + app() + job(m) + query() + start() + query(0) + query(MOST), False),
    "hung-foreign": (lambda m: run(m) + hung(2) + hung(MOST), False),
    "hung-life": (lambda m: run(m) + hung(life=0) + hung(life=2) + hung(life=MOST), False),
    "hung-epoch": (lambda m: run(m) + hung(epoch=0) + hung(epoch=2), False),
    "hung-flood": (lambda m: [run(m)] + [hung(), hung(1)] * 3000, False),
    "hung-alone": (lambda m: hung() + app() + job(m) + hung() + start(), False),
    "hung-after-end": (lambda m: run(m) + end(grace_ms=1000) + hung() + query(), False),
    "hung-short": (lambda m: run(m) + frame(WIRE["hung"][0], u32(1) + u32(0)), True),
    "sweep-in-job": (lambda m: run(m) + sweep("x"), True),
    "sweep-nothing": (lambda m: sweep(""), True),
    "input-flood": (lambda m: [run(m), *[data(65536)] * 100], True),
    "input-unread": (lambda m: [app() + job(m, stdin=MOST) + start()] + [data(65536)] * 1000, False),
    "credit-flood": (lambda m: app(("yes",)) + job(m) + start() + credit(MOST) * 10000, False),
    "signal-flood": (lambda m: run(m) + signo(signal.SIGWINCH) * 300, False),
    "signal-odd": (lambda m: run(m) + b"".join(signo(n, 1) for n in (0, 65, 1000, MOST)), False),
    "stop-tree": (lambda m: run(m) + signo(signal.SIGSTOP, 1), False),
    "beat-flood": (lambda m: [run(m)] + [BEAT * 1000] * 8000, False),
    "end-flood": (lambda m: [app() + job(m)] + [end(grace_ms=MOST) * 1000] * 1000, False),
    "job-flood": (lambda m: (app(("true",)) + job(m, e) + end(e) for e in range(1, 3000)), False),
    "suspended": (lambda m: run(m) + SUSPEND, False),
    "never-bye": (lambda m: run(m) + end(), False),
    "whole": (dialogue, True),
}


def bytes_of(act, mark):
    name, _, number = act.partition(":")
    if name in ACTS:
        return ACTS[name]
    whole = dialogue(mark)
    if name == "cut":
        return lambda m: whole[: int(number)], False
    chosen, changed = random.Random(int(number)), bytearray(whole)
    for _ in range(chosen.randint(1, 8)):
        changed[chosen.randrange(len(changed))] = chosen.choice([0, 1, 255, chosen.randrange(256)])
    return lambda m: bytes(changed), False


# ---- one agent ----

def send(ours, what, seconds):
    """As much as it takes in so many seconds; nothing is ever read."""
    ours.setblocking(False)
    until = time.monotonic() + seconds
    for chunk in [what] if isinstance(what, bytes) else what:
        while chunk:
            if not select.select([], [ours], [], max(0, until - time.monotonic()))[1]:
                return
            try:
                chunk = chunk[ours.send(chunk):]
            except (BrokenPipeError, ConnectionResetError):
                return


def wait(p, seconds):
    fd = os.pidfd_open(p.pid)
    over = bool(select.select([fd], [], [], seconds)[0])
    os.close(fd)
    return over


def play(agent, act):
    mark = f"HOSTILE_RUNNER={os.getpid()}.{act}"
    make, by_itself = bytes_of(act, mark)
    ours, theirs = socket.socketpair()
    p = subprocess.Popen([agent], stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL,
                         env=dict(os.environ, PATH="/usr/bin:/bin"), close_fds=True)
    theirs.close()
    wrong = []
    # what waits for us in the socket is left there, so a large one must not block the agent;
    # an agent that must end hears all, however slow the machine is
    send(ours, make(mark), LIMIT_S if by_itself else 3)
    if by_itself and not wait(p, LIMIT_S):
        wrong.append("does not end by itself")
    ours.close()
    if not wait(p, LIMIT_S):
        wrong.append(f"runs {LIMIT_S} s after its launcher left")
        p.kill()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = 0
    code = os.waitstatus_to_exitcode(status)
    if code < 0 or code >= 128:
        wrong.append(f"status {code}")
    if usage.ru_maxrss > RSS_MAX_KB:
        wrong.append(f"takes {usage.ru_maxrss} KiB")
    left = marked(mark + "\0")
    if left:
        wrong.append(f"leaves {left}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if wrong:
        sys.stdout.write(f"FAIL {act}: {'; '.join(wrong)}\n")
    elif os.environ.get("VERBOSE"):
        sys.stdout.write(f"ok {act}: status {code}, {usage.ru_maxrss >> 10} MiB\n")
    return not wrong


def starts_ranks(agent):
    """Whether the agent does what a launcher that keeps to the protocol says: else no act comes to where
    it should."""
    mark = f"HOSTILE_RUNNER={os.getpid()}.first"
    ours, theirs = socket.socketpair()
    p = subprocess.Popen([agent], stdin=theirs, stdout=theirs, env=dict(os.environ, PATH="/usr/bin:/bin"))
    theirs.close()
    ours.settimeout(LIMIT_S)
    ours.sendall(run(mark))
    said, started = b"", struct.pack("<B", WIRE["started"][0])
    while said.count(started + u32(1) + u32(0)) < 1 or said.count(started + u32(1) + u32(1)) < 1:
        part = ours.recv(65536)
        said += part
        if not part:
            break
    ours.close()
    return 0 <= p.wait(LIMIT_S) < 128 and bool(part)


def main(agent, acts):
    if not starts_ranks(agent):
        print("FAIL: the agent starts no ranks for a launcher that keeps to the protocol")
        return 1
    acts = acts or list(ACTS)
    if "cuts" in acts:
        acts.remove("cuts")
        mark = f"HOSTILE_RUNNER={os.getpid()}.cut:999"
        acts += [f"cut:{k}" for k in range(len(dialogue(mark)) + 1)]
    with ThreadPoolExecutor(6) as pool:
        fine = list(pool.map(lambda act: play(agent, act), acts))
    print(f"{sum(fine)} of {len(fine)} as they should be")
    return not all(fine)


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2:]))
