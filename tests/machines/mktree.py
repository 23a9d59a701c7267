#!/usr/bin/env python3
"""mktree.py: /proc, /sys and /dev as the drivers of GPUs lay them out, under a folder, for tests.

    mktree.py FOLDER SPEC...

A SPEC is one device, words joined by commas; the first is its kind:

    nvidia,0000:53:00.0,minor=0,uuid=GPU-...,model=NVIDIA H100,numa=1,cpus=16-31
        more words: hidden (no device file), nodriver (not in /proc), asleep (no UUID yet),
        class=0x030000, mig=GI/CI+GI/CI (instances; their names are NVML's to tell)
    amd,0000:c1:00.0,render=128,id=8b1d...,numa=3,cpus=48-63
        more words: hidden, nokfd (a DRM device without the compute driver)
    vga,0000:03:00.0,vendor=0x1a03,device=0x2000

Written from the kernel's Documentation/ABI (sysfs-bus-pci, sysfs-driver-amdkfd's node properties) and the
README of NVIDIA's driver (/proc/driver/nvidia/gpus/ADDRESS/information, capabilities)."""
import os
import sys


def write(root, path, text):
    path = f"{root}/{path}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


def pci(root, address, device, default_class):
    folder = f"sys/bus/pci/devices/{address}"
    write(root, f"{folder}/class", device.get("class", default_class) + "\n")
    write(root, f"{folder}/vendor", device["vendor"] + "\n")
    write(root, f"{folder}/device", device["device"] + "\n")
    write(root, f"{folder}/numa_node", device.get("numa", "-1") + "\n")
    if "cpus" in device:
        write(root, f"{folder}/local_cpulist", device["cpus"].replace("+", ",") + "\n")


def nvidia(root, address, d):
    pci(root, address, {"vendor": "0x10de", "device": "0x2330"} | d, "0x030200")
    if "nodriver" in d:
        return
    uuid = "GPU-????????-????-????-????-????????????" if "asleep" in d else d.get("uuid", "")
    minor = d.get("minor", "0")
    write(root, f"proc/driver/nvidia/gpus/{address}/information",
          f"Model: \t\t {d.get('model', 'NVIDIA H100 80GB HBM3')}\n"
          f"IRQ:   \t\t 124\n"
          f"GPU UUID: \t {uuid}\n"
          f"Video BIOS: \t 96.00.68.00.01\n"
          f"Bus Type: \t PCIe\n"
          f"DMA Size: \t 52 bits\n"
          f"DMA Mask: \t 0xfffffffffffff\n"
          f"Bus Location: \t {address}\n"
          f"Device Minor: \t {minor}\n"
          f"GPU Excluded:\t No\n")
    if "hidden" not in d:
        write(root, f"dev/nvidia{minor}", "")
    write(root, "dev/nvidiactl", "")
    for instance in filter(None, d.get("mig", "").split("+")):
        gi, ci = instance.split("/")
        folder = f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gi}"
        for path, cap in ((folder, 30), (f"{folder}/ci{ci}", 31)):
            write(root, f"{path}/access",
                  f"DeviceFileMinor: {cap}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def kfd_node(root, properties):
    nodes = f"{root}/sys/class/kfd/kfd/topology/nodes"
    n = len(os.listdir(nodes)) if os.path.isdir(nodes) else 0
    folder = f"sys/class/kfd/kfd/topology/nodes/{n}"
    write(root, f"{folder}/gpu_id", f"{4000 + n if properties.get('simd_count') else 0}\n")
    write(root, f"{folder}/properties", "".join(f"{k} {v}\n" for k, v in properties.items()))


def amd(root, address, d):
    render = d.get("render", "128")
    pci(root, address, {"vendor": "0x1002", "device": "0x7408"} | d, "0x038000")
    os.makedirs(f"{root}/sys/bus/pci/devices/{address}/drm/renderD{render}", exist_ok=True)
    if "hidden" not in d:
        write(root, f"dev/dri/renderD{render}", "")
    if "nokfd" in d:
        return
    if not os.path.isdir(f"{root}/sys/class/kfd"):
        kfd_node(root, {"cpu_cores_count": 64, "simd_count": 0, "location_id": 0, "domain": 0})
    domain, bus, rest = address.split(":")
    slot, func = rest.split(".")
    kfd_node(root, {"cpu_cores_count": 0, "simd_count": 440, "vendor_id": 4098, "device_id": 29704,
                    "location_id": int(bus, 16) << 8 | int(slot, 16) << 3 | int(func),
                    "domain": int(domain, 16), "drm_render_minor": render,
                    "unique_id": int(d.get("id", "0"), 16), "num_xcc": 1})


def vga(root, address, d):
    pci(root, address, d, "0x030000")


def main(args):
    if not args:
        sys.exit(__doc__)
    os.makedirs(f"{args[0]}/sys/bus/pci/devices", exist_ok=True)
    for spec in args[1:]:
        kind, address, *words = spec.split(",")
        d = {k: v for k, _, v in (w.partition("=") for w in words)}
        {"nvidia": nvidia, "amd": amd, "vga": vga}[kind](args[0], address, d)


main(sys.argv[1:])
