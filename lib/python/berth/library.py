"""libberth: where its file is, calls that wait, and what they raise."""
import os
import threading
from ctypes import byref, c_void_p

from . import clib
from .errors import HorovodInternalError, HorovodVersionMismatchError

RELEASE = "0.2.0"
VERSION = RELEASE.rpartition(".")[0]  # of the ABI
FILE = f"libberth.so.{VERSION}"
# A callback inside of a wait would swallow KeyboardInterrupt, so each wait comes back to Python.
SLICE_MS = 100

_lock = threading.Lock()
_library = None
_left = []  # operations that an exception has left: they still use their buffers


def places():
    """The files to try, in this order."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("BERTH_LIBRARY"):
        return [os.environ["BERTH_LIBRARY"]]
    tree = os.path.join(here, "..", "..", "..")
    beside = [os.path.join(here, FILE), os.path.join(tree, "build", "lib", FILE)]
    return [os.path.normpath(path) for path in beside if os.path.exists(path)] + [FILE]


def _load():
    tried = []
    for path in places():
        try:
            library = clib.load(path)
        except (OSError, AttributeError) as e:
            tried.append(str(e))
            continue
        version = library.berth_version().decode()
        if not version.startswith(VERSION + "."):
            raise HorovodVersionMismatchError(path, VERSION, version)
        return library
    raise ImportError(f"no {FILE} ({'; '.join(tried)}): build it with make, install it with make install, "
                      "or give its file in BERTH_LIBRARY")


def get():
    """The library, loaded once."""
    global _library
    if _library is None:
        with _lock:
            _library = _library or _load()
    return _library


def check(result):
    """Raise what RESULT is, unless it is OK."""
    if result == clib.OK:
        return
    text = get().berth_last_error().contents.text or get().berth_result_text(result)
    text = text.decode(errors="replace")
    if result == clib.INVALID:
        raise ValueError(text)
    if result == clib.MEMORY:
        raise MemoryError(text)
    raise HorovodInternalError(text)


def run(buffers, **fields):
    """Do the operation that FIELDS describe (clib.desc).  It can be interrupted, and goes on then.  BUFFERS:
    the objects whose memory it uses.
    """
    library, later = get(), c_void_p()
    d = clib.desc(**fields)
    try:
        result = library.berth_run(byref(d), SLICE_MS, byref(later))
        while result == clib.BUSY:
            result = library.berth_wait(later, SLICE_MS)
    except BaseException:
        if later:
            _left.append((later, d, buffers))
        raise
    check(result)
