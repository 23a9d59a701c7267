"""An allgather of Python's own, for sets and worlds that a bootstrap of the caller begins."""
import ctypes
import socket

from berth import clib as B
from berth.clib import made


class Meeting:
    """An allgather of N ranks: rank 0 has a socket at PATH, to which the others connect after BARRIER."""

    def __init__(self, path, barrier, me, n):
        self.me, self.n, self.calls = me, n, 0
        self.door = self.peers = None
        if me == 0:
            self.door = socket.socket(socket.AF_UNIX)
            self.door.bind(path)
            self.door.listen(n)
            barrier()
            joined = [self.door.accept()[0] for _ in range(n - 1)]
            self.peers = [peer for _, peer in sorted((peer.recv(1)[0], peer) for peer in joined)]
        else:
            barrier()
            self.peers = [socket.socket(socket.AF_UNIX)]
            self.peers[0].connect(path)
            self.peers[0].send(bytes([me]))
        self.call = B.ALLGATHER_CALL(self.allgather)

    def allgather(self, ctx, mine, out, size):
        self.calls += 1
        words = ctypes.string_at(mine, size)
        if self.me:
            self.peers[0].sendall(words)
            words = self.peers[0].recv(size * self.n, socket.MSG_WAITALL)
        else:
            words += b"".join(peer.recv(size, socket.MSG_WAITALL) for peer in self.peers)
            for peer in self.peers:
                peer.sendall(words)
        ctypes.memmove(out, words, size * self.n)
        return 0

    def bootstrap(self):
        return made(B.Bootstrap, rank=self.me, ranks=self.n, allgather=self.call, key=b"k" * 32, host=b"here")

    def close(self):
        for each in [*self.peers, self.door]:
            if each:
                each.close()
