#!/usr/bin/env python3
"""chaos.py SECONDS SEED [NUMBER]: random jobs, random faults; chaos.sh brings the cluster up for it.

Job after job for SECONDS, or job NUMBER alone.  After each: runner ended, in time; its status and
the first line of its report are those that are right for that job and that fault; output is
whole; nothing of the job is on any host that can be reached, and the others are named and clean
themselves up.  Words of a job that went wrong are kept in build/chaos.  Ends with a table.
"""
import contextlib
import dataclasses
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict

from chaos_plan import (CUT_OFF, FATAL, FOREVER, PAUSED, SILENCE_S, SILENT, WEATHER, WIDE, arguments,
                        expand, job_input, may_be_spared, outcomes, plan, undisturbed, wanted_output)
from chaos_world import Reader, World, first_report, runner_below

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("BUILD") or ROOT + "/build"
STATE = os.environ.get("VC_STATE") or "/run/vcluster-" + os.environ.get("VC_NAME", "vc")
HOSTS = int(os.environ.get("HOSTS", 2))
VCLUSTER = ROOT + "/tests/cluster/vcluster"
ALONE = "/opt/alone"  # runner and its agent on n0, where no other host sees them
READY_S = 180  # until all ranks run: PyTorch takes its time on a busy machine
END_S = 45  # from the fault to runner's end
CLEAN_S = 10  # from there to the end of what may take a moment: sshd's sessions
PATIENCE_S = 45  # of an agent that lost its launcher: --host-timeout + 15 s, and a look every 5
NAME_MS = float(os.environ.get("NAME_MS", 3000))  # from a fault to its name; silence apart


def rank_program(kind):
    if kind == "torch":
        return [ROOT + "/build/venv/bin/python3", ROOT + "/tests/cluster/chaos_torch.py"]
    return [ROOT + "/tests/cluster/chaos.rank", kind]


class Run:
    """One job, from its plan to what is wrong with it."""

    def __init__(self, job, world, base):
        self.job, self.world, self.base = job, world, base
        self.folder = f"{STATE}/t/job"
        self.wrong = []  # (column, text)
        self.named_ms = None
        self.undone = []  # what to call once the job is over
        self.runner = None

    def fail(self, column, text):
        self.wrong.append((column, text))

    # ---- the job ----

    def start(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o777)
        job = self.job
        if job.sent == "anew":
            for home in ["/home/alice"] if job.user == "alice" else ["/root"]:
                for host in job.hosts:
                    self.world.forget(host, home + "/.cache/berth")
        if job.weather:
            self.world.sh(f"inject {job.weather} {job.weather_on}")
            self.undone.append(lambda: self.mend(job.weather, job.weather_on))
        given = subprocess.PIPE if job.idle_input or job.input_lines >= 0 else subprocess.DEVNULL
        runner = ALONE + "/runner" if job.sent else BUILD + "/bin/runner"
        words = arguments(job, "/vc/t/job", rank_program(job.kind))
        self.child = subprocess.Popen(
            [VCLUSTER, "exec", "-u", job.user, "n0", "env", "--default-signal", runner, *words],
            stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        self.out = Reader(self.child.stdout, wait_s=job.reader_waits_s)
        self.err = Reader(self.child.stderr, timed=True)
        if job.input_lines >= 0:
            threading.Thread(target=self.feed, daemon=True).start()

    def feed(self):
        try:
            self.child.stdin.write(job_input(self.job))
            self.child.stdin.close()
        except OSError:
            pass

    def over(self):
        return self.child.poll() is not None

    def until(self, done, seconds):
        give_up = time.monotonic() + seconds
        while not done():
            if time.monotonic() > give_up:
                return False
            time.sleep(0.002)
        return True

    def pids(self):
        out = {}
        for path in glob.glob(self.folder + "/ready.*"):
            try:
                with open(path) as f:
                    out[int(path.rsplit(".", 1)[1])] = int(f.read())
            except (OSError, ValueError):
                pass
        return out

    def all_ready(self):
        return len(self.pids()) == self.job.np

    def kill(self, signo):
        """Whether runner was there to get it."""
        try:
            os.kill(self.runner or self.child.pid, signo)
            return True
        except ProcessLookupError:
            return False

    def wait_for_moment(self):
        job, delay_s = self.job, self.job.faults[0].after_s
        self.until(lambda: self.over() or self.find_runner(), 20)
        if job.moment == "start":
            time.sleep(delay_s)
            return
        if not self.until(lambda: self.all_ready() or self.over(), READY_S):
            self.fail("late", f"only ranks {sorted(self.pids())} of {job.np} were ready after {READY_S} s")
        ends = (job.limit_s or (job.life if job.life < FOREVER else 0)) if job.moment == "ending" else 0
        time.sleep(max(delay_s + ends, 0))

    def find_runner(self):
        self.runner = self.runner or runner_below(self.child.pid)
        return self.runner

    # ---- the faults ----

    def strike(self, fault):
        name, where = fault.name, fault.where
        fault.struck_at = time.time()
        if name in FATAL + WEATHER + ["rank_stopped"]:
            self.inject(fault, name, where)
        elif name in PAUSED:
            self.pause(fault, name, where)
        elif name in WIDE:
            fault.hit = self.strike_wide(name)
        elif name == "sshd_stopped":
            self.world.vc("sshd", where, "stop")
            self.undone.append(lambda: self.world.vc("sshd", where, "start"))
        elif name == "stdout_closed":
            self.out.stop.set()
        elif name in ("runner_suspended", "runner_paused"):
            fault.hit = self.kill(signal.SIGTSTP if name == "runner_suspended" else signal.SIGSTOP)
            time.sleep(fault.hold_s)
            self.kill(signal.SIGCONT)
            self.wake_wrapper()
        elif name.startswith("runner_"):
            for i, word in enumerate(name[7:].split("_")):
                time.sleep(0.05 * i)
                hit = self.kill(getattr(signal, "SIG" + word))
                fault.hit = hit or (i and fault.hit)

    def strike_wide(self, name):
        """Whether there was something to strike."""
        hit = name == "runner_cut_off"
        if name == "runner_cut_off":
            self.world.sh("inject partitioned n0")
            self.undone.append(lambda: self.world.sh("mend partitioned n0"))
        for host, processes in self.world.processes().items():
            for pid, _, comm, line, _ in processes:
                if name == "all_agents_killed" and comm == "berth-agent" or \
                        name == "streams_killed" and b"@notty" in line:
                    with contextlib.suppress(ProcessLookupError):  # it has just ended
                        os.kill(pid, signal.SIGKILL)
                        hit = True
        return hit

    def pause(self, fault, name, where):
        world, here = self.world, f"in_host {where} "
        ways = {"host_paused": ("inject host_frozen", "mend host_frozen"),
                "link_paused": ("inject partitioned", "mend partitioned"),
                "net_paused": ("inject partitioned n0 #", "mend partitioned n0 #"),
                "agent_paused": ("inject agent_stopped", "mend agent_stopped"),
                "guardian_paused": ("strike_agent %s 1 STOP #", "mend agent_stopped"),
                "session_paused": (here + "'kill -STOP $(soon sessions)' #",
                                   here + "'kill -CONT $(sessions)' #"),
                "rank_paused": ("inject rank_stopped",
                                here + r"""'pkill -CONT -f "chaos[._]"; true' #""")}
        stop, go_on = (way % where if "%s" in way else way for way in ways[name])
        fault.hit = world.sh(f"{stop} {where}")[0] == 0
        time.sleep(fault.hold_s)
        world.sh(f"{go_on} {where}")

    def wake_wrapper(self):
        """nsenter stops itself when what it runs is stopped."""
        for _ in range(3):
            try:
                os.kill(self.child.pid, signal.SIGCONT)
            except ProcessLookupError:
                return
            time.sleep(0.05)

    def inject(self, fault, name, where):
        patience = 10 if fault is self.job.faults[0] else 1  # a second one may find nothing left
        fault.hit = not self.world.sh(f"PATIENCE_S={patience} inject {name} {where}")[0]
        if name == "runner_and_agent_killed":
            self.wake_wrapper()
        self.undone.append(lambda: self.mend(name, where))
        moment = "start" if self.job.moment == "start" else "running"
        _, lines = self.world.sh(f"expect {name} {where} {moment}; printf '%s\\n' \"$want_status\" "
                                 "\"$want_line\" \"$blow_at\" \"$victim_pid\"")
        statuses, line, at, fault.pid = lines[-4:]
        fault.shared = ([int(s) for s in statuses.split("|")], line)
        fault.struck_at = float(at or fault.struck_at)

    def mend(self, name, where):
        self.world.sh(f"mend {name} {where}")
        if name == "host_cut":
            self.base.update(self.world.traces([where]))

    # ---- the end ----

    def finish(self):
        job = self.job
        harmless = not any(f.hit and (f.fatal or f.name == "stdout_closed") for f in job.faults
                           if not may_be_spared(job, f))
        if not job.finite and harmless and not self.over():
            if job.moment == "start" and not self.until(lambda: self.all_ready() or self.over(), READY_S):
                self.fail("late", f"only ranks {sorted(self.pids())} of {job.np} were ready at the end")
            time.sleep(0.2)
            if not self.over():
                self.kill(signal.SIGTERM)
        if not self.until(self.over, END_S):
            self.fail("late", f"runner still runs {END_S} s later")
            self.kill(signal.SIGKILL)
            self.child.wait()
        self.status = self.child.returncode

    def unreachable(self):
        """Hosts where nobody can look, or that only the mending cleans."""
        job = self.job
        gone = {f.where for f in job.faults
                if f.name in CUT_OFF + ["sshd_stopped", "runner_and_agent_killed"]}
        return gone | (set(job.hosts) if job.has(
            "runner_killed", "runner_and_agent_killed", "runner_cut_off") else set())

    def check_survivors(self):
        job = self.job
        said = bytes(self.err.data).decode(errors="replace")
        self.unconfirmed = expand(" ".join(re.findall(r"^runner: (\S+) did not confirm", said, re.M)))
        excused = self.unreachable()
        for host, left in self.left.items():
            if left and host not in excused and not (host in self.unconfirmed and host == job.weather_on):
                self.fail("left", f"at runner's end on {host}: {left}")
        for host in self.unconfirmed:
            if host not in excused and host != job.weather_on:
                self.fail("left", f"{host} did not confirm, and could")
        for f in job.faults:
            if f.name in CUT_OFF and f.hit and job.moment == "running" and not job.finite and \
                    len(job.faults) == 1 and f.where not in self.unconfirmed:
                self.fail("cause", f"{f.where} is not named as unconfirmed")

    def sweep(self):
        """What the hint on hosts that did not confirm says."""
        hint = re.search(r"`berth-agent (--sweep \w+)`", bytes(self.err.data).decode(errors="replace"))
        for host in self.unconfirmed if hint else []:
            self.world.sh(f"on {host} {BUILD}/bin/berth-agent {hint[1]}")

    def check_clean(self):
        hosts = list(self.base)
        slow = self.job.has("runner_cut_off", *SILENT, *WEATHER) or self.job.weather
        self.until(lambda: self.world.traces(hosts) == {h: self.base[h] for h in hosts},
                   PATIENCE_S if slow else CLEAN_S)
        for host, now in self.world.traces(hosts).items():
            more = list((Counter(now) - Counter(self.base[host])).elements())
            less = list((Counter(self.base[host]) - Counter(now)).elements())
            if more or less:
                self.fail("left", f"on {host} in the end: {more}, missing: {less}")

    def check_outcome(self):
        job, first, line = self.job, self.job.faults[0], first_report(self.err.data)
        status = 128 - self.status if self.status < 0 else self.status
        possible = outcomes(job, self.pids())
        fits = [want for code, want in possible if code == status]
        if not fits:
            self.fail("status", f"status {status}, not {sorted({c for c, _ in possible})}; it said: {line}")
        elif not any(w is None or (re.search(w, line or "", re.A) if w else not line) for w in fits):
            self.fail("cause", f"status {status} is right; it said: {line}\n    and not: {fits}")
        if status in (130, 141) and self.status >= 0 and fits:
            self.fail("status", f"runner exited with {status}, and did not die by the signal")
        if first.fatal and line and self.err.said_at and len(job.faults) == 1 and not job.weather and \
                status in first.shared[0] and status != undisturbed(job, {})[0]:
            silence_ms = 1000 * SILENCE_S if first.name in SILENT else 0
            self.named_ms = 1000 * (self.err.said_at - first.struck_at) - silence_ms
            if job.moment == "running" and self.named_ms > NAME_MS:
                self.fail("late", f"named after {self.named_ms:.0f} ms")

    def check_events(self):
        try:
            with open(self.folder + "/events") as f:
                events = [json.loads(line) for line in f]
            last, ended = events[-1], [e for e in events if e["event"] == "rank ended"]
        except (OSError, IndexError):
            return  # runner came to no job
        status = 128 - self.status if self.status < 0 else self.status
        by_signal = self.status < 0  # perhaps of ours, after the last event
        if last["event"] == "end" and last["status"] == status and ended and len(ended) != self.job.np:
            self.fail("status", f"{len(ended)} of {self.job.np} ranks ended, by the events")
        if last["event"] == "end" and last["status"] != status and not by_signal:
            self.fail("status", f"the events end with {last['status']}, runner with {status}")

    def check_output(self):
        job = self.job
        pipes = bytes(self.out.data), bytes(self.err.data)
        if job.kind == "floods" and job.output != "raw":
            odd = [m[0] for m in re.finditer(rb"^(?!\[ *(\d+)\]<stdout>:flood \1$).*\n", pipes[0], re.M)]
            cut = [m for m in map(re.compile(rb"\[ *(\d+)\]<stdout>:(.*)\n").fullmatch, odd)
                   if m and (b"flood " + m[1]).startswith(m[2])]
            if len(cut) > job.np or len(odd) - len(cut) > 1:  # one was not flooding yet
                self.fail("output", f"lines that no rank wrote: {odd[:3]}")
        for rank in range(job.np):
            wanted = wanted_output(job, rank)
            for k, name in enumerate(("stdout", "stderr")):
                if not wanted or (job.output == "raw" and k):
                    continue
                got = {}
                if job.output == "raw":
                    got["terminal"] = pipes[k]
                else:
                    label = rb"^\[ *%d\]<%s>:(.*\n)" % (rank, name.encode())
                    got["terminal"] = b"".join(re.findall(label, pipes[k], re.M))
                for path in glob.glob(f"{self.folder}/log/rank.*/{name}"):
                    if int(path.split("/")[-2].split(".")[1]) == rank:
                        with open(path, "rb") as f:
                            got["file"] = f.read()
                for place, text in got.items():
                    whole = self.status == 0 or (rank == job.victim and self.status == job.code
                                                 and not any(f.fatal for f in job.faults))
                    self.compare(f"rank {rank}'s {name} ({place})", text, wanted[k], whole)

    def compare(self, what, got, wanted, whole):
        if not whole:  # what came is right, as far as it came; the last line may be cut off
            got = got[:got.rfind(b"\n") + 1]
            wanted = wanted[:len(got)]
            if got.endswith(b"\n") and got != wanted:
                got = got[:got[:-1].rfind(b"\n") + 1]
                wanted = wanted[:len(got)]
        if got != wanted:
            at = next((i for i, (a, b) in enumerate(zip(got, wanted)) if a != b), min(len(got), len(wanted)))
            self.fail("output", f"{what}: {len(got)} bytes for {len(wanted)}, other ones from {at} on: "
                                f"{got[at:at + 40]!r} for {wanted[at:at + 40]!r}")

    def run(self):
        self.start()
        self.wait_for_moment()
        for i, fault in enumerate(self.job.faults):
            time.sleep(fault.after_s if i else 0)
            self.strike(fault)
        self.finish()
        self.left = self.world.of_jobs()
        self.err.join(5)
        self.check_survivors()
        for undo in reversed(self.undone):
            undo()
        if self.job.orphaned:
            for host in self.job.hosts:
                self.mend("runner_and_agent_killed", host)
        if self.unreachable() or self.job.weather:
            self.sweep()
        self.out.join(10)
        self.check_clean()
        self.check_outcome()
        self.check_events()
        self.check_output()
        if self.child.stdin and self.job.idle_input:
            self.child.stdin.close()


# ---- all of them ----

def keep(run, seed):
    folder = f"{BUILD}/chaos/{seed}-{run.job.number}"
    os.makedirs(folder, exist_ok=True)
    for name, reader in ("stdout", run.out), ("stderr", run.err):
        with open(f"{folder}/{name}", "wb") as f:
            f.write(bytes(reader.data[:1 << 20]))
    with open(folder + "/job", "w") as f:
        f.write(f"{run.job.in_words()}\n{dataclasses.asdict(run.job)}\n")
        f.write("\n".join(text for _, text in run.wrong) + "\n")
    print(f"VIOLATION in job {run.job.number}: {run.job.in_words()}")
    for column, text in run.wrong:
        print(f"    {column}: {text}")
    print("  its stderr:")
    for line in bytes(run.err.data[:4000]).decode(errors="replace").splitlines()[:12]:
        print(f"  | {line[:160]}")
    print(f"  kept in {folder}; repeat it: HOSTS={HOSTS} tests/cluster/chaos.sh 0 {seed} {run.job.number}",
          flush=True)


def table(runs, seed, seconds):
    columns = ["status", "cause", "left", "output", "late"]
    rows = defaultdict(list)
    for run in runs:
        rows[run.job.faults[0].name].append(run)
        if len(run.job.faults) > 1:
            rows["then " + run.job.faults[1].name].append(run)
        job = run.job
        for name in job.weather, job.openssh and "openssh", job.sent and "agent sent", job.user:
            if name:
                rows["+ " + name].append(run)
    rows["all jobs"] = runs
    print(f"chaos: seed {seed}, {HOSTS} hosts, {seconds:.0f} s, jobs of " +
          ", ".join(f"{kind} {n}" for kind, n in sorted(Counter(r.job.kind for r in runs).items())))
    print(f"{'fault':24} {'jobs':>5} " + " ".join(f"{c:>7}" for c in columns) +
          "  worst ms to name it, silence apart")
    for name in sorted(rows, key=lambda n: (n == "all jobs", n[0] == "+", n[:5] == "then ", n)):
        counts = [sum(any(c == column for c, _ in r.wrong) for r in rows[name]) for column in columns]
        named = [r.named_ms for r in rows[name] if r.named_ms is not None]
        print(f"{name:24} {len(rows[name]):5} " + " ".join(f"{n:7}" for n in counts) +
              (f"  {max(named):.0f}" if named else ""))


def main():
    seconds, seed = float(sys.argv[1]), sys.argv[2]
    only = [int(n) for n in sys.argv[3:]]
    os.makedirs(STATE + "/t", exist_ok=True)
    os.makedirs(BUILD + "/chaos", exist_ok=True)
    began = time.monotonic()
    with open(BUILD + "/chaos/log", "w") as log:
        world = World(ROOT, STATE, VCLUSTER, log)
        world.sh(f"on n0 sh -c 'mkdir {ALONE} && cp {BUILD}/bin/* {ALONE}'")
        base = world.traces([f"n{i}" for i in range(HOSTS + 1)])
        runs, number = [], 0
        while only or (len(sys.argv) == 3 and time.monotonic() - began < seconds):
            job = plan(seed, only.pop(0) if only else number, HOSTS)
            number += 1
            if os.environ.get("VERBOSE"):
                print(f"{job.number}: {job.in_words()}", flush=True)
            run = Run(job, world, base)
            run.run()
            runs.append(run)
            if run.wrong:
                keep(run, seed)
            run.out.data = run.err.data = bytearray()
    table(runs, seed, time.monotonic() - began)
    bad = sum(bool(r.wrong) for r in runs)
    print(f"{len(runs)} jobs, {bad} with a violation")
    sys.exit(1 if bad or not runs else 0)


if __name__ == "__main__":
    main()
