#!/usr/bin/env python3
"""What a job on cluster hosts costs, seen from outside of them; kill.sh and idle.sh call it.

    job.py kill ROUNDS LIMIT_S RUNNER...   kill -9 of a random rank to the end of runner
    job.py idle SECONDS RUNNER...          CPU time of a job that does nothing; memory of agents

RUNNER... is a whole command, run on n0, whose job has --events FILE and ranks that end at
SIGTERM.  The hosts' processes are processes of this machine too: they are found by BERTH_JOB in
their environment, and watched from here, where one clock serves all.
"""
import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time

VCLUSTER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster/vcluster")


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def field(pid, name):
    """KiB, or a number, of /proc/PID/status."""
    for line in read(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


class Job:
    """A job whose ranks all run; rank[i] is the pid of rank i on this machine."""

    def __init__(self, command):
        self.events = command[command.index("--events") + 1]
        self.said = open(self.events + ".err", "w+")
        if os.path.exists(self.events):
            os.unlink(self.events)
        self.process = subprocess.Popen([VCLUSTER, "exec", "n0", *command], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=self.said)
        np = int(command[command.index("-np") + 1])
        self.job_id = self.wait_for_ranks(np)
        self.rank = self.find_ranks()
        self.runner = self.find_runner()
        if len(self.rank) != np:
            sys.exit(f"job.py: {len(self.rank)} of {np} ranks found")

    def wait_for_ranks(self, np):
        while self.process.poll() is None:
            lines = [json.loads(line) for line in read(self.events).splitlines(True) if line.endswith(b"\n")]
            if sum(line["event"] == "rank started" for line in lines) == np:
                return lines[0]["job"]
            time.sleep(0.02)
        self.said.seek(0)
        sys.exit(f"job.py: the job ended at once:\n{self.said.read()}")

    def find_ranks(self):
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            words = read(f"/proc/{pid}/environ").split(b"\0")
            environ = dict(word.split(b"=", 1) for word in words if b"=" in word)
            if environ.get(b"BERTH_JOB", b"").decode() == self.job_id:
                found[int(environ[b"RANK"])] = int(pid)
        return found

    def find_runner(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            is_runner = read(f"/proc/{pid}/comm") == b"runner\n"
            if is_runner and self.events.encode() in read(f"/proc/{pid}/cmdline"):
                return int(pid)
        sys.exit("job.py: no runner found")

    def above(self, steps):
        """Pids that are so many steps above the ranks: 1 agents, 2 guardians, 3 what sshd ran."""
        pids = set(self.rank.values())
        for _ in range(steps):
            pids = {field(pid, "PPid") for pid in pids}
        return sorted(pids)

    def end(self):
        os.kill(self.runner, signal.SIGTERM)
        self.process.wait()


def kill(rounds, limit_s, command):
    times, wrong = [], 0
    for _ in range(rounds):
        job = Job(command)
        victim = random.choice(list(job.rank))
        ended = select.poll()
        ended.register(os.pidfd_open(job.runner), select.POLLIN)
        time.sleep(0.2)  # what the start left to do is not ours
        begin = time.monotonic()
        os.kill(job.rank[victim], signal.SIGKILL)
        if not ended.poll(30000):
            sys.exit("job.py: runner still runs after 30 s")
        times.append(time.monotonic() - begin)
        status = job.process.wait()
        job.said.seek(0)
        said = job.said.read()
        if status != 128 + signal.SIGKILL or f"runner: rank {victim} on" not in said:
            wrong += 1
            print(f"wrong: rank {victim} was killed; status {status}\n{said}")
    print(f"kill -9 of one rank to the end of runner: median {statistics.median(times) * 1e3:.0f} ms, "
          f"worst {max(times) * 1e3:.0f} of {rounds} rounds; at most {limit_s * 1e3:.0f} allowed")
    return 1 if wrong or max(times) > limit_s else 0


def ran_ms(pids):
    """Time that each of PIDS had on a CPU so far."""
    return {pid: int(read(f"/proc/{pid}/schedstat").split()[0]) / 1e6 for pid in pids}


def idle(seconds, command):
    job = Job(command)
    sshd = [pid for pid in job.above(3) + job.above(4) if read(f"/proc/{pid}/comm").startswith(b"sshd")]
    groups = {"runner": [job.runner], "agent": job.above(1), "guardian": job.above(2),
              "sshd": sorted(set(sshd))}
    time.sleep(2)
    before = {name: ran_ms(pids) for name, pids in groups.items()}
    time.sleep(seconds)
    worst = {}
    for name, pids in groups.items():
        used = [after - before[name][pid] for pid, after in ran_ms(pids).items()]
        worst[name] = max(used, default=0) / seconds / 10
        print(f"{name:9s} {len(pids):3d} of them: CPU ms in {seconds:.0f} s: "
              f"median {statistics.median(used):7.2f}, "
              f"most {max(used):7.2f} = {worst[name]:.4f} % of a core; "
              f"memory at most {max(field(pid, 'VmHWM') for pid in pids)} KiB")
    job.end()
    return 1 if worst["runner"] > 0.1 or worst["agent"] + worst["guardian"] > 0.1 else 0


def main():
    words = sys.argv[2:]
    if sys.argv[1] == "kill":
        return kill(int(words[0]), float(words[1]), words[2:])
    return idle(float(words[0]), words[1:])


sys.exit(main())
