"""A line between two sites, on loopback: bytes pass as they are, and are cut off when one likes.

In place of a WAN where nobody may build one. A cut is what a firewall does that forgets a connection: nothing passes any
more, and either side finds out by itself; or what a router does that resets it.
"""

from __future__ import annotations

import random
import selectors
import socket
import threading


class Line:
    """Listens at `address`, and passes connections on to `to`, a host and a port."""

    def __init__(self, to: tuple[str, int], *, seed: int = 0, cut_after: int = 0) -> None:
        """With `cut_after`, each connection is reset after so many bytes, or up to twice as many."""
        self.to = to
        self.cuts = 0
        self._cut_after = cut_after
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._ended = False
        self._open = True
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Resets what stands, and takes nothing new until `mend`."""
        with self._lock:
            self._open = False
        self._reset()

    def mend(self) -> None:
        """Connections pass again."""
        with self._lock:
            self._open = True

    def close(self) -> None:
        """The end of the line."""
        self._ended = True
        self._reset()
        # A connection wakes the thread that waits for one.
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._listener.close()

    def cut_after(self, count: int) -> None:
        """As of the constructor, for connections from now on; 0 is never."""
        self._cut_after = count

    def _reset(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for end in pair:
                _reset(end)

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            if self._ended:
                near.close()
                return
            if not self._open:
                _reset(near)
                continue
            try:
                far = socket.create_connection(self.to, 5)
            except OSError:
                _reset(near)
                continue
            most = 0
            if self._cut_after:
                most = self._random.randint(self._cut_after, 2 * self._cut_after)
            threading.Thread(target=self._pass, args=(near, far, most), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket, most: int) -> None:
        with self._lock:
            self._pairs.add((near, far))
        passed = 0
        with selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            try:
                while True:
                    for key, _ in selector.select():
                        piece = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                        if most and passed + len(piece) > most:
                            piece = piece[: most - passed]
                        key.data.sendall(piece)
                        passed += len(piece)
                        if not piece or passed == most:
                            return
            except OSError:
                return
            finally:
                with self._lock:
                    self._pairs.discard((near, far))
                self.cuts += 1
                _reset(near)
                _reset(far)


def _reset(end: socket.socket) -> None:
    """Closes it so that the other side finds it reset, whatever was under way."""
    try:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
