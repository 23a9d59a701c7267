"""The package horovod for scripts that run on Berth: `import horovod.torch as hvd` is berth.torch.

`runner --horovod` puts the directory above it on the PYTHONPATH of the ranks.  It has what scripts for
PyTorch, TensorFlow and Keras import; each module takes its names from the package berth.
"""
import importlib.machinery
import os
import sys

from berth import run  # noqa: F401
from berth.library import RELEASE as _berth

# The version of Horovod whose names these are: scripts compare it.
__version__ = f"0.28.1+berth.{_berth}"

_ABSENT = {"mxnet": "MXNet", "spark": "Spark", "ray": "Ray", "data": "Horovod's data loaders"}


class _Absent:
    """Says of each package of Horovod's that is not here that it is not."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == "horovod" and module in _ABSENT:
            raise ImportError(f"{name} is not part of Berth, which has no {_ABSENT[module]} yet: "
                              "for the installed Horovod, start with runner --horovod=installed.", name=name)


def _hidden():
    """The directory of another package horovod, which this one hides, or None."""
    own = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    others = [path for path in sys.path if os.path.realpath(path or ".") != own]
    spec = importlib.machinery.PathFinder.find_spec("horovod", others)
    return os.path.dirname(spec.origin) if spec and spec.origin else None


def _is_worker():
    """A child of multiprocessing's; of `spawn`, also while it imports the script."""
    processes = sys.modules.get("multiprocessing.process")
    return processes and (processes.parent_process() or
                          getattr(processes.current_process(), "_inheriting", False))


def _tell():
    """One line of rank 0, but not of its DataLoader's workers."""
    if _is_worker():
        return
    hidden = _hidden()
    # Nobody who has nothing to tell looks for its rank: runner --warm imports this once for all.
    if hidden and os.environ.get("BERTH_RANK") == "0":
        print(f"berth: horovod is Berth here, and hides the one in {hidden}; "
              "--horovod=installed takes that one",
              file=sys.stderr, flush=True)


sys.meta_path.insert(0, _Absent)
_tell()
