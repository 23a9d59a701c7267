# Python of a rank runs this before the program: its stack goes to the agent's file when
# a signal comes.  The sitecustomize that this one hides runs next.  Python 2 runs it, too.
import sys


def _stack():
    import os

    number, _, path = os.environ.get("BERTH_RANK_STACK", "").partition(":")
    if not path or sys.version_info < (3, 8):
        return
    import faulthandler

    low = fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.fstat(1000)
    except OSError:
        # Programs close the first descriptors, and use their numbers again.
        try:
            fd = os.dup2(low, 1000, False)
            os.close(low)
        except OSError:
            pass
    # Not chained: the kernel's own action would end the process.
    faulthandler.register(int(number), fd, True, False)


try:
    _stack()
except Exception:
    pass
del _stack
_own = sys.modules.pop(__name__)
sys.path[:] = [p for p in sys.path if p != __file__.rpartition("/")[0]]
try:
    import sitecustomize
except ImportError:
    # As it is without this file: none is no error, and what another lacks is one.
    sys.modules[__name__] = _own
    if not str(sys.exc_info()[1]).replace("'", "").endswith(" sitecustomize"):
        raise
except BaseException:
    sys.modules[__name__] = _own
    raise
