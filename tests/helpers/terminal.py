#!/usr/bin/python3
"""terminal.py COMMAND...: a person at a terminal of COMMAND's own.

Each line of stdin is a step, and is answered by a line "ok ..." or by what went wrong:

    send KEYS    types them; \\r, \\x03 and so on as in Python
    wait TEXT    until TEXT is shown, behind what was waited for before
    unseen TEXT  it is not shown behind that so far
    modes        ok, and the terminal's modes
    hold, go     the person stops reading, and reads again
    close        the terminal goes away
    end          COMMAND ends by itself: ok, and its status

The first step that fails ends it all with status 1.  Without stdin it ends too, and COMMAND is
killed.  TERMINAL_LOG names a file for all that was shown.
"""
import os
import pty
import select
import signal
import sys
import termios
import time

LIMIT_S = float(os.environ.get("TERMINAL_LIMIT_S", 60))


class Terminal:
    def __init__(self, command):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            for number in range(1, signal.NSIG):  # as a login has them
                if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                    signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        self.shown, self.at, self.held, self.status = b"", 0, False, None
        log = os.environ.get("TERMINAL_LOG")
        self.log = open(log, "wb", 0) if log else None

    def read(self):
        try:
            data = os.read(self.fd, 65536)
        except OSError:  # nobody has it open any more
            data = b""
        if not data:
            self.held = True
        self.shown += data
        if self.log:
            self.log.write(data)

    def turn(self, others, until):
        """Read what is shown until one of OTHERS can be read or the time is over."""
        mine = [] if self.held or self.fd < 0 else [self.fd]
        ready = select.select(others + mine, [], [], max(0, min(0.2, until - time.monotonic())))[0]
        if self.fd in ready:
            self.read()
        return [f for f in ready if f != self.fd]

    def wait(self, text):
        until = time.monotonic() + LIMIT_S
        while text not in self.shown[self.at:]:
            if time.monotonic() > until:
                return "not shown: %r; shown: %r" % (text, self.shown[-3000:])
            self.turn([], until)
        self.at += self.shown[self.at:].index(text) + len(text)
        return "ok"

    def modes(self):
        m = termios.tcgetattr(self.fd)
        return "ok " + " ".join("%x" % flags for flags in m[:4])

    def close(self):
        os.close(self.fd)
        self.fd = -1
        return "ok"

    def end(self):
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return "ok %d" % os.waitstatus_to_exitcode(status)
            self.turn([], time.monotonic() + 0.02)
        return "it does not end"

    def step(self, verb, what):
        text = what.encode().decode("unicode_escape").encode("latin-1")
        if verb == "send":
            os.write(self.fd, text)
        elif verb == "wait":
            return self.wait(text)
        elif verb == "unseen":
            return "shown: %r" % text if text in self.shown[self.at:] else "ok"
        elif verb in ("hold", "go"):
            self.held = verb == "hold"
        else:
            return {"modes": self.modes, "close": self.close, "end": self.end}[verb]()
        return "ok"


def main():
    terminal, rest = Terminal(sys.argv[1:]), b""
    try:
        while True:
            while b"\n" not in rest:
                if terminal.turn([0], time.monotonic() + 3600):
                    data = os.read(0, 65536)
                    if not data:
                        return 0
                    rest += data
            line, rest = rest.split(b"\n", 1)
            words = line.decode().strip().split(" ", 1) + [""]
            if words[0]:
                answer = terminal.step(words[0], words[1])
                print(answer, flush=True)
                if not answer.startswith("ok"):
                    return 1
    finally:
        if terminal.pid:
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)


sys.exit(main())
