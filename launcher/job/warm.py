"""A warm process: it imports what a Python program imports, and ranks are forked from it.

It is started as the program would be, with "-c" and a line that runs this text in place of the program:
sys.argv[1:] is "file", "module" or "text", what that names, and the program's arguments.  The agent puts
HEAD in front: the descriptor of a socket to it, folders, and names of variables that a rank has of its own.
With the descriptor -1 (runner --check) it says between two NULs what would be imported, and ends.

Each module is imported in a forked child first, which becomes the warm process if the module did nothing there
that ranks must not share.  So nothing is imported twice, and what may not be imported leaves nothing behind.
"""
import sys

BARE = set(sys.modules)  # what any program finds imported: no file beside it hides these

import array
import ast
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import importlib.machinery
import importlib.util
import linecache
import os
import resource
import runpy
import select
import signal
import socket
import termios
import time

FILE = "<berth warm>"  # this text, in stacks
PR_SET_PDEATHSIG = 1
IMPORT_S = 60  # for one module
GIVEN = dict(os.environb)  # before any import
SLOW_S = 0.1  # an import that takes longer is not to be done again because of another module
# Where a value binds threads, OpenMP takes the CPUs of the process that loads it.
BINDS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
# What a module imports later, when it is used.  torch: its first optimizer does, in 1.5 s.
LATER = {"torch": ("torch._dynamo",)}


# ---- what the program imports ----

def always(body):
    """The import statements of BODY outside functions."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If):
            if "__name__" in ast.dump(node.test):
                yield from always(node.body)
        elif isinstance(node, ast.Try):
            yield from always(node.body)
            yield from always(node.finalbody)
        elif isinstance(node, (ast.With, ast.ClassDef)):
            yield from always(node.body)


def spec_in(folders, name):
    """The spec of NAME, "a.b", as FOLDERS have it, or None.  Nothing is imported."""
    spec = None
    for i, part in enumerate(name.split(".")):
        if i:
            folders = spec.submodule_search_locations
        if folders is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(".".join(name.split(".")[:i + 1]), list(folders))
        if spec is None:
            return None
    return spec


class Scan:
    """The modules that a program imports: its own ones, in HOME, are read for what they import."""

    def __init__(self, home):
        self.home, self.names, self.read = home, [], set()

    def text(self, text, package=None):
        for node in always(ast.parse(text).body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.name(alias.name, ())
            elif not node.level:
                self.name(node.module, [a.name for a in node.names])
            elif package:
                base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
                self.name(f"{base}.{node.module}" if node.module else base, [a.name for a in node.names])

    def is_own(self, top):
        """A folder that is no package gives way to a package, wherever that is."""
        spec = self.home and spec_in([self.home], top)
        return spec and (spec.origin or not getattr(spec_in(sys.path, top), "origin", None))

    def name(self, name, attributes):
        if self.is_own(name.split(".")[0]):
            for own in (name, *(f"{name}.{a}" for a in attributes)):
                self.own(own)
        elif name not in self.names:
            self.names.append(name)
            # "from a import b": b may be a module
            self.names += [f"{name}.{a}" for a in attributes if a != "*" and f"{name}.{a}" not in self.names]

    def own(self, name):
        spec = spec_in([self.home], name)
        origin = spec and spec.origin
        if not origin or not origin.endswith(".py") or origin in self.read or len(self.read) > 200:
            return
        self.read.add(origin)
        with open(origin, "rb") as f:
            self.text(f.read(), spec.name if spec.submodule_search_locations else spec.parent)


class Program:
    """HOW: "file", "module" or "text"; WHAT that names; the arguments behind it."""

    def __init__(self, words):
        self.how, self.what, self.arguments = words[0], words[1], words[2:]
        self.is_safe = getattr(sys.flags, "safe_path", False) or sys.flags.isolated

    def home(self):
        """What Python would put in front of sys.path."""
        if self.is_safe:
            return None
        return os.path.dirname(os.path.realpath(self.what)) if self.how == "file" else os.getcwd()

    def imports(self):
        scan = Scan(self.home())
        if self.how == "text":
            scan.text(self.what)
        elif self.how == "file":
            with open(self.what, "rb") as f:
                scan.text(f.read())
        else:
            spec = spec_in([self.home()] if self.home() else [], self.what.split(".")[0])
            if not spec:
                return [self.what.split(".")[0]]
            for name in (self.what, f"{self.what}.__main__"):
                scan.own(name)
        return scan.names

    def run(self):
        """In a rank: as Python itself would."""
        main = sys.modules["__main__"]
        for name in [n for n in vars(main) if not n.startswith("__")]:
            delattr(main, name)
        sys.argv = [{"file": self.what, "module": "-m", "text": "-c"}[self.how], *self.arguments]
        if not self.is_safe:
            sys.path.insert(0, "" if self.how == "text" else self.home())
        if self.how == "module":
            return runpy._run_module_as_main(self.what)
        if self.how == "text":
            if sys.version_info >= (3, 13):  # stacks have its lines
                linecache.cache["<string>"] = len(self.what), None, self.what.splitlines(True), "<string>"
            return exec(compile(self.what, "<string>", "exec"), vars(main))
        path = self.path()
        try:
            with open(path, "rb") as f:
                text = f.read()
        except OSError as e:
            print(f"{sys.executable}: can't open file {path!r}: [Errno {e.errno}] {e.strerror}", file=sys.stderr)
            sys.exit(2)
        main.__file__, main.__spec__, main.__cached__ = path, None, None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        return exec(compile(text, path, "exec"), vars(main))

    def path(self):
        """As Python itself makes the name of a file whole, from 3.9 on."""
        if os.path.isabs(self.what) or sys.version_info < (3, 9):
            return self.what
        return os.path.join(os.getcwd(), self.what)


# ---- which of these may be imported ----

def folders(more):
    """The interpreter's own: what a user works on is read anew by each rank."""
    import site
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, *more]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return [os.path.realpath(f) + os.sep for f in found if f]


def is_installed(name, own):
    """Whether module NAME comes from one of the folders OWN, or with the interpreter."""
    if name in sys.builtin_module_names or name in sys.modules:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    places = [spec.origin] if spec and spec.has_location else list(spec.submodule_search_locations or ()) if spec else []
    if spec and spec.origin in ("built-in", "frozen"):
        return True
    return bool(places) and all(any(os.path.realpath(p).startswith(f) for f in own) for p in places)


class Watch:
    """Notes the variables of OWN that are read."""

    def __init__(self, own):
        self.own, self.kind, self.names = own, type(os.environ), []
        self.get = self.kind.__getitem__

    def __enter__(self):
        def get(environ, key):
            name = key.decode() if isinstance(key, bytes) else key
            if name in self.own or isinstance(name, str) and name.startswith(("PMI_", "PMIX_")):
                self.names.append(name)
            return self.get(environ, key)

        self.kind.__getitem__ = get
        return self

    def __exit__(self, *_):
        self.kind.__getitem__ = self.get


def unread(fd):
    """The bytes that wait in a pipe."""
    room = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, room)
    return room[0]


def threads():
    return len(os.listdir("/proc/self/task"))


def descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            pass
    return found


def shared_mappings():
    with open("/proc/self/maps") as f:
        lines = [line.split(None, 5) for line in f]
    return {words[-1].strip() for words in lines if words[1][1] == "w" and words[1][3] == "s"}


class State:
    """What an import must leave as it was."""

    def __init__(self):
        self.folder, self.mask, self.fds, self.shared = os.getcwd(), os.umask(0), descriptors(), shared_mappings()
        os.umask(self.mask)

    def changed(self, later):
        if self.folder != later.folder:
            return "it changes the current folder"
        if self.mask != later.mask:
            return "it changes the umask"
        for fd, to in later.fds.items():
            if self.fds.get(fd) != to and to.startswith("socket:"):
                return "it opens a socket"
            if to.startswith(("/dev/nvidia", "/dev/kfd", "/dev/dri", "/dev/infiniband")):
                return f"it opens {to}"
        for name in later.shared - self.shared:
            return f"it writes to shared memory: {name}"
        return None


def has_child():
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def load(name, own):
    """Import NAME.  Why ranks must not share that, or None."""
    printed = unread(1)
    with Watch(own) as watch:
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # an attribute, or a module that is missing: the program sees that itself
        except BaseException as e:
            return f"its import fails: {type(e).__name__}: {e}"
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if watch.names:
        return f"it reads {watch.names[0]} when it is imported"
    if unread(1) != printed:
        return "it prints when it is imported"
    if has_child():
        return "it starts a process when it is imported"
    return None


class Trial:
    """Imports modules, each in a child first."""

    def __init__(self, names, own):
        self.todo, self.own, self.warm, self.cold = list(names), own, [], {}
        self.is_careful = False  # a child for each module alone

    def run(self):
        """Returns in a process that has imported all that may be."""
        while self.todo:
            read, write = os.pipe()
            child = os.fork()
            if not child:
                os.close(read)
                self.go_on(write)  # returns if its process is now the warm one
                continue
            os.close(write)
            self.judge(read, child)
            os.close(read)

    def judge(self, read, child):
        """What CHILD says.  If it, or a child of its own, takes over, this process ends."""
        at, text, end = 0, b"", time.monotonic() + IMPORT_S
        while True:
            ready = select.select([read], [], [], max(0, end - time.monotonic()))[0]
            got = os.read(read, 4096) if ready else b""
            if not got:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return self.refuse(at, f"its import takes longer than {IMPORT_S} s" if not ready
                                   else "its import ends the process")
            text += got
            while b"\n" in text:
                line, text = text.split(b"\n", 1)
                word, _, rest = line.decode().partition(" ")
                if word == "good":
                    os._exit(0)
                if word == "at":
                    at, end = int(rest), time.monotonic() + IMPORT_S
                    continue
                os.waitpid(child, 0)
                if word == "again":
                    self.is_careful = True
                    return None
                return self.refuse(at, rest)

    def refuse(self, at, why):
        self.cold[self.todo.pop(at)] = why

    def go_on(self, write):
        """In a child: import the next modules, up to a slow one, and let a child of this one take over."""
        def say(text):
            os.write(write, text.encode() + b"\n")

        before, done, slow = State(), 0, False
        while done < len(self.todo) and not slow:
            say(f"at {done}")
            begin = time.monotonic()
            why = load(self.todo[done], self.own)
            if why:
                say(f"bad {why}".replace("\n", " "))
                os._exit(0)
            slow = self.is_careful or time.monotonic() - begin > SLOW_S
            done += 1
        passed, pass_on = os.pipe()
        if os.fork():
            # Libraries with handlers for a fork have ended their threads by now.
            why = before.changed(State()) or (threads() > 1 and "a thread of its own runs on")
            if not why:
                os.write(pass_on, b"y")
            elif done > 1:
                say("again")
            else:
                say(f"bad {why}")
            os._exit(0)
        os.close(pass_on)
        if not os.read(passed, 1):
            os._exit(0)
        os.close(passed)
        self.warm += [n for n in self.todo[:done] if n in sys.modules]
        del self.todo[:done]
        self.is_careful = False
        say("good")
        os.close(write)


# ---- ranks ----

def report(trial):
    usual = getattr(sys, "stdlib_module_names", ())
    tops = dict.fromkeys(n.partition(".")[0] for n in trial.warm)
    text = ", ".join(n for n in tops if n not in usual) or "nothing but Python's own"
    if not trial.warm:
        text = "it imports nothing that ranks may share"
    return text + "".join(f"; {name} is left to the ranks: {why}" for name, why in trial.cold.items())


def hidden(home):
    """The first module that was imported here and that HOME would hide from a rank."""
    new = {n.partition(".")[0] for n in set(sys.modules) - BARE} - set(sys.builtin_module_names)
    for name in sorted({entry.partition(".")[0] for entry in os.listdir(home)} & new) if home else ():
        spec = spec_in([home], name)
        if spec and spec.origin:  # a folder that is no package hides nothing
            return name
    return None


def await_request(control):
    text, ancillary, _, _ = control.recvmsg(1, socket.CMSG_SPACE(16 * 4))
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[:len(data) - len(data) % fds.itemsize])
    return list(fds) if text else None


def own_environment(entries):
    """The variables ENTRIES, and over them what imports changed."""
    changed = {n: v for n, v in os.environb.items() if GIVEN.get(n) != v}
    taken = GIVEN.keys() - os.environb.keys()
    os.environ.clear()
    os.environb.update(entry.partition(b"=")[::2] for entry in entries)
    os.environb.update(changed)
    for name in taken:
        os.environb.pop(name, None)


def own_stack():
    """As agent/ranks/sitecustomize.py does where it finds the rank's variable."""
    number, _, path = os.environ.get("BERTH_RANK_STACK", "").partition(":")
    if not path:
        return
    try:
        low = fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    try:
        os.fstat(1000)
    except OSError:
        try:
            fd = os.dup2(low, 1000, False)
            os.close(low)
        except OSError:
            pass
    faulthandler.register(int(number), fd, True, False)


def adopted(agent, between):
    """Wait until process BETWEEN has ended: this one is a child of AGENT then, and ends with it."""
    while os.getppid() == between:
        os.sched_yield()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(1)


def become(control, words, fds, between):
    """This process becomes the rank that WORDS describe: struct spawn of the agent, as texts."""
    local, agent, umask, live, pmi, cgroup = map(int, words[:6])
    limits, cpus, folder, environment = words[6:10], words[10], words[11], words[12:]
    given = iter(fds)
    bind_errno = 0
    os.setpgid(0, 0)
    adopted(agent, between)
    for number in (0, 1, 2, live):
        os.dup2(next(given), number)
    if cgroup:
        try:
            os.write(next(given), b"0")
        except OSError:
            pass
    if pmi >= 0:
        os.dup2(next(given), pmi)
    for fd in fds:
        os.close(fd)
    if cpus:
        try:
            os.sched_setaffinity(0, [int(c) for c in cpus.split(b",")])
        except OSError as e:
            bind_errno = e.errno
    os.umask(umask)
    for what, soft in zip((resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK,
                           resource.RLIMIT_MEMLOCK), limits):
        resource.setrlimit(what, (int(soft), resource.getrlimit(what)[1]))
    os.chdir(folder)
    own_environment(environment)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=not stream.write_through and (stream is sys.stderr or os.isatty(1)))
    # Each rank has its own random numbers, as if it had imported these itself.
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    control.send(b"%d %d %d\0" % (local, os.getpid(), bind_errno))
    control.close()
    own_stack()


def rename():
    """Show the program's own words in /proc/PID/cmdline, over those of this process."""
    words = [w for w in open("/proc/self/cmdline", "rb").read().split(b"\0")[:-1]]
    at = words.index(b"-c")
    how, what, rest = words[at + 2], words[at + 3], words[at + 4:]
    own = words[:at] + {b"file": [what], b"module": [b"-m", what], b"text": [b"-c", what]}[how] + rest
    with open("/proc/self/stat") as f:
        stat = f.read().rpartition(")")[2].split()
    begin, end = int(stat[45]), int(stat[46])
    text = b"".join(w + b"\0" for w in own)
    with open("/proc/self/mem", "r+b", 0) as f:
        f.seek(begin)
        f.write(text.ljust(end - begin, b"\0"))
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = [os.fsdecode(w) for w in own]


def serve(control):
    """Returns in each rank.  One process is always forked and waits for the next request."""
    gc.freeze()
    gc.enable()
    while True:
        taken, take = os.pipe()
        between = os.fork()
        if not between:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            os.close(taken)
            fds = await_request(control)
            if fds is None:
                os._exit(0)
            os.write(take, b"t")
            os.close(take)
            with open(fds[0], "rb") as f:
                words = f.read().split(b"\0")[:-1]
            try:
                control.send(b"taken %s %d\0" % (words[0], os.getpid()))
                become(control, words, fds[1:], between)
            except BaseException as e:  # the agent starts the rank without this process
                why = f"a rank could not be forked: {type(e).__name__}: {e}"
                try:
                    control.send(b"%s -1 0 %s\0" % (words[0], why.encode("utf-8", "replace")[:2000]))
                finally:  # also if the agent wants no more ranks
                    os._exit(1)
            return
        os.close(take)
        os.waitpid(between, 0)
        if not os.read(taken, 1):
            os._exit(0)  # the agent has gone, or that process was killed
        os.close(taken)


def hide_frames():
    """A stack that is printed begins with the program's own frames."""
    hook = sys.excepthook

    def shown(kind, error, stack):
        own, at = stack, stack
        while at:
            at, own = at.tb_next, at.tb_next if at.tb_frame.f_code.co_filename == FILE else own
        hook(kind, error.with_traceback(own), own)

    sys.excepthook = shown


def main(head):
    gc.disable()
    program = Program(sys.argv[1:])
    if sys.path and not sys.path[0] and not program.is_safe:
        del sys.path[0]
    words = head.split()
    agent = Agent(int(words[0]))
    own = {w for w in words[1:] if not w.startswith("/")}
    for name in BINDS:
        if os.environ.get(name, "false").lower() not in ("", "false", "none", "disabled"):
            agent.tell(False, f"{name} binds threads to the CPUs of the process that imports")
    try:
        names = program.imports()
    except (OSError, SyntaxError, ValueError) as e:
        agent.tell(False, f"{program.what}: {e}")
    places = folders([w for w in words[1:] if w.startswith("/")])
    names = [n for n in names if is_installed(n.partition(".")[0], places)]
    for name in list(names):
        names += [n for n in LATER.get(name, ()) if n not in names]
    trial = Trial(names, own)
    trial.run()
    name = hidden(program.home())
    if sys.flags.interactive:
        agent.tell(False, "-i wants a prompt")
    if name:
        agent.tell(False, f"a file beside the program hides the module {name}")
    agent.tell(bool(trial.warm), report(trial))
    rename()
    serve(agent.control)
    try:
        program.run()
    except BaseException:
        hide_frames()
        raise


class Agent:
    """Hears what this process finds out."""

    def __init__(self, fd):
        if fd < 0:
            # The pipe counts what modules print; nobody else reads it.
            self.answers, pipe = os.dup(1), os.pipe()
            os.dup2(pipe[1], 1)
            os.dup2(pipe[1], 2)
            self.control = None
        else:  # a rank has another file under that number
            self.control = socket.socket(fileno=os.dup(fd))
            os.close(fd)

    def tell(self, is_warm, text):
        """A process that is not warm, or for --check alone, ends."""
        text = (b"+" if is_warm else b"-") + text.encode("utf-8", "replace")[:2000] + b"\0"
        if self.control:
            self.control.send(text)
        else:
            os.write(self.answers, b"\0" + text)
        if not is_warm or not self.control:
            os._exit(0)


main(globals()["HEAD"])
