"""What scripts and tests take from here: what is built in, and variables for a while."""
import contextlib
import os
import re

import berth
from berth.operations import check_num_rank_power_of_2 as num_rank_is_power_2  # noqa: F401
from berth.operations import split_list  # noqa: F401


@contextlib.contextmanager
def env(**variables):
    """Set environment VARIABLES inside a `with`; None removes one."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables):
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def extension_available(ext_base_name, verbose=False):
    """EXT_BASE_NAME: "torch", "tensorflow" or "mxnet"."""
    try:
        __import__(f"horovod.{ext_base_name}")
    except ImportError as e:
        if verbose:
            print(e)
        return False
    return True


def check_extension(ext_name, ext_env_var=None, pkg_path=None, *args):
    """Raise ImportError if Berth has no EXT_NAME, as it has "horovod.torch".  Nothing is built for one."""
    __import__(ext_name)


def gpu_available(ext_base_name, verbose=False):
    """Whether collectives run on GPUs."""
    return berth.cuda_built() or berth.rocm_built()


def mpi_built(verbose=False):
    return berth.mpi_built()


def gloo_built(verbose=False):
    return berth.gloo_built()


def nccl_built(verbose=False):
    return berth.nccl_built()


def ddl_built(verbose=False):
    return berth.ddl_built()


def ccl_built(verbose=False):
    return berth.ccl_built()


def _version(text):
    """Numbers, and whether it is a release: what versions are compared by."""
    if not isinstance(text, str):
        raise ValueError(f"a version is a string, such as \"2.15.0\", not {text!r}.")
    numbers, rest = re.fullmatch(r"v?((?:\d+\.)*\d+)(.*)", text.strip()).groups()
    numbers = [int(number) for number in numbers.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers, not re.match(r"[-._]?(a|b|c|rc|alpha|beta|pre|dev)", rest)


def is_version_greater_equal_than(ver, target):
    """Whether VER is TARGET or a later version."""
    return _version(ver) >= _version(target)


def is_iterable(x):
    try:
        iter(x)
    except TypeError:
        return False
    return True
