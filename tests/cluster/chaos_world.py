"""The hosts of a cluster seen from outside, where every process of every host has a pid."""
import os
import re
import shutil
import subprocess
import threading
import time

NO_FAILURE = re.compile(rb"runner: (warning:|\^C|received SIG|rank status|\S+ did not confirm"
                        rb"|.*; given up after )")
# what may stay: Python's own, which a killed worker leaves, and agents in their cache
SHARED = os.path.realpath(os.environ.get("VC_SHARE") or os.path.join(os.path.dirname(__file__), "..", ".."))
PASSING = re.compile(r"/tmp/(pymp-|torch_)|/berth/agent-\w+$|/dev/shm/berth-\d+/way/")


class World:
    def __init__(self, root, state, vcluster, log):
        self.root, self.state, self.vcluster, self.log = root, state, vcluster, log
        self.shell = subprocess.Popen(["bash", "-c", SHELL, "bash", root + "/tests/cluster"], text=True,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def sh(self, code):
        """Run CODE in the shell that has inject.bash; (status, lines)."""
        self.shell.stdin.write(code + "\n")
        self.shell.stdin.flush()
        lines = []
        for line in self.shell.stdout:
            if line.startswith("@@ "):
                return int(line[3:]), lines
            lines.append(line.rstrip("\n"))
        raise RuntimeError("the shell with inject.bash is gone")

    def vc(self, *words):
        subprocess.run([self.vcluster, *words], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def inits(self):
        with open(self.state + "/pids") as f:
            return {h: int(p) for h, p in (line.split() for line in f)}

    def processes(self):
        """host -> [(pid, state, comm, command line, environment)]"""
        space = {}
        for host, pid in self.inits().items():
            try:
                space[os.readlink(f"/proc/{pid}/ns/pid")] = host
            except OSError:
                pass
        out = {host: [] for host in space.values()}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                host = space.get(os.readlink(f"/proc/{pid}/ns/pid"))
                if host:
                    stat = read(f"/proc/{pid}/stat").decode(errors="replace")
                    comm, rest = stat[stat.index("(") + 1:].rsplit(")", 1)
                    out[host].append((int(pid), rest.split()[0], comm, read(f"/proc/{pid}/cmdline"),
                                      read(f"/proc/{pid}/environ")))
            except OSError:
                pass
        return out

    def forget(self, host, folder):
        """Remove FOLDER of HOST."""
        shutil.rmtree(f"/proc/{self.inits()[host]}/root{folder}", ignore_errors=True)

    def of_jobs(self):
        """host -> command lines of processes that carry a job's job_id"""
        return {host: [f"{comm} {pid} {state} {line.decode(errors='replace')[:80]!r}"
                       for pid, state, comm, line, env in all_ if b"BERTH_JOB=" in env]
                for host, all_ in self.processes().items()}

    def traces(self, hosts):
        """host -> what jobs leave: processes, sockets, files, shared memory, cgroups"""
        now, inits, out = self.processes(), self.inits(), {}
        for h in hosts:
            found = ["process " + (line.replace(b"\0", b" ").decode(errors="replace") or comm)
                     for pid, state, comm, line, env in now.get(h, [])
                     if b"BERTH_JOB=" in env or comm == "berth-agent" or b"@notty" in line]
            root = f"/proc/{inits[h]}"
            found += ["listens " + w[1] for w in words(root + "/net/tcp") + words(root + "/net/tcp6")
                      if w[3] == "0A"]
            found += ["socket " + w[7] for w in words(root + "/net/unix") if len(w) > 7 and w[7][0] == "@"]
            for top in "/tmp", "/dev/shm", "/root/.cache/berth", "/home/alice/.cache/berth":
                for folder, below, files in os.walk(root + "/root" + top):
                    below[:] = [d for d in below if os.path.join(folder, d) != root + "/root" + SHARED]
                    found += ["file " + os.path.join(folder, f)[len(root) + 5:] for f in files
                              if not PASSING.search(folder + "/" + f)]
            for folder, names, _ in os.walk(root + "/root/sys/fs/cgroup"):
                found += ["cgroup " + n for n in names if n.startswith("berth-")]
            segments = subprocess.run(["nsenter", "-t", str(inits[h]), "-i", "cat", "/proc/sysvipc/shm"],
                                      capture_output=True, text=True).stdout
            found += ["segment " + line for line in segments.splitlines()[1:]]
            out[h] = sorted(found)
        return out


SHELL = r"""
cd "$1"
load() { source "$1.bash"; }
bats_require_minimum_version() { :; }
load jobs
load inject
set +e
while IFS= read -r line; do
	eval "$line" < /dev/null
	echo "@@ $?"
done
"""


def read(path):
    with open(path, "rb") as f:
        return f.read()


def words(path):
    try:
        with open(path, errors="replace") as f:
            return [line.split() for line in f][1:]
    except OSError:
        return []


def runner_below(pid):
    """The process called runner below PID, which enters a host; None if there is none yet."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            children = f.read().split()
        for child in children:
            with open(f"/proc/{child}/comm") as f:
                if f.read() == "runner\n":
                    return int(child)
            below = runner_below(child)
            if below:
                return below
    except OSError:
        pass
    return None


class Reader(threading.Thread):
    """What comes out of a pipe, each line's time with it when it is wanted."""

    def __init__(self, pipe, wait_s=0.0, timed=False):
        super().__init__(daemon=True)
        self.pipe, self.wait_s, self.timed = pipe, wait_s, timed
        self.data, self.stop = bytearray(), threading.Event()
        self.said_at = None
        self.start()

    def run(self):
        time.sleep(self.wait_s)
        fd, looked = self.pipe.fileno(), 0
        while not self.stop.is_set():
            piece = os.read(fd, 65536)
            if not piece:
                break
            if len(self.data) < 64 << 20:
                self.data += piece
            if self.timed and self.said_at is None:
                end = self.data.rfind(b"\n") + 1
                if first_report(self.data[looked:end]):
                    self.said_at = time.time()
                looked = end
        self.pipe.close()


def first_report(data):
    """The first whole line of runner's own that tells of a failure, or None."""
    for line in bytes(data).split(b"\n")[:-1]:
        if line.startswith(b"runner: ") and not NO_FAILURE.match(line):
            return line.decode(errors="replace")
    return None
