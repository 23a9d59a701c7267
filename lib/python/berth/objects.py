"""Any objects of Python that pickle takes, from one rank or from all."""
import ctypes
import pickle

from . import basics, clib, library


def _name(name):
    return name.encode() if name else None


def broadcast_object(obj, root_rank=0, name=None, process_set=basics.global_process_set):
    """OBJ of ROOT_RANK, a rank of the world."""
    is_root = basics.rank() == root_rank
    data = pickle.dumps(obj) if is_root else b""
    fields = {"kind": clib.BROADCAST, "root": process_set.ranks.index(root_rank), "set": process_set.handle}
    length = ctypes.c_uint64(len(data))
    at = ctypes.addressof(length)
    library.run(length, type=clib.U64, count=1, in_=at, out=at, name=_name(name), **fields)
    buffer = ctypes.create_string_buffer(data, length.value)
    at = ctypes.addressof(buffer)
    library.run(buffer, type=clib.U8, count=length.value, in_=at, out=at, name=_name(name), **fields)
    return obj if is_root else pickle.loads(buffer.raw)


def allgather_object(obj, name=None, process_set=basics.global_process_set):
    """A list of the objects of all ranks of the set, in their order."""
    data = pickle.dumps(obj)
    lengths = (ctypes.c_uint64 * process_set.size())()
    made = ctypes.c_void_p()
    library.run(data, kind=clib.ALLGATHER, type=clib.U8, count=len(data),
                in_=ctypes.cast(data, ctypes.c_void_p), received=lengths, made=made,
                name=_name(name), set=process_set.handle)
    try:
        whole = ctypes.string_at(made, sum(lengths))
    finally:
        library.get().berth_free(made)
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    return [pickle.loads(whole[a:b]) for a, b in zip(ends, ends[1:])]
