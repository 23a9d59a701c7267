#!/usr/bin/env python3
"""wheels.py FOLDER REQUIREMENTS: headers and libraries of wheels, for tests/cli/wheels.bats.

REQUIREMENTS, a file of pip's, has a version and a hash of each wheel.  FOLDER/NAME-VERSION/ keeps its
include/ and its lib/libnccl.so.2.  The file `installed` there has the line of REQUIREMENTS: a wheel is not
downloaded again until its line changes.  If a wheel can't be had, the file `why` says why, in a line, and the
exit status is 1; the other wheels are there all the same.  Run it by a Python that has pip.
"""
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile

# Of pip, for another file than the one that the line names.  The test fails then: tests/cli/wheels.bats.
MISMATCH = "DO NOT MATCH THE HASHES"


def wheels(requirements):
    """{NAME-VERSION: its line}"""
    lines = [line.strip() for line in open(requirements) if not line.startswith("#")]
    return {line.split()[0].replace("==", "-"): line for line in lines if line}


def download(line, folder):
    """None, or why pip has put no wheel into FOLDER."""
    if platform.machine() != "x86_64":
        return f"no wheel for {platform.machine()}"
    open(f"{folder}/line", "w").write(line + "\n")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--retries", "1",
               "--require-hashes", "--no-deps", "--only-binary", ":all:", "-d", folder, "-r", f"{folder}/line"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if not done.returncode:
        return None
    if MISMATCH in done.stderr:
        return "another wheel than the one of its hash in tests/wheels.txt"
    if "connection broken" in done.stderr:
        return "pip has no connection to a package index"
    errors = re.findall(r"^ERROR: (.*)", done.stderr, re.MULTILINE) or ["it does not say why"]
    return f"pip could not download it: {errors[-1]}"


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as z:
        for member in z.infolist():
            kept = re.search(r"/(include/.*[^/]|lib/libnccl\.so\.2)$", member.filename)
            if not kept:
                continue
            os.makedirs(os.path.dirname(f"{folder}/{kept[1]}"), exist_ok=True)
            with z.open(member) as source, open(f"{folder}/{kept[1]}", "wb") as to:
                shutil.copyfileobj(source, to, 1 << 20)


def bring(line, folder):
    """None, or why FOLDER does not have what is in the wheel of LINE."""
    stamp = f"{folder}/installed"
    if os.path.exists(stamp) and open(stamp).read() == line:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(f"{folder}/new")
    print(f"wheels: downloading {os.path.basename(folder)}", flush=True)
    why = download(line, f"{folder}/new")
    for name in os.listdir(f"{folder}/new"):
        if not why and name.endswith(".whl"):
            unpack(f"{folder}/new/{name}", folder)
    shutil.rmtree(f"{folder}/new")
    open(f"{folder}/why" if why else stamp, "w").write(why or line)
    return why


def main():
    folder, requirements = sys.argv[1:]
    wanted = wheels(requirements)
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name not in wanted:
            shutil.rmtree(f"{folder}/{name}")
    whys = {name: bring(line, f"{folder}/{name}") for name, line in wanted.items()}
    for name, why in whys.items():
        if why:
            print(f"wheels: {name}: {why}", file=sys.stderr)
    return 1 if any(whys.values()) else 0


sys.exit(main())
