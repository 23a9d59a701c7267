#!/usr/bin/python3
"""terminal.py COMMAND...: a person at a terminal of COMMAND's own.

Each line of stdin is a step, and is answered by a line "ok ..." or by what went wrong:

    send KEYS    types them; \\r, \\x03 and so on as in Python
    wait TEXT    until TEXT is shown, behind what was waited for before
    unseen TEXT  it is not shown behind that so far
    row TEXT     until a row of the screen is TEXT, blanks at its end apart
    rows         ok, and the rows of the screen that are not empty, as JSON
    style TEXT   ok, and the colour of the row that begins with TEXT, and whether it is reversed
    resize R C   the terminal has R rows and C columns
    modes        ok, and the terminal's modes
    hold, go     the person stops reading, and reads again
    close        the terminal goes away
    end          COMMAND ends by itself: ok, and its status

The first step that fails ends it all with status 1.  Without stdin it ends too, and COMMAND is
killed.  TERMINAL_LOG names a file for all that was shown.  The screen is pyte's, of 24 rows and 80
columns.
"""
import fcntl
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

try:
    import pyte
except ImportError:  # a host that has only what these tests need there
    pyte = None

LIMIT_S = float(os.environ.get("TERMINAL_LIMIT_S", 60 * int(os.environ.get("SLOW", "1"))))


class Terminal:
    def __init__(self, command):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            # before the program looks: set by the parent, it came after the first look now and then
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            for number in range(1, signal.NSIG):  # as a login has them
                if number not in (signal.SIGKILL, signal.SIGSTOP, 32, 33):
                    signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        self.screen = pyte and pyte.Screen(80, 24)
        self.stream = pyte and pyte.ByteStream(self.screen)
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
        if self.stream:
            self.stream.feed(data)
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

    def rows(self):
        return [row for row in (line.rstrip() for line in self.screen.display) if row]

    def row(self, text):
        until = time.monotonic() + LIMIT_S
        while text not in self.rows():
            if time.monotonic() > until:
                return "no such row: %r; rows: %r" % (text, self.rows())
            self.turn([], until)
        return "ok"

    def style(self, text):
        for y, line in enumerate(self.screen.display):
            if line.startswith(text):
                char = self.screen.buffer[y][0]
                return "ok %s %s" % (char.fg, char.reverse)
        return "no such row: %r; rows: %r" % (text, self.rows())

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if self.screen:
            self.screen.resize(rows, columns)
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
        elif verb == "row":
            return self.row(what)
        elif verb == "rows":
            return "ok " + json.dumps(self.rows())
        elif verb == "style":
            return self.style(what)
        elif verb == "resize":
            return self.resize(*map(int, what.split()))
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
