"""Horovod's way to ask who the ranks are, as methods of an object."""
import berth


class HorovodBasics:
    """Its methods are the functions of the package berth.  The arguments named an extension of Horovod's."""

    def __init__(self, pkg_path=None, *args):
        pass

    def __getattr__(self, name):
        return getattr(berth, name)
