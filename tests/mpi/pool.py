"""A pool of mpi4py: results, an exception of a worker, and the worker goes on."""

from mpi4py.futures import MPIPoolExecutor


def square(x):
    return x * x


def fail(x):
    raise ValueError(f"{x} is wrong")


if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        print("workers", pool.num_workers)
        print("squares", list(pool.map(square, range(10))))
        try:
            pool.submit(fail, 7).result()
        except ValueError as e:
            print("raised", e)
        print("after it", pool.submit(square, 12).result())
