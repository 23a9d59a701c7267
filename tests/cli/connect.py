#!/usr/bin/python3
"""connect.py: what `berth-agent --connect` reads on its stdin, by hand.

  connect.py door [NAME=VALUE...]   writes `door` to stdout: key (bytes of it), addresses (by commas),
                                    port, within_ms, copy
  connect.py call [NAME=VALUE...]   writes `call`: version, wire (TEST_VERSION, TEST_WIRE), and the
                                    same, for the `door` in it; stdin=1: stdin is in place of that;
                                    change=N: its byte N is another one
  connect.py listen WORD            listens on 127.0.0.1, prints the port; WORD: what callers get:
                                    silent, garbage, closed; prints "called" for each"""

import os
import socket
import sys

sys.dont_write_bytecode = True  # nothing of ours lies beside the tests
from hostile_runner import frame, many, text, u32

CALL, DOOR = 45, 50
ANSWER_BYTES = 64


def door(m):
    addresses = [a for a in m["addresses"].split(",") if a]
    return frame(DOOR, u32(int(m["key"])) + b"k" * int(m["key"]) + many(addresses, text) + u32(int(m["port"]))
                 + u32(int(m["within_ms"])) + u32(int(m["copy"])))


def call(m):
    inner = bytearray(sys.stdin.buffer.read().strip() if m["stdin"] else door(m))
    if m["change"]:
        inner[int(m["change"])] ^= 1
    return frame(CALL, text(m["version"]) + u32(int(m["wire"])) + u32(len(inner)) + bytes(inner))


def listen(word):
    held = []
    with socket.create_server(("127.0.0.1", 0)) as s:
        print(s.getsockname()[1], flush=True)
        while True:
            c = s.accept()[0]
            got = b""
            while len(got) < 72 and (part := c.recv(72 - len(got))):
                got += part
            if got:  # the last try may end before it says a word
                print("called" if got.startswith(b"berthcl\0") else "what?", flush=True)
            if word == "garbage":
                c.sendall(bytes(ANSWER_BYTES))
            if word == "closed":
                c.close()
            held.append(c)


if sys.argv[1] == "listen":
    listen(sys.argv[2])
else:
    fields = {"version": os.environ["TEST_VERSION"], "wire": os.environ["TEST_WIRE"], "stdin": "",
              "change": "", "key": "32", "addresses": "127.0.0.1", "port": "1", "within_ms": "20000",
              "copy": "0"}
    fields.update(word.split("=", 1) for word in sys.argv[2:])
    sys.stdout.buffer.write(call(fields) if sys.argv[1] == "call" else door(fields))
