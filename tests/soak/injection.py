#!/usr/bin/python3
"""injection.py all|sample: calls of libc fail in runner, agent and guardian, one a job.

For each program and kind of call (tests/helpers/libfaults.c) the first, second, third ... call
fails, until a job ends without so many.  Each job is two ranks that leave a process behind and
end with 0; for the guardian one of them kills the agent.  What must be true after it:

  told      runner ended with a status of its own (125, 240, 241) and said why, or
  harmless  it ended with 0, and all output is there;
  within 10 s, no process left, and nobody was ended by a signal of the kind that bugs send.

all prints a table of counts; sample prints TAP for some calls, drawn by SEED.  Both are to be
run with the programs and helpers built.
"""
import os, random, re, shutil, signal, subprocess, sys, tempfile, time

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIBRARY = BUILD + "/helpers/libfaults.so"
KINDS = {
    "agent": "alloc fork pipe socket open mmap epoll random read write",
    "guardian": "alloc open dup read",
    "runner": "alloc fork pipe socket open epoll random read write full",
}
LIMIT_S = 10
STRIDE = 50
JOB = 'setsid sleep 1000 & echo "out $RANK"'
# for the guardian there is something to do where its agent dies
KILLS = "setsid sh -c 'sleep 1000 & sleep 1000 & wait' & sleep 1000 & kill -KILL $PPID; wait"
BUGS = re.compile(r"status (139|134|136|132|135)\b|SIGSEGV|SIGABRT|Sanitizer|ssertion")


class Trial:
    """One job in which call N of KIND fails in WHO."""

    def __init__(self, folder, who, kind, n, last=False):
        self.who, self.kind, self.n, self.last = who, kind, n, last
        self.mark = f"FAULTS_MARK={folder}/{random.getrandbits(64):x}"
        self.folder, self.log = folder, folder + "/log"
        for name in "log", "first":
            if os.path.exists(f"{folder}/{name}"):
                os.unlink(f"{folder}/{name}")
        self.run()

    def run(self):
        begin = time.monotonic()
        job = subprocess.Popen(
            [BUILD + "/bin/runner", "--launch-agent", self.folder + "/agent", "--kill-grace", "1",
             *(["--pty"] if self.kind == "open" else []), "-np", "2",
             "sh", "-c", KILLS if self.who == "guardian" else JOB],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.environment())
        try:
            self.out, self.err = job.communicate(timeout=LIMIT_S)
            self.status = job.returncode
        except subprocess.TimeoutExpired:
            self.left = self.alive()
            job.send_signal(signal.SIGQUIT)
            time.sleep(0.2)
            for pid in self.alive():
                kill(pid)
            self.out, self.err = job.communicate()
            self.status = None
        self.seconds = time.monotonic() - begin
        self.left = self.alive()
        # where runner itself died, its agents see that and clear up
        until = time.monotonic() + 5
        while self.who == "runner" and self.left and time.monotonic() < until:
            self.left = self.alive()
        for pid in self.left:
            kill(pid)
        self.hit = open(self.log).read().strip() if os.path.exists(self.log) else ""

    def environment(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("BERTH_", "FAULTS"))}
        name, value = self.mark.split("=", 1)
        env |= {name: value, "FAULTS_N": str(self.n), "FAULTS": self.kind, "FAULTS_LOG": self.log,
                "FAULTS_PROGRAM": "runner" if self.who == "runner" else "berth-agent",
                "FAULTS_IN": self.who, "LC_ALL": "C.UTF-8"}
        if self.last:
            env["FAULTS_LAST"] = "1"
        if self.who == "runner":
            env["LD_PRELOAD"] = LIBRARY
        return env

    def alive(self):
        """Processes of this job, zombies apart."""
        mark, found = self.mark.encode(), []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if mark in f.read().split(b"\0"):
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def outcome(self):
        if self.status is None:
            return "HANG"
        if self.left:
            return "LEFT"
        if self.status < 0 or BUGS.search(self.err):
            return "CRASH"
        if self.status == 0:
            whole = sorted(re.findall(r"out [01]", self.out)) == ["out 0", "out 1"]
            return "harmless" if whole else "LOST"
        said = re.search(r"^(runner|berth): \S", self.err, re.M)
        if self.kind == "full" and len(os.sched_getaffinity(0)) == 1:
            said = True  # what could not be written is the warning that the ranks share a core
        return "told" if self.status in (2, 125, 240, 241) and said else "MUTE"

    def wrong(self):
        return self.outcome().isupper()

    def __str__(self):
        words = " / ".join(self.err.strip().splitlines()[:3])
        return (f"{self.who} {self.hit or self.kind}: {self.outcome()}, status {self.status} after "
                f"{self.seconds:.1f} s; {words}")


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def make_folder():
    """With the agent's stand-in: the first to be started has the fault, the sweep's has none."""
    folder = tempfile.mkdtemp(prefix="berth-injection.")
    with open(folder + "/agent", "w") as f:
        f.write(f"""#!/bin/sh
[ "$FAULTS_PROGRAM" = berth-agent ] && (set -C; : > {folder}/first) 2> /dev/null &&
	export LD_PRELOAD={LIBRARY}
exec {BUILD}/bin/berth-agent "$@"
""")
    os.chmod(folder + "/agent", 0o755)
    return folder


def calls(folder, who, kind, last, steps):
    """A trial for each call that STEPS picks, until there are no more calls."""
    n = 1
    while True:
        t = Trial(folder, who, kind, n, last)
        if not t.hit and not t.wrong():
            return
        yield t
        n += steps(n)


def rows():
    for who, kinds in KINDS.items():
        for kind in kinds.split():
            yield who, kind, False
        yield who, "alloc", True
        if who == "agent":
            yield who, "open", True


def title(who, kind, last):
    return f"{who:8} {kind}{' from then on' if last else ''}"


def everything(folder):
    bad = 0
    print(f"{'program  call':30}  calls  told  harmless  wrong  slowest")
    for row in rows():
        trials = []
        for t in calls(folder, *row, lambda n: 1):
            trials.append(t)
            if t.wrong():
                print("  " + str(t), flush=True)
        count = lambda what: sum(t.outcome() == what for t in trials)
        wrong = sum(t.wrong() for t in trials) + (not trials)
        bad += wrong
        print(f"{title(*row):30} {len(trials):6} {count('told'):5} {count('harmless'):9} {wrong:6} "
              f"{max((t.seconds for t in trials), default=0):6.1f} s", flush=True)
    print(f"{bad} wrong")
    return bad


def sample(folder):
    """The first calls of each kind, then one of about STRIDE.  A kind that is never called
    fails, too: it proves nothing."""
    bad, all_rows = 0, list(rows())
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(1 << 32))
    draw = random.Random(seed)
    print(f"1..{len(all_rows)}\n# SEED={seed}")
    for number, row in enumerate(all_rows, 1):
        trials = list(calls(folder, *row, lambda n: 1 if n < 8 else draw.randint(1, 2 * STRIDE)))
        wrong = [t for t in trials if t.wrong()]
        bad += len(wrong) + (not trials)
        print(f"{'not ' if wrong or not trials else ''}ok {number} - {' '.join(title(*row).split())} fails: "
              f"{len(trials)} calls tried", flush=True)
        for t in wrong:
            print(f"# {t}")
    return bad


def main():
    if os.environ.get("SAN") == "1":
        print("1..0 # skip: the sanitizers' own malloc has to be the first library")
        return 0
    folder = make_folder()
    try:
        return {"all": everything, "sample": sample}[sys.argv[1]](folder)
    finally:
        shutil.rmtree(folder)


sys.exit(1 if main() else 0)
