"""An MPI program in Python, which needs mpi4py and an MPI:

    runner -np 4 -H ip1:2,ip2:2 python3 examples/mpi_hello.py

Each rank says where it is; rank 0 prints the sum of all ranks."""

from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size} on {MPI.Get_processor_name()}", flush=True)
total = world.reduce(world.rank, op=MPI.SUM, root=0)
if world.rank == 0:
    print(f"the sum of all ranks is {total}")
