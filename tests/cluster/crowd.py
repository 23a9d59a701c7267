"""crowd.py ADDRESS PORT N SEED: strangers at a listener, N at a time, until this is killed.  One that
is turned away comes back.  Some say nothing, some a byte a second, some half a hello, some more than
any hello; a quarter as many SYNs come from hosts that there are not.  "N have come" is printed when
each has tried once."""
import errno
import random
import resource
import selectors
import socket
import struct
import sys
import time

PIECE = 256  # that begin at a time
KINDS = ("silent", "slow", "half a hello", "junk", "flood")


def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def half_open(address, port, n, rng):
    """SYNs whose answers nobody hears."""
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    to = socket.inet_aton(address)
    for _ in range(n):
        source = to[:2] + bytes((rng.randrange(100, 200), rng.randrange(1, 250)))
        tcp = struct.pack("!HHLLBBHHH", rng.randrange(1024, 65536), port, rng.randrange(1 << 32), 0, 5 << 4,
                          2, 65535, 0, 0)
        pseudo = source + to + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp))
        tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 0, 0, 64,
                           socket.IPPROTO_TCP, 0, source, to)
        raw.sendto(head + tcp, (address, 0))
    raw.close()


class Crowd:
    def __init__(self, address, port, rng):
        self.to, self.rng = (address, port), rng
        self.selector = selectors.DefaultSelector()
        self.slow, self.waiting, self.tried, self.there = set(), 0, 0, 0

    def come(self):
        s = socket.socket()
        s.setblocking(False)
        kind = self.rng.choice(KINDS)
        code = s.connect_ex(self.to)
        if code not in (0, errno.EINPROGRESS):
            s.close()
            return
        self.there += 1
        self.selector.register(s, selectors.EVENT_WRITE, kind)

    def go(self, s):
        self.selector.unregister(s)
        self.slow.discard(s)
        self.there -= 1
        s.close()

    def speak(self, s, kind):
        self.tried += 1
        self.selector.modify(s, selectors.EVENT_READ, kind)
        if kind == "slow":
            self.slow.add(s)
        elif kind != "silent":
            s.send(self.rng.randbytes({"half a hello": 40, "junk": 500, "flood": 1 << 20}[kind]))

    def look(self, seconds):
        for key, events in self.selector.select(seconds):
            try:
                if events & selectors.EVENT_WRITE:
                    self.speak(key.fileobj, key.data)
                elif not key.fileobj.recv(4096):
                    self.go(key.fileobj)
            except OSError:
                self.go(key.fileobj)

    def drip(self):
        for s in list(self.slow):
            try:
                s.send(b"B")
            except OSError:
                self.go(s)


def main():
    address, port, n, seed = sys.argv[1], *map(int, sys.argv[2:5])
    rng = random.Random(seed)
    most = max(n + 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (n + 64, most))
    crowd, told, dripped = Crowd(address, port, rng), False, time.monotonic()
    half_open(address, port, n // 4, rng)
    while True:
        for _ in range(min(PIECE, n - crowd.there)):
            crowd.come()
        crowd.look(0.05)
        if time.monotonic() - dripped > 1:
            crowd.drip()
            dripped = time.monotonic()
        if not told and crowd.tried >= n:
            told = True
            print(n, "have come", flush=True)


main()
