"""What job NUMBER of the chaos runner is, and what must come of it: from a seed, and pure.

A job is some ranks of one kind (chaos.rank has the kinds), one fault or none at one moment, often
a second one soon after it, while runner still deals with the first, and sometimes bad weather on a
host: loss or delay, which no job may notice.  A job that does not end by itself is ended by
--timeout, or by TERM to runner once the faults have had their time.
"""
import random
import re
from dataclasses import dataclass, field

TERM, FOREVER = 143, 1000
CUT_OFF = ["host_cut", "host_frozen", "partitioned"]
SILENT = ["agent_stopped"] + CUT_OFF  # noticed by silence alone
SILENCE_S = 5  # that is given up after; more than a busy machine holds up a process
# of inject.bash, which says what must come of them
FATAL = ["rank_killed", "agent_killed", "guardian_killed", "both_killed", "session_killed", "all_killed",
         "runner_killed", "runner_and_agent_killed", "oom"] + SILENT
WIDE = ["all_agents_killed", "streams_killed", "runner_cut_off"]  # on all hosts at once, and fatal
WEATHER = ["loss", "delay"]
# of chaos.py
PAUSED = ["rank_paused", "agent_paused", "guardian_paused", "session_paused", "host_paused", "link_paused",
          "net_paused"]
HARMLESS = ["none", "sshd_stopped", "runner_suspended", "runner_paused", "runner_QUIT"] + PAUSED
SIGNALS = {"TERM": 143, "INT": 130, "INT_INT": 130, "HUP": 129, "USR1": 138}
OURS = ["runner_" + name for name in SIGNALS] + ["stdout_closed"]
FAULTS = HARMLESS + OURS + WEATHER + FATAL + WIDE + ["rank_stopped"]
OFTEN = {"none": 2, "rank_killed": 3, "oom": 0.3, "host_cut": 0.5, "partitioned": 0.7, "host_frozen": 0.7,
         "agent_stopped": 0.5, "sshd_stopped": 2, "runner_TERM": 2}
NEVER_ON_N0 = ["session_killed", "session_paused", "oom", "host_paused", "link_paused", "net_paused",
               "sshd_stopped"] + SILENT + WEATHER + WIDE
DIES = r"^runner: rank %s on '%s' \(pid %s\) %s$"


@dataclass
class Fault:
    name: str = "none"
    where: str = "n1"
    after_s: float = 0.0  # of the moment, or of the fault before it
    hold_s: float = 0.5  # how long what is paused stays so
    # what became of it
    hit: bool = True  # it found something to break
    struck_at: float = 0.0
    shared: tuple = ((), "")  # what inject.bash expects of its faults: statuses, first line
    pid: str = ""  # of the rank it hit

    @property
    def fatal(self):
        return self.name in FATAL + WIDE


@dataclass
class Job:
    seed: int
    number: int
    hosts: list = field(default_factory=list)
    per_host: int = 1
    by_node: bool = False
    kind: str = "messy"
    life: float = FOREVER
    rest: float = FOREVER  # of ranks that are no victims
    victim: int = -1  # ends with code after life; -1: none
    code: int = 0
    lines: int = 0  # that a rank writes
    limit_s: int = 0  # --timeout
    moment: str = "running"
    faults: list = field(default_factory=list)  # one or two
    weather: str = ""
    weather_on: str = ""
    stdin: str = "0"
    input_lines: int = -1  # -1: stdin is /dev/null
    idle_input: bool = False  # stdin never ends
    reader_waits_s: float = 0.0
    output: str = "tagged"
    files: bool = False
    keep_going: bool = False
    user: str = "root"
    openssh: bool = False  # the other transport
    sent: str = ""  # the agent is: "anew", or "" for the one that is there; "cached": was sent before

    @property
    def np(self):
        return len(self.hosts) * self.per_host

    def host_of(self, rank):
        n = len(self.hosts)
        return self.hosts[rank % n if self.by_node else rank // self.per_host]

    @property
    def orphaned(self):
        """Whether a host was left without agents, and runner was killed before it had swept it."""
        return self.has("both_killed", "all_killed", "all_agents_killed") and \
            self.faults[-1].name == "runner_killed" and all(f.hit for f in self.faults)

    @property
    def finite(self):
        return self.life < FOREVER or self.kind in ("writes", "reads") or self.limit_s

    def reads(self, rank):
        return self.stdin == "all" or self.stdin == str(rank)

    def has(self, *names):
        return any(f.name in names for f in self.faults)

    def in_words(self):
        what = f"{self.kind} on {','.join(self.hosts)} x{self.per_host}"
        if self.victim >= 0:
            what += f", rank {self.victim} ends with {self.code} after {self.life} s"
        elif self.life < FOREVER:
            what += f" for {self.life} s"
        what += f"; {self.moment}"
        what += "".join(f" +{f.after_s} s {f.name} at {f.where}" for f in self.faults)
        extra = [self.weather and f"{self.weather} at {self.weather_on}", self.output, self.files and "files",
                 self.keep_going and "--keep-going", self.user, self.openssh and "openssh",
                 self.sent and f"agent sent ({self.sent})", self.limit_s and f"--timeout {self.limit_s}",
                 self.reader_waits_s and f"reader waits {self.reader_waits_s} s"]
        return what + "".join(f", {e}" for e in extra if e)


def choose_end(r, job):
    """How it ends by itself, if it does."""
    if job.kind not in ("writes", "reads") and r.random() < 0.08:
        job.limit_s = r.choice([1, 2])
    if job.kind == "floods" or job.limit_s or r.random() < 0.45:
        return
    job.life = job.rest = round(r.uniform(0.1, 1.5), 2)
    if job.kind == "torch" or r.random() < 0.5:
        return
    job.victim = r.randrange(job.np)
    signals = [134, 137, 138, 139, 143] if job.kind in ("messy", "waits", "dumb") else []
    job.code = r.choice([1, 2, 3, 77, 124, 241, 255] + signals)
    job.keep_going = r.random() < 0.3
    job.rest = job.life + 0.4 if job.keep_going else FOREVER


def choose_streams(r, job):
    job.stdin = r.choice(["0", "0", "all", "none", str(r.randrange(job.np))])
    job.output = r.choice(["tagged", "tagged", "pty", "raw" if job.np == 1 else "tagged"])
    job.files = r.random() < 0.25
    job.reader_waits_s = r.choice([0.5, 1, 3]) if r.random() < 0.2 else 0.0
    if job.kind == "reads":
        job.input_lines = r.choice([0, 1, 1000, 50000])
        job.output = "tagged" if job.output == "pty" else job.output
    elif r.random() < 0.3:
        job.idle_input = True
    if job.kind == "writes":
        job.lines = r.choice([0, 1, 100, 20000])


def choose_faults(r, job):
    job.moment = r.choice(["start", "running"] + ["ending"] * (2 if job.finite else 0))
    spread = {"start": (0, 0.4), "running": (0, 0.3), "ending": (-0.15, 0.15)}[job.moment]
    where = r.choice(job.hosts)
    names = [f for f in FAULTS if f not in ("stdout_closed", "rank_stopped")]
    if job.kind == "floods" and not job.limit_s:
        names.append("stdout_closed")
    if not job.finite:
        names.append("rank_stopped")
    if "n0" in job.hosts:
        names = [n for n in names if n not in WIDE]
    if job.moment == "start":  # which rank it hits must be known; and a log-in that is cut is tried again
        names = [n for n in names if n not in ("rank_paused", "rank_stopped", "streams_killed")]
    job.faults = [choose_fault(r, job, names, where, round(r.uniform(*spread), 3))]
    if r.random() < 0.3:
        job.faults.append(choose_second(r, job))
    remote = [h for h in job.hosts if h != "n0"]
    if remote and not job.has("oom", *SILENT, *WEATHER) and r.random() < 0.12:
        job.weather, job.weather_on = r.choice(WEATHER), r.choice(remote)


def choose_fault(r, job, names, where, after_s):
    if job.kind == "floods":  # what is on its way needs memory, too
        names = [f for f in names if f != "oom"]
    if where == "n0":
        names = [f for f in names if f not in NEVER_ON_N0]
    name = r.choices(names, [OFTEN.get(f, 1) for f in names])[0]
    return Fault(name, where, after_s, round(r.uniform(0.1, 1.2), 2))


def choose_second(r, job):
    first = job.faults[0]
    others = [h for h in job.hosts if h != first.where]
    where = r.choice(others or job.hosts)
    names = OURS[:-1] + FATAL + ["runner_suspended", "runner_QUIT"]
    if first.fatal and not others:  # nothing is left to hit there
        names = OURS[:-1]
    return choose_fault(r, job, names, where, round(r.uniform(0, 1), 3))


def plan(seed, number, nhosts):
    r = random.Random(f"{seed}:{number}:{nhosts}")
    job = Job(seed, number)
    names = ["n0"] * (r.random() < 0.2) + [f"n{i}" for i in range(1, nhosts + 1)]
    r.shuffle(names)
    job.hosts = names[:r.randint(1, len(names))]
    job.per_host = r.randint(1, 4)
    job.by_node = r.random() < 0.2
    kinds = {"messy": 5, "waits": 4, "hops": 3, "saves": 4, "deaf": 3, "dumb": 2, "writes": 3, "floods": 2,
             "reads": 2, "torch": 0.7}
    job.kind = r.choices(list(kinds), list(kinds.values()))[0]
    if job.kind == "torch":
        job.per_host = 1
    choose_end(r, job)
    choose_streams(r, job)
    job.openssh = r.random() < 0.15
    choose_faults(r, job)
    job.user = r.choice(["root", "root", "alice"])
    job.sent = r.choices(["", "anew", "cached"], [5, 1, 1])[0]
    return job


def arguments(job, folder, rank_program):
    a = ["-H", ",".join(f"{h}:{job.per_host}" for h in job.hosts), "--kill-grace", "1"]
    a += ["--stdin", job.stdin, "-x", f"CHAOS_DIR={folder}", "--events", f"{folder}/events"]
    if job.by_node:
        a += ["--map-by", "node"]
    if job.has("runner_cut_off", *SILENT):
        a += ["--host-timeout", str(SILENCE_S), "--start-timeout", "8" if job.moment == "start" else "30"]
    if job.output == "pty":
        a += ["--pty"]
    if job.output == "raw":
        a += ["--no-tag"]
    if job.files:
        a += ["--output-filename", f"{folder}/log"]
    if job.keep_going:
        a += ["--keep-going"]
    if job.openssh:
        a += ["--transport", "openssh"]
    if job.limit_s:
        a += ["--timeout", str(job.limit_s)]
    words = [job.life, job.rest, job.victim, job.code, job.lines]
    return a + rank_program + [str(w) for w in words]


# ---- what must come of it: pairs of a status and what the first line of runner's own must match
# ("": there must be none; None: anything)

def undisturbed(job, pids):
    """Without its faults; PIDS[rank] as far as known."""
    if job.limit_s:
        return (124, r"^runner: the time limit of \d s has passed$")
    if not job.finite:
        return (0, "") if job.kind == "saves" else (TERM, "")
    return died(job, pids) if job.victim >= 0 else (0, "")


def died(job, pids):
    names = {134: "SIGABRT", 137: "SIGKILL", 138: "SIGUSR1", 139: "SIGSEGV", 143: "SIGTERM"}
    how = f"was ended by {names[job.code]}" if job.code in names else f"exited with status {job.code}"
    pid = pids.get(job.victim, r"\d+")
    return (job.code, DIES % (job.victim, job.host_of(job.victim), pid, how))


def may_be_spared(job, fault):
    """A session that ends before the agent has greeted is begun anew."""
    return job.moment == "start" and fault.name == "session_killed"


def alone(job, fault, pids):
    """Had FAULT been the only one."""
    usual = undisturbed(job, pids)
    with_usual = [usual] if job.finite or may_be_spared(job, fault) else []
    if not fault.hit:
        return [usual]
    if fault.name == "rank_stopped":
        return [(TERM, "")]
    if fault.name in WIDE:
        line = r"^runner: (\w+@)?n[][\d,-]+(:22)?: "
        if job.moment != "start":
            line += r"(no message for \d+ s|lost its agent|connection lost)"
        return with_usual + [(241, line)] + [(240, line)] * (job.moment == "start")
    if fault.fatal:
        # a killed runner says nothing, but for what has ended the job just before
        lines = [fault.shared[1]] if fault.shared[1] else ["", usual[1]]
        return with_usual + [(status, line) for status in fault.shared[0] for line in lines]
    if fault.name == "stdout_closed":
        return [(141, "")]
    if fault.name == "sshd_stopped" and job.moment == "start":
        return [usual, (240, rf"^runner: (\w+@)?{fault.where}(:22)?: ")]
    if fault.name in OURS:
        return with_usual + signalled(job, fault, usual)
    return [usual]


def signalled(job, fault, usual):
    name = fault.name[len("runner_"):]
    status = SIGNALS[name]
    early = job.moment == "start"  # before traps are set, or runner looks
    if name == "USR1":
        line = r"^runner: rank \d+ on '.*' \(pid \d+\) was ended by SIGUSR1$"
        lives = [usual] if early or job.kind in ("saves", "deaf") else []
        dies = [(status, line)] if early or job.kind not in ("saves", "deaf") else []
        return lives + dies + ([(status, "")] if early else [])
    saved = [(0, "")] if name == "TERM" and job.kind == "saves" else []
    ended = [(0, "")] if name == "TERM" and job.finite and job.victim < 0 else []
    if saved and not early and not job.finite:
        return saved
    # a rank's failure, or the time limit, may have been said before
    return [(status, None if job.victim >= 0 or job.limit_s else "")] + saved + ended


def outcomes(job, pids):
    first, second = (job.faults + [None])[:2]
    possible = alone(job, first, pids)
    if not second or not second.hit:
        return possible
    if not first.fatal or not first.hit:
        # a signal to runner that ends the job hides what comes after; TERM leaves 0 to ranks that all save
        if first.hit and first.name in OURS and "USR1" not in first.name:
            return possible + [(TERM, "")] * (first.name == "runner_TERM")
        possible = possible if job.finite or first.name in OURS else []
        return possible + alone(job, second, pids)
    if second.name in OURS and "USR1" not in second.name:  # it ended the job, too; the cause was said, or not
        return possible + [(status, None) for status, _ in signalled(job, second, undisturbed(job, pids))]
    if second.name == "runner_killed":
        return possible + [(status, None) for status in second.shared[0]]
    silence = first.name in SILENT + ["runner_cut_off"]
    if silence or second.struck_at - first.struck_at < 0.3 or job.moment == "start":
        possible = possible + alone(job, second, pids)
    return possible


def wanted_output(job, rank):
    """(stdout, stderr) of RANK that ran to its end, or None where it is none of this job's matter."""
    if job.kind == "writes":
        out = "".join(f"out {rank} {i}\n" for i in range(1, job.lines + 1)) + f"last {rank:065536d}\n"
        return out.encode(), "".join(f"err {rank} {i}\n" for i in range(1, job.lines + 1)).encode()
    if job.kind == "reads":
        return (job_input(job) if job.reads(rank) else b""), b""
    return None


def job_input(job):
    return b"".join(b"input %d %d\n" % (job.number, i) for i in range(max(job.input_lines, 0)))


def expand(names):
    """n[1-2,4],n7 -> n1 n2 n4 n7"""
    out = []
    for prefix, inside, plain in re.findall(r"([a-z]+)\[([\d,-]+)\]|([a-z]+\d+)", names):
        for part in inside.split(",") if inside else []:
            first, _, last = part.partition("-")
            out += [f"{prefix}{i}" for i in range(int(first), int(last or first) + 1)]
        out += [plain] if plain else []
    return out
