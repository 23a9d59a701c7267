"""Threads of scripts and tests."""
import threading


def in_thread(target, args=(), name=None, daemon=True, silent=False):
    """Run TARGET(*ARGS) in a new thread, and return that.  SILENT: its exceptions are dropped."""
    if not isinstance(args, tuple):
        raise ValueError(f"args is a tuple, not {type(args).__name__}: write (arg,) for one argument.")

    def run():
        try:
            target(*args)
        except Exception:
            if not silent:
                raise

    thread = threading.Thread(target=run, name=name, daemon=daemon)
    thread.start()
    return thread
