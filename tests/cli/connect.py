#!/usr/bin/python3
"""connect.py: what `berth-agent --connect` reads on its stdin, by hand.

  connect.py call [NAME=VALUE...]   writes `call` to stdout.  version, wire (TEST_VERSION, TEST_WIRE),
                                    key (bytes of it), credential, addresses (by commas), port,
                                    within_ms, copy
  connect.py listen WORD            listens on 127.0.0.1, prints the port; WORD: what callers get:
                                    silent, garbage, closed; prints "called" for each"""

import os
import socket
import sys

sys.dont_write_bytecode = True  # nothing of ours lies beside the tests
from hostile_runner import frame, many, text, u32

CALL = 45
ANSWER_BYTES = 64


def call(given):
    m = {"version": os.environ["TEST_VERSION"], "wire": os.environ["TEST_WIRE"], "key": "32",
         "credential": "", "addresses": "127.0.0.1", "port": "1", "within_ms": "20000", "copy": "0"}
    m.update(word.split("=", 1) for word in given)
    addresses = [a for a in m["addresses"].split(",") if a]
    return frame(CALL, text(m["version"]) + u32(int(m["wire"])) + u32(int(m["key"])) + b"k" * int(m["key"])
                 + text(m["credential"]) + many(addresses, text) + u32(int(m["port"]))
                 + u32(int(m["within_ms"])) + u32(int(m["copy"])))


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


if sys.argv[1] == "call":
    sys.stdout.buffer.write(call(sys.argv[2:]))
else:
    listen(sys.argv[2])
