"""A proxy as sites have them: CONNECT to port 443 of any host, and nothing else. Listens at port 3128 of the site's side."""

from __future__ import annotations

import socket
import threading


def serve(near: socket.socket) -> None:
    with near:
        head = b""
        while b"\r\n\r\n" not in head:
            piece = near.recv(4096)
            if not piece or len(head) > 8192:
                return
            head += piece
        method, _, rest = head.decode("latin-1").partition(" ")
        host, _, port = rest.partition(" ")[0].rpartition(":")
        if method != "CONNECT" or port != "443":
            near.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        try:
            far = socket.create_connection((host, int(port)), 10)
        except OSError:
            near.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            return
        far.settimeout(None)
        near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = threading.Thread(target=copy, args=(far, near), daemon=True)
        back.start()
        copy(near, far)
        back.join()
        far.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    except OSError:
        pass
    for end in (source, target):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def main() -> None:
    with socket.create_server(("10.81.1.1", 3128)) as listener:
        print("ready", flush=True)
        while True:
            near, _ = listener.accept()
            threading.Thread(target=serve, args=(near,), daemon=True).start()


if __name__ == "__main__":
    main()
