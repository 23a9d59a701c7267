#!/usr/bin/env python3
"""What no honest rank sends to the socket BERTH_AGENT, each on a connection of its own: the agent
has to close it, or to answer REFUSED; and answers the next one."""

import os
import random
import socket
import struct
import sys

JOIN, WORLD, MEMORY, FENCE, ALL, STALL, ASK, BEHIND, LEAVE, REFUSED, AGAIN, ELASTIC, ALIVE = range(1, 14)
NAME = os.environ["BERTH_AGENT"]
RANK = int(os.environ["BERTH_RANK"])


def frame(number, payload=b""):
    return struct.pack("=II", len(payload), number) + payload


def join(version=4, rank=RANK, follows=0, epoch=0):
    return frame(JOIN, struct.pack("=IIII", version, rank, follows, epoch))


def connect():
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(10)
    s.connect("\0" + NAME[1:])
    return s


# what is sent: has the agent to close by itself?
ACTS = {
    "garbage": (os.urandom(4096), True),
    "text": (b"GET / HTTP/1.0\r\n\r\n", True),
    "a long frame": (struct.pack("=II", 2**31, FENCE), True),
    "an unknown number": (frame(77), True),
    "an agent's word": (frame(WORLD, b"x" * 64), True),
    "half a head": (b"\1\2\3", False),
    "half a frame": (struct.pack("=II", 16, JOIN) + b"\1", False),
    "memory before join": (frame(MEMORY, struct.pack("=Q", 4096)), True),
    "leave before join": (frame(LEAVE), True),
    "another version": (join(version=9), True),
    "another's rank": (join(rank=2**32 - 1), True),
    "another way": (join(follows=2), True),
    "an epoch that cannot be": (join(follows=1, epoch=2**31), True),
    "memory before a world": (join(follows=1) + frame(MEMORY, struct.pack("=Q", 4096)), True),
    "join twice": (join() + join(), True),
    "no memory": (join() + frame(MEMORY, struct.pack("=Q", 0)), True),
    "all memory": (join() + frame(MEMORY, struct.pack("=Q", 2**64 - 1)), True),
    "much memory": (join() + frame(MEMORY, struct.pack("=Q", 2**60)), True),
    "a text without an end": (join() + frame(FENCE, b"abc"), True),
    "two texts": (join() + frame(FENCE, b"a\0b\0"), True),
    "two fences": (join() + frame(FENCE, b"a\0") * 2, True),
    "no text": (join() + frame(FENCE), True),
    "a stall of many": (join() + frame(STALL, struct.pack("=I", 2**32 - 1) + b"x\0"), True),
    "a stall without an end": (join() + frame(STALL, struct.pack("=I", 0) + b"x"), True),
    "a stall of too many words": (join() + frame(STALL, bytes(4) + b"x" * 8187 + b"\0"), True),
    "a stall of many words": (join() + frame(STALL, bytes(4) + b"x" * 8171 + b"\0"), False),
    "a stall of none": (join() + frame(STALL, struct.pack("=II", 1, 99) + b"\x1b[2Jx\0"), False),
    "elastic before join": (frame(ELASTIC, struct.pack("=I", 1)), True),
    "elastic, and neither yes nor no": (join() + frame(ELASTIC, struct.pack("=I", 2)), True),
    "elastic, half of it": (join() + frame(ELASTIC, b"\1\0"), True),
    "elastic, again and again": (join() + frame(ELASTIC, struct.pack("=I", 1)) * 100, False),
    "alive before join": (frame(ALIVE), True),
    "alive before the fence": (join() + frame(ALIVE), True),
    "alive before a world": (join(follows=1) + frame(ALIVE), True),
    "alive, with words": (join() + frame(ALIVE, b"x"), True),
    "a question out of turn": (join() + frame(ASK), True),
    "a question with words": (join() + frame(ASK, b"x"), True),
    "an answer": (join() + frame(BEHIND), True),
    "leave with words": (join() + frame(LEAVE, b"x"), True),
}


def ends(s):
    try:
        while s.recv(65536):
            pass
    except ConnectionResetError:
        pass


def act(data, closes):
    s = connect()
    try:
        s.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass
    if closes:
        ends(s)
    s.close()


def many():
    """More connections than it keeps: the oldest goes."""
    all_of_them = [connect() for _ in range(200)]
    ends(all_of_them[0])
    for s in all_of_them:
        s.close()


def deaf():
    """Asks and never reads."""
    s = connect()
    s.sendall(join())
    try:
        for _ in range(100000):
            s.send(frame(MEMORY, struct.pack("=Q", 1 << 20)), socket.MSG_DONTWAIT)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass
    s.close()


def noise(seed):
    """Frames of right lengths with any contents, in any order."""
    r = random.Random(seed)
    sizes = {JOIN: 16, MEMORY: 8, FENCE: 20, STALL: 16, ASK: 0, LEAVE: 0, ALIVE: 0}
    data = join() if r.random() < 0.8 else b""
    for _ in range(r.randrange(1, 8)):
        number = r.choice(list(sizes))
        data += frame(number, r.randbytes(sizes[number]))
    act(data, False)


def main():
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print("SEED", seed, file=sys.stderr)
    for name, (data, closes) in ACTS.items():
        try:
            act(data, closes)
        except TimeoutError:
            sys.exit(f"the agent does not close: {name}")
    many()
    deaf()
    for i in range(500):
        noise(seed + i)
    print(f"the socket took {len(ACTS) + 502} bad connections")


main()
