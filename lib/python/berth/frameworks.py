"""TensorFlow and Keras, as they are installed: their versions, and whether libberth_tf.so loads.

To import TensorFlow takes 3 to 10 s.  So versions are what the installed packages say, and the ops are loaded
beside the one library of TensorFlow that they need, in 0.2 s.  runner --check-build prints what main() does.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING, Final, Iterator

from . import library

if TYPE_CHECKING:
    from importlib.metadata import Distribution

FILE: Final = "libberth_tf.so"
FRAMEWORK: Final = "libtensorflow_framework.so.2"
# All of them have the module tensorflow.
TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tensorflow-rocm",
                     "tensorflow-cpu-aws", "tf-nightly", "tf-nightly-cpu")


# Of a process that has imported berth.tensorflow: why its operations go by numpy_function.
unused: str | None = None


def installed(*names: str) -> Distribution | None:
    """The first of NAMES that is installed."""
    from importlib import metadata  # berth.tensorflow does without it, which takes 20 ms
    for name in names:
        try:
            return metadata.distribution(name)
        except metadata.PackageNotFoundError:
            pass
    return None


def wrong(so: ctypes.CDLL) -> str | None:
    """Why the ops of SO, which is loaded, can't be used in this TensorFlow; None: they can."""
    so.berth_tf_wrong.restype = ctypes.c_char_p
    why: bytes | None = so.berth_tf_wrong()
    return why.decode(errors="replace") if why else None


def why_not(folder: str) -> str | None:
    """Why the ops do not load beside the TensorFlow in FOLDER; None: they do."""
    try:
        ctypes.CDLL(os.path.join(folder, FRAMEWORK))
        return wrong(ctypes.CDLL(library.beside(FILE)))
    except (OSError, ImportError, AttributeError) as e:
        return str(e)


def keras() -> Iterator[str]:
    """Each Keras that is installed, with its version: there may be two."""
    for name, package in (("Keras", "keras"), ("tf-keras", "tf-keras")):
        found = installed(package)
        if found:
            yield f"{name} {found.version}"


def main() -> None:
    """Print what this Python has, for runner --check-build."""
    print(f"\nFound by {sys.executable}:")
    tensorflow = installed(*TENSORFLOW)
    if tensorflow is None:
        print("    no TensorFlow")
    else:
        why = why_not(str(tensorflow.locate_file("tensorflow")))
        print(f"    TensorFlow {tensorflow.version}: {FILE} " + (f"does not load: {why}" if why else "loads"))
    for each in list(keras()) or ["no Keras"]:
        print(f"    {each}")
