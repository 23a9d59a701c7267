"""libberth: where its file is, operations that are run or submitted, and what they raise."""
import os
import struct
import threading
import time
from ctypes import addressof, c_int, c_int64, c_size_t, c_void_p, sizeof

from . import clib, trust
from .errors import HorovodInternalError, HorovodVersionMismatchError

RELEASE = "0.2.0"
VERSION = RELEASE.rpartition(".")[0]  # of the ABI
FILE = f"libberth.so.{VERSION}"
# A callback inside of a wait would swallow KeyboardInterrupt, so each wait comes back to Python.
SLICE_MS = 100

_lock = threading.Lock()
_collecting = threading.Lock()
_library = None


# ---- the file ----

def places():
    """The files to try, in this order."""
    here = os.path.dirname(os.path.realpath(__file__))
    if os.environ.get("BERTH_LIBRARY"):
        return [os.environ["BERTH_LIBRARY"]]
    tree = os.path.join(here, "..", "..", "..")
    beside = [os.path.join(here, FILE), os.path.join(tree, "build", "lib", FILE)]
    return [os.path.normpath(path) for path in beside if os.path.exists(path)] + [FILE]


def _refusal(path):
    """What the user names is taken, and what the system finds."""
    if path == os.environ.get("BERTH_LIBRARY") or not os.path.isabs(path):
        return None
    return trust.refusal(os.path.dirname(os.path.realpath(__file__)), path)


def _load():
    tried = []
    for path in places():
        reason = _refusal(path)
        if reason:
            tried.append(f"another user could replace {path}: {reason}")
            continue
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
            if _library is None:
                library = _load()
                _make_calls(library)
                _library = library
    return _library


def check(result):
    """Raise what RESULT is, unless it is OK."""
    if result == clib.OK:
        return
    error = get().berth_last_error().contents
    text, tensor = (error.text or get().berth_result_text(result)), error.tensor or b""
    text = (text if tensor in text else tensor + b": " + text).decode(errors="replace")
    if result == clib.INVALID:
        raise ValueError(text)
    if result == clib.MEMORY:
        raise MemoryError(text)
    raise HorovodInternalError(text)


# ---- operations ----

def _make_calls(library):
    """These take addresses, which costs ctypes least: 0.3 us a call, and with byref() 0.6."""
    global _run, _submit, _wait, _poll
    _run, _submit = library.own("berth_run"), library.own("berth_submit")
    _wait, _poll = library.own("berth_wait"), library.own("berth_poll")
    _run.argtypes = [c_void_p, c_int64, c_void_p]
    _submit.argtypes = [c_void_p, c_size_t, c_void_p]
    _wait.argtypes = [c_void_p, c_int64]
    _poll.argtypes = [c_void_p]
    for call in (_run, _submit, _wait, _poll):
        call.restype = c_int


_run = _submit = _wait = _poll = None  # until get()


# From KIND to COUNT, which one call writes in 0.2 us; as attributes they take 0.8.
_pack = struct.Struct("=4i9Q").pack_into
_KIND = clib.Desc.kind.offset
assert clib.Desc.count.offset == _KIND + 4 * 4 + 8 * 8


class _Spare:
    """A descriptor and a place for a request, to be used again: to make them takes 1 us."""
    __slots__ = ("d", "at", "later", "later_at", "timeout_ms")

    def __init__(self):
        self.d = clib.Desc(size=sizeof(clib.Desc))
        self.later, self.timeout_ms = c_void_p(), 0
        self.at, self.later_at = addressof(self.d), addressof(self.later)

    def fill(self, kind, type_, op, in_, out, count, name, set_, shape, root, timeout_ms):
        _pack(self.d, _KIND, kind, type_, op, root, 0, 0, set_ or 0, in_ or 0, out or 0, 0, 0, 0, count)
        if name is not None:
            self.d.name = name
        if shape is not None:
            self.d.shape = shape
        if timeout_ms != self.timeout_ms:
            self.d.timeout_ms = self.timeout_ms = timeout_ms


_spare = []  # more than one where several threads are at it


class Operation:
    """What was submitted as one request.  It keeps KEPT, the objects whose memory it uses."""
    __slots__ = ("request", "kept")

    def __init__(self, request, kept):
        self.request, self.kept = request, kept

    def is_done(self):
        """It has come to its end, whatever that is."""
        return self.request is None or _poll(self.request) != clib.BUSY

    def wait(self, limit_s=None):
        """Until it is done; raise what went wrong, once.  It goes on if this is interrupted.  False: LIMIT_S
        seconds were not enough.
        """
        if self.request is not None:
            until = None if limit_s is None else time.monotonic() + limit_s
            result = _wait(self.request, SLICE_MS if until is None else _slice_before(until))
            while result == clib.BUSY:
                if until is not None and time.monotonic() >= until:
                    return False
                result = _wait(self.request, SLICE_MS if until is None else _slice_before(until))
            self.request = self.kept = None
            check(result)
        return True

    def __del__(self):
        if self.request is not None:
            _leave(self.request, self.kept)


def _slice_before(until):
    return max(0, min(SLICE_MS, int((until - time.monotonic()) * 1000) + 1))


_left = []  # (request, kept) of operations for which nobody waits: they still use their memory


def _leave(request, kept):
    _left.append((request, kept))
    if len(_left) > 16:
        collect()


def collect():
    """Forget those that nobody waits for, and that are done."""
    if not _collecting.acquire(blocking=False):
        return  # another thread is at it, or this one: to forget may end others
    try:
        for entry in list(_left):
            if _poll(entry[0]) != clib.BUSY:
                _left.remove(entry)
                _wait(entry[0], 0)
    finally:
        _collecting.release()


def run(kept, **fields):
    """Do the operation that FIELDS describe (clib.desc).  It can be interrupted, and goes on then.  KEPT:
    the objects whose memory it uses.
    """
    get()
    d, later = clib.desc(**fields), c_void_p()
    _finish(addressof(d), later, addressof(later), (d, kept))


def _finish(at, later, later_at, kept):
    """Run the descriptor at AT.  True: it took LATER, and that is NULL again."""
    try:
        result = _run(at, SLICE_MS, later_at)
        while result == clib.BUSY:
            result = _wait(later.value, SLICE_MS)
    except BaseException:
        if later.value:
            _leave(later.value, kept)
            later.value = None
        raise
    if later.value:
        later.value = None
    check(result)


def run_plain(kept, kind, type_, op, in_, out, count, name=None, set_=None, shape=None,
              root=0, timeout_ms=0):
    """run() of these fields alone, in a third of its time.  NAME and SHAPE are bytes; IN_, OUT and SET_ are
    addresses, or None.
    """
    if _library is None:
        get()
    spare = _spare.pop() if _spare else _Spare()
    spare.fill(kind, type_, op, in_, out, count, name, set_, shape, root, timeout_ms)
    try:
        _finish(spare.at, spare.later, spare.later_at, kept)
    finally:
        _spare.append(spare)


def submit(kept, *descs):
    """Begin DESCS (clib.desc) of one set, as one request.  Returns the Operation."""
    get()
    request = c_void_p()
    array = descs[0] if len(descs) == 1 else clib.descs(*descs)
    try:
        check(_submit(addressof(array), len(descs), addressof(request)))
        return Operation(request.value, (kept, descs))
    except BaseException:
        if request.value:  # an interrupt
            _leave(request.value, (kept, descs))
        raise


def submit_plain(kept, kind, type_, op, in_, out, count, name=None, set_=None, shape=None,
                 root=0, timeout_ms=0):
    """submit() of one operation with these fields alone."""
    if _library is None:
        get()
    spare = _spare.pop() if _spare else _Spare()
    spare.fill(kind, type_, op, in_, out, count, name, set_, shape, root, timeout_ms)
    try:
        result = _submit(spare.at, 1, spare.later_at)
        if result:
            check(result)
        operation = Operation(spare.later.value, kept)
    except BaseException:
        if spare.later.value:  # an interrupt
            _leave(spare.later.value, kept)
        raise
    spare.later.value = None
    _spare.append(spare)
    return operation
