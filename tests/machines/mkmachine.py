#!/usr/bin/env python3
"""mkmachine.py: GPU machines as hwloc XML files, for tests of placement.

    mkmachine.py FOLDER [NAME...]           write FOLDER/NAME.xml; all without NAMEs
    mkmachine.py --allow LIST IN.xml OUT    IN with only the CPUs of LIST allowed
    mkmachine.py --shuffle IN.xml OUT       IN with its PCI devices in another order
    mkmachine.py --list                     names, and how many GPUs each has

A machine is a grid: sockets, NUMA nodes in a socket, L3 caches in a node, cores in a cache, threads in
a core.  CPUs are numbered as Linux does it on PCs: first threads of all cores first.  A GPU
hangs from one of these objects.  The files are what hwloc 2.x itself writes, as far as it needs."""
import random
import re
import sys
import xml.etree.ElementTree as ET

H100 = ("0302", "10de:2330", "NVIDIA H100 80GB HBM3")
V100 = ("0302", "10de:1db1", "Tesla V100-SXM2-16GB")
MI250 = ("0380", "1002:7408", "")
MI300A = ("1200", "1002:74a0", "")
VGA_BMC = ("0300", "1a03:2000", "")
VGA_AMAZON = ("0300", "1d0f:1111", "")
VGA_ES1000 = ("0300", "1002:515e", "")
NVSWITCH = ("0680", "10de:22a3", "")
FPGA = ("1200", "8086:0b2b", "")


def cpuset(cpus):
    value = sum(1 << c for c in set(cpus))
    words = []
    while value or not words:
        words.insert(0, f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(words)


def parse_list(text):
    cpus = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


class Grid:
    """The objects of a machine, each with its CPUs; then their XML."""

    def __init__(self, sockets, numas, l3s, cores, threads=1, numa_os=None, missing=(), latency=None):
        self.sockets, self.numas, self.l3s, self.cores, self.threads = sockets, numas, l3s, cores, threads
        self.numa_os = numa_os or list(range(sockets * numas))
        self.missing = set(missing)  # CPUs that are there, but not to be used
        self.latency = latency
        self.pci = []
        self.total = sockets * numas * l3s * cores
        self.gp = 0

    def gpu(self, where, busid, kind=H100):
        """WHERE: "machine", or "socket", "numa" or "l3" and a number."""
        self.pci.append((where, busid, kind))
        return self

    def gpus(self, places, kind=H100):
        for i, where in enumerate(places):
            self.gpu(where, f"0000:{0x10 + 0x0b * i:02x}:00.0", kind)
        return self

    def core_cpus(self, core):
        return [core + k * self.total for k in range(self.threads)]

    def cpus(self, first, count):
        return [c for core in range(first, first + count) for c in self.core_cpus(core)]

    def add(self, parent, what, cpus, nodes, **more):
        self.gp += 1
        there = [c for c in cpus if c not in self.missing]
        e = ET.SubElement(parent, "object", type=what, **{k: str(v) for k, v in more.items()})
        for name, value in (("cpuset", there), ("complete_cpuset", cpus), ("nodeset", nodes),
                            ("complete_nodeset", nodes)):
            e.set(name, cpuset(value))
        e.set("gp_index", str(self.gp))
        return e

    def add_cache(self, parent, kind, depth, cpus, nodes):
        return self.add(parent, kind, cpus, nodes, cache_size=1 << 20, depth=depth, cache_linesize=64,
                        cache_associativity=8, cache_type=1 if depth == 1 else 0)

    def add_cores(self, parent, first, nodes):
        for core in range(first, first + self.cores):
            cpus = self.core_cpus(core)
            if set(cpus) <= self.missing:
                continue
            e = self.add_cache(parent, "L2Cache", 2, cpus, nodes)
            e = self.add(e, "Core", cpus, nodes, os_index=core)
            for c in cpus:
                if c not in self.missing:
                    self.add(e, "PU", [c], nodes, os_index=c)

    def add_numa(self, parent, n, wide):
        size = self.l3s * self.cores
        cpus, nodes = self.cpus(n * size, size), [self.numa_os[n]]
        if wide:  # several nodes in a socket: hwloc makes a group of each
            parent = self.add(parent, "Group", cpus, nodes, kind=0, subkind=0)
        self.add(parent, "NUMANode", cpus, nodes, os_index=self.numa_os[n], local_memory=1 << 36)
        for i in range(n * self.l3s, (n + 1) * self.l3s):
            mine = self.cpus(i * self.cores, self.cores)
            e = self.add_cache(parent, "L3Cache", 3, mine, nodes)
            self.add_cores(e, i * self.cores, nodes)
            self.add_pci(e, ("l3", i))
        self.add_pci(parent, ("numa", n))

    def add_pci(self, parent, where):
        devices = sorted(d for d in self.pci if d[0] == where)
        if not devices:
            return
        self.gp += 1
        first = devices[0][1]
        bridge = ET.SubElement(parent, "object", type="Bridge", gp_index=str(self.gp), bridge_type="0-1",
                               depth="0", bridge_pci=f"{first[:-8]}:[00-ff]")
        for _, busid, (kind, ident, model) in devices:
            self.gp += 1
            e = ET.SubElement(bridge, "object", type="PCIDev", gp_index=str(self.gp), pci_busid=busid,
                              pci_type=f"{kind} [{ident}] [0000:0000] a1", pci_link_speed="0.000000")
            if model:
                self.gp += 1
                o = ET.SubElement(e, "object", type="OSDev", gp_index=str(self.gp), name=f"nvml{self.gp}",
                                  subtype="NVML", osdev_type="1")
                uuid = f"GPU-{int(re.sub('[^0-9a-f]', '', busid), 16):08x}-0000-4000-8000-000000000000"
                for name, value in (("GPUVendor", "NVIDIA Corporation"), ("GPUModel", model),
                                    ("NVIDIAUUID", uuid)):
                    ET.SubElement(o, "info", name=name, value=value)

    def add_latency(self, root):
        n = len(self.numa_os)
        d = ET.SubElement(root, "distances2", type="NUMANode", nbobjs=str(n), kind="5", name="NUMALatency",
                          indexing="os")
        for tag, numbers in (("indexes", self.numa_os), ("u64values", sum(self.latency, []))):
            text = " ".join(map(str, numbers)) + " "
            ET.SubElement(d, tag, length=str(len(text))).text = text

    def xml(self):
        root = ET.Element("topology", version="2.0")
        everything, nodes = self.cpus(0, self.total), self.numa_os
        m = self.add(root, "Machine", everything, nodes, os_index=0)
        m.set("allowed_cpuset", cpuset(c for c in everything if c not in self.missing))
        m.set("allowed_nodeset", cpuset(nodes))
        size = self.numas * self.l3s * self.cores
        for s in range(self.sockets):
            mine = self.cpus(s * size, size)
            e = self.add(m, "Package", mine, nodes[s * self.numas:(s + 1) * self.numas], os_index=s)
            for n in range(s * self.numas, (s + 1) * self.numas):
                self.add_numa(e, n, self.numas > 1)
            self.add_pci(e, ("socket", s))
        self.add_pci(m, "machine")
        if self.latency:
            self.add_latency(root)
        return text_of(root)


def text_of(root):
    ET.indent(root)
    # hwloc's own parser wants these two lines, and no blank before "/>"
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
            + ET.tostring(root, encoding="unicode").replace(" />", "/>") + "\n")


def read(path):
    return ET.fromstring(re.sub("<!--.*?-->", "", open(path).read(), flags=re.S))


def socket_latency(nodes, per_socket, ring):
    """10 at home; within a socket 12 to the neighbours on a ring and 14 else, or 12; 32 to another."""
    def one(a, b):
        if a == b:
            return 10
        if a // per_socket != b // per_socket:
            return 32
        return 12 if not ring or abs(a - b) in (1, per_socket - 1) else 14
    return [[one(a, b) for b in range(nodes)] for a in range(nodes)]


def on(kind, *numbers):
    return [(kind, n) for n in numbers]


def two_sockets():
    return Grid(2, 1, 1, 24, 2).gpus(on("socket", 0, 0, 0, 0, 1, 1, 1, 1))


def decoys():
    g = two_sockets()
    for i, kind in enumerate((VGA_BMC, VGA_AMAZON, VGA_ES1000, NVSWITCH, FPGA)):
        g.gpu(("socket", i % 2), f"0000:{i:02x}:01.0", kind).gpu("machine", f"0000:f0:{i:02x}.0", kind)
    return g


def power():
    g = Grid(2, 1, 1, 11, 4, numa_os=[0, 8], missing=[0, 22, 44, 66, 11, 33, 55, 77])
    for socket, busid in ((0, "0004:04:00.0"), (0, "0004:05:00.0"), (1, "0035:03:00.0"), (1, "0035:04:00.0")):
        g.gpu(("socket", socket), busid, V100)
    return g


def l3_homes():
    # PCI order is neither the order of the caches nor of the nodes
    return Grid(1, 4, 2, 8, 2).gpus(on("l3", 6, 7, 2, 3, 0, 1, 4, 5), MI250)


def lost_home():
    # no CPU of the second socket may be used
    g = Grid(2, 1, 1, 4, 2, missing=list(range(4, 8)) + list(range(12, 16)))
    return g.gpus(on("socket", 0, 1))


def half_cores():
    # the second threads of the first socket are taken away, and one core altogether
    g = Grid(2, 1, 2, 4, 2, missing=list(range(16, 24)) + [15, 31])
    return g.gpus(on("socket", 0, 1))


def mixed_homes():
    return Grid(2, 2, 1, 6).gpus(["machine"] + on("numa", 1, 3) + on("socket", 1))


def sixteen():
    g = Grid(2, 1, 1, 2)
    return g.gpus(on("socket", *[0] * 8, *[1] * 8), V100)


MACHINES = {
    "one-socket-1gpu": lambda: Grid(1, 1, 1, 4, 2).gpus(on("socket", 0)),
    "two-sockets-8gpu": two_sockets,
    "decoys-8gpu": decoys,
    "numa4-gpus-on-1-2": lambda: Grid(2, 2, 1, 8, 2).gpus(on("numa", 1, 2)),
    "numa8-gpus-on-1-2-6-7": lambda: Grid(2, 4, 2, 8, 2, latency=socket_latency(8, 4, False)).gpus(
        on("numa", 1, 2, 6, 7)),
    "numa8-ring-2gpu": lambda: Grid(2, 4, 1, 4, latency=socket_latency(8, 4, True)).gpus(
        on("numa", 3, 3, 4)),
    "no-locality-8gpu": lambda: Grid(2, 1, 1, 12, 2).gpus(["machine"] * 8),
    "no-locality-4socket": lambda: Grid(4, 1, 1, 6).gpus(["machine"] * 3),
    "l3-homes-8gpu": l3_homes,
    "one-sided-2gpu": lambda: Grid(2, 1, 1, 9, 2).gpus(on("socket", 0, 0)),
    "power-smt4-4gpu": power,
    "three-gpus-1-2": lambda: Grid(2, 1, 1, 6, 2).gpus(on("socket", 0, 1, 1)),
    "sixteen-gpus-4pu": sixteen,
    "pu256-8gpu": lambda: Grid(2, 4, 2, 8, 2, latency=socket_latency(8, 4, False)).gpus(
        on("numa", 3, 3, 1, 1, 7, 7, 5, 5)),
    "apu-1200-4gpu": lambda: Grid(4, 1, 1, 6, 2).gpus(on("numa", 0, 1, 2, 3), MI300A),
    "lost-home-2gpu": lost_home,
    "half-cores-2gpu": half_cores,
    "mixed-homes-4gpu": mixed_homes,
    "no-gpu": lambda: Grid(2, 1, 2, 3, 2),
    "no-gpu-4pu": lambda: Grid(1, 1, 1, 2, 2),
}


def allow(path, cpus):
    root = read(path)
    machine = root.find("object")
    machine.set("allowed_cpuset", cpuset(parse_list(cpus)))
    return text_of(root)


def shuffle(path):
    root = read(path)
    chance = random.Random(7)
    for parent in root.iter("object"):
        kids = list(parent)
        moved = [i for i, k in enumerate(kids) if k.get("type") in ("PCIDev", "Bridge", "OSDev")]
        order = moved[:]
        chance.shuffle(order)
        for i, j in zip(moved, order):
            parent[i] = kids[j]
    for e in root.iter("object"):
        if e.get("type") == "OSDev":
            e.set("name", f"other{chance.randrange(1000)}")
    return text_of(root)


def main(args):
    if args[:1] == ["--list"]:
        for name, make in MACHINES.items():
            kinds = [d[2] for d in make().pci]
            print(name, sum(k in (H100, V100, MI250, MI300A) for k in kinds), sep="\t")
    elif args[:1] == ["--allow"]:
        open(args[3], "w").write(allow(args[2], args[1]))
    elif args[:1] == ["--shuffle"]:
        open(args[2], "w").write(shuffle(args[1]))
    elif args:
        for name in args[1:] or MACHINES:
            open(f"{args[0]}/{name}.xml", "w").write(MACHINES[name]().xml())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
