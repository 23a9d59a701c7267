"""How process groups begin and how they fail: each test starts ranks of its own, as no launcher, torchrun or
runner does.  python3 -m pytest lib/python/tests/test_process_group_ends.py
"""
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest

pytest.importorskip("torch")

SIZE = int(os.environ.get("WORLD_SIZE", 1))
pytestmark = pytest.mark.skipif(SIZE > 1, reason="these start ranks of their own: run them alone")
TREE = os.path.abspath(os.path.join(os.path.dirname(__file__), *[".."] * 4))
RUNNER = os.environ.get("RUNNER", os.path.join(TREE, "build", "bin", "runner"))
BEGIN = """
import faulthandler
faulthandler.dump_traceback_later(50)
import os, signal, sys, threading, time
from datetime import timedelta
import torch, torch.distributed as dist
from berth.torch_backend import register
register()
ports = os.environ.get("PORTS", "").split()
def begin(**named):
    global rank, size
    if ports:  # rank 0 may not have ended the store of the last time yet
        os.environ["MASTER_PORT"] = ports.pop()
    dist.init_process_group("berth", **named)
    rank, size = dist.get_rank(), dist.get_world_size()
def error(f, *args, **named):
    try:
        f(*args, **named)
    except Exception as e:
        print(type(e).__name__ + ":", e, flush=True)
    else:
        print("no error", flush=True)
def wait_for(key):
    dist.group.WORLD.get_group_store().wait([key])
def tell(key):
    dist.group.WORLD.get_group_store().set(key, "1")
"""


def environment(**more):
    """Without what a launcher of these tests may have set."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("BERTH_", "PMI", "OMPI_", "SLURM_")) or k == "BERTH_LIBRARY"}
    kept.update(PYTHONPATH=os.path.join(TREE, "lib", "python"), PYTHONDONTWRITEBYTECODE="1",
                OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR", PYTHONWARNINGS="ignore", **more)
    return kept


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def start(ranks, program, limit_s=60, **env):
    """What RANKS processes of PROGRAM print: a list of (status, output).  Those that are late are killed."""
    shared = dict(WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(),
                  PORTS=" ".join(free_port() for _ in range(4)))
    program = BEGIN + textwrap.dedent(program)
    started = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True,
                                env=environment(RANK=str(r), LOCAL_RANK=str(r), **shared, **env))
               for r in range(ranks)]
    late = threading.Timer(limit_s, lambda: [p.kill() for p in started])
    late.start()
    try:
        return [(p.wait(), out) for p, out in [(p, p.communicate()[0]) for p in started]]
    finally:
        late.cancel()
        for p in started:
            p.kill()
            p.wait()


def fine(results):
    assert all(status == 0 for status, _ in results), results
    return [out for _, out in results]


# ---- beginnings ----

@pytest.mark.parametrize("first", ["import torch, berth.torch_backend", "import berth.torch_backend, torch"])
def test_each_order_of_import(first):
    out = subprocess.run([sys.executable, "-c", first + """
berth.torch_backend.register(); berth.torch_backend.register()
torch.distributed.init_process_group("berth")
print(torch.distributed.get_backend())
torch.distributed.destroy_process_group()"""], text=True, stdout=subprocess.PIPE, check=True,
                         env=environment(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1",
                                         MASTER_PORT=free_port())).stdout
    assert out == "berth\n"


def test_without_libberth():
    out, = fine(start(1, "print('imported'); error(begin)", BERTH_LIBRARY="/nowhere/libberth.so"))
    assert out.startswith("imported\nImportError: no libberth.so") and "BERTH_LIBRARY" in out


def test_another_backend_in_one_group_is_refused():
    out, = fine(start(1, """
        error(dist.init_process_group, "cpu:berth,cuda:gloo")
        begin()
        error(dist.new_group, backend="cpu:berth,cuda:gloo")
        dist.new_group(backend="gloo")
        dist.destroy_process_group()
        dist.init_process_group("cpu:berth")
        print(dist.group.WORLD.name())
    """))
    lines = out.splitlines()
    assert lines[0].startswith('ValueError: The backend "berth" cannot be in one group with another, as in '
                               '"cpu:berth,cuda:gloo"')
    assert lines[1].startswith("ValueError: ") and lines[2] == "berth"


def test_groups_can_be_made_anew():
    for out in fine(start(2, """
        for turn in range(3):
            begin()
            t = torch.ones(3)
            dist.all_reduce(t)
            dist.all_reduce(t, async_op=True).get_future().wait()
            print(t[0].item())
            group = dist.new_group([0, 1] if turn else [0])  # of the same name each time
            if turn:
                dist.barrier(group)
                dist.destroy_process_group(group)
            dist.destroy_process_group()
    """)):
        assert out == "4.0\n4.0\n4.0\n"


def test_torchrun():
    program = BEGIN + textwrap.dedent(r"""
        begin()
        t = torch.ones(3)
        dist.all_reduce(t)
        sys.stdout.write(f"sum {t[0].item()}\n")
        sys.stdout.flush()
        dist.destroy_process_group()
        begin()
        dist.barrier()
    """)
    path = f"/tmp/berth-test-{os.getpid()}.py"
    with open(path, "w", encoding="ascii") as f:
        f.write(program)
    try:
        out = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                              "--master-port", free_port(), path], env=environment(), timeout=120, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    finally:
        os.unlink(path)
    assert out.returncode == 0 and out.stdout.count("sum 2.0") == 2, out.stdout


RANKS_OF_RUNNER = """
import berth as hvd
before = sys.argv[1] == "before"
if before:
    hvd.init()
begin()
if not before:
    hvd.init()
assert (hvd.rank(), hvd.size()) == (rank, size)
t = torch.full((1000,), float(rank))
works = [dist.all_reduce(t.clone(), async_op=True) for _ in range(10)] if rank else []
assert hvd.allgather_object(rank) == list(range(size))
works = works or [dist.all_reduce(t.clone(), async_op=True) for _ in range(10)]
for work in works:
    work.wait()
if before:
    dist.destroy_process_group()
    assert hvd.allgather_object(rank) == list(range(size))
else:
    hvd.shutdown()
    dist.all_reduce(t)
    assert t[0].item() == size * (size - 1) / 2
print("fine", flush=True)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_beside_horovods_calls_under_runner(when):
    if not os.access(RUNNER, os.X_OK):
        pytest.skip("there is no runner in the tree: give it in RUNNER")
    out = subprocess.run([RUNNER, "-q", "--no-tag", "--oversubscribe", "-np", "2", sys.executable, "-c",
                          BEGIN + RANKS_OF_RUNNER, when], env=environment(), timeout=120, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert out.returncode == 0 and out.stdout.count("fine") == 2, out.stdout


def test_a_world_of_other_ranks():
    for out in fine(start(2, """
        class Alone:
            Get_rank, Get_size, allgather = lambda s: 0, lambda s: 1, lambda s, thing: [thing]
        import berth
        berth.init(comm=Alone())
        error(begin)
    """)):
        assert out.startswith("DistBackendError: berth: rank 0 of 2 of torch.distributed is rank 0 of 1 of "
                              "berth: give both the same ranks, or call init_process_group() first")


def test_a_berth_group_beside_a_default_one_of_gloo():
    for out in fine(start(2, """
        dist.init_process_group("gloo")
        error(dist.new_group, [dist.get_rank()], use_local_synchronization=True, backend="berth")
        group, t = dist.new_group(backend="berth"), torch.ones(3)
        part = dist.new_group([dist.get_rank()], use_local_synchronization=True, backend="berth")
        dist.all_reduce(t, group=group)
        dist.all_reduce(t, group=part)
        print(t.tolist())
    """)):
        first, second = out.splitlines()
        assert first.startswith("DistBackendError: berth: a group of some ranks needs a world of all")
        assert second == "[2.0, 2.0, 2.0]"


# ---- failures ----

def test_other_operations_name_both_sides():
    results = fine(start(3, """
        begin()
        group = dist.new_group([0, 2])
        if rank != 1:
            error(dist.all_reduce, torch.ones(3 + rank), group=group)
        error(dist.all_reduce, torch.ones(3, dtype=torch.int32 if rank == 1 else torch.int64))
        error(dist.broadcast, torch.ones(3), 1 if rank == 1 else 0)
        if rank == 1:
            error(dist.barrier)
        else:
            error(dist.all_reduce, torch.ones(2))
        work = dist.all_reduce(torch.ones(rank), async_op=True)
        work.get_future()
        error(work.wait)
        error(work.wait)
        print(work.is_completed(), work.is_success(), type(work.exception()).__name__)
        t = torch.ones(2)
        dist.all_reduce(t)
        print(t[0].item())
    """))
    of_the_two, lines = [out.splitlines() for out in results[::2]], [out.splitlines()[-7:] for out in results]
    for out in of_the_two:
        assert out[0].startswith("DistBackendError: berth: ") and "3" in out[0] and "5" in out[0]
        assert "rank 0" in out[0] and "rank 2" in out[0], out[0]  # of the world, not of the group
    for out in lines:
        assert all(line.startswith("DistBackendError: berth: ") for line in out[:5]), out
        assert "i32" in out[0] and "i64" in out[0] and "rank 1" in out[0]
        assert "rank 1" in out[1] and "barrier" in out[2] and "allreduce" in out[2]
        assert out[3] == out[4] and out[5:] == ["True False DistBackendError", "3.0"]


def lost(what):
    """What rank 0 prints of the errors that WHAT gets when rank 1 is killed: within 2 s."""
    (status, out), (killed, _) = start(2, f"""
        begin()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        groups = [dist.new_group() for _ in range(3)]
        t = torch.ones(3)
        if rank == 1:
            wait_for("there")
            os.kill(os.getpid(), signal.SIGKILL)
        tell("there")
        began = time.monotonic()
        {what}
        print("after", time.monotonic() - began)
    """)
    assert killed == -9 and status == 0, out
    lines = [line for line in out.splitlines() if "Error: " in line or line.startswith("after ")]
    assert all("rank 1" in line for line in lines[:-1]) and float(lines[-1].split()[1]) < 2, out
    return lines[:-1]


def test_a_lost_rank():
    lines = lost("""works = [dist.irecv(t, 1, group=groups[0])]
        works.append(dist.all_reduce(t, group=groups[1], async_op=True))
        future = dist.all_reduce(t, group=groups[2], async_op=True).get_future()
        error(dist.all_reduce, t); error(future.wait)
        for work in works: error(work.wait)""")
    assert len(lines) == 4 and all("DistBackendError: berth: " in line for line in lines)


def test_a_lost_rank_in_ddp():
    """C++ makes a RuntimeError of what its Future got."""
    line, = lost("error(model(torch.ones(2, 4)).sum().backward)")
    assert line.startswith(("RuntimeError: ", "DistBackendError: ")) and "berth: " in line


def test_timeouts():
    out, _ = fine(start(2, """
        begin()
        short, long = dist.new_group(timeout=timedelta(seconds=0.5)), dist.new_group()
        dist.barrier()
        if rank == 0:
            for call in (lambda: dist.all_reduce(torch.ones(3), group=short),
                         lambda: dist.barrier(long, timeout=timedelta(seconds=0.2))):
                began = time.monotonic()
                error(call)
                print(time.monotonic() - began)
            tell("done")
        else:
            wait_for("done")
    """))
    first, after, second, again = out.splitlines()
    for line in (first, second):
        assert line.startswith("DistBackendError: berth: ") and "rank 1" in line, out
    assert 0.4 < float(after) < 5 and 0.1 < float(again) < 5, out


def test_abort():
    """It ends the operations of all ranks, those that run in another thread too."""
    outs = fine(start(2, """
        begin()
        if rank == 0:
            thread = threading.Thread(target=error, args=(dist.all_reduce, torch.ones(3)))
            thread.start()
            tell("there")
            thread.join()
        else:
            wait_for("there")
            dist.group.WORLD.abort()
        error(dist.all_reduce, torch.ones(3))
        dist.destroy_process_group()
        begin()
        t = torch.ones(2)
        dist.all_reduce(t)
        print(t[0].item())
    """))
    assert outs[0].count("DistBackendError: berth: ") == 2 and "abort() was called" in outs[0], outs
    assert outs[1].count("DistBackendError: berth: ") == 1 and all(out.endswith("2.0\n") for out in outs)


def test_shutdown_ends_what_runs():
    for out in fine(start(2, """
        begin()
        work = dist.irecv(torch.ones(3), 1 - rank)
        other = dist.irecv(torch.ones(3), 1 - rank, tag=1)
        other.get_future()
        group = dist.group.WORLD
        dist.destroy_process_group()
        error(work.wait)
        error(other.wait)
        error(group.barrier)
    """)):
        assert out.count("DistBackendError: berth: ") == 3 and "was shut down" in out, out


def test_an_interrupt():
    out, _ = fine(start(2, """
        begin()
        if rank == 0:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            work = dist.all_reduce(torch.ones(3), async_op=True)
            began = time.monotonic()
            try:
                work.wait()
            except KeyboardInterrupt:
                print(time.monotonic() - began, flush=True)
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            work.get_future()
            try:
                work.wait()
            except KeyboardInterrupt:
                print(time.monotonic() - began, flush=True)
            tell("done")
        else:
            wait_for("done")
            work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
        dist.barrier()
    """))
    assert [float(line) < 3 for line in out.splitlines()] == [True, True]


def test_an_end_without_destroy():
    """Works and Futures that nobody waits for do not keep the process."""
    began = time.monotonic()
    fine(start(2, """
        begin()
        kept = [dist.irecv(torch.ones(3), 1 - rank, tag=tag) for tag in range(3)]
        futures = [work.get_future() for work in kept[1:]]
        dist.all_reduce(torch.ones(3))
    """))
    assert time.monotonic() - began < 30
