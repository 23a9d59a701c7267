"""The ranks of MPI_COMM_WORLD as a pool of mpi4py."""

from mpi4py import MPI
from mpi4py.futures import MPICommExecutor

with MPICommExecutor(MPI.COMM_WORLD, root=0) as pool:
    if pool is not None:
        print("squares", list(pool.map(pow, range(10), [2] * 10)))
        print("raised", repr(pool.submit(int, "x").exception()))
print("left", flush=True)
