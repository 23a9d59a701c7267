"""Horovod's way to ask who the ranks are, as methods of an object."""
import berth
from berth import basics


class HorovodBasics:
    """Its methods are the functions of the package berth.  The arguments named an extension of Horovod's."""

    def __init__(self, pkg_path=None, *args):
        pass

    def _get_process_set_ids_and_ranks(self):
        return basics.ranks_of_sets()

    def __getattr__(self, name):
        return getattr(berth, name)
