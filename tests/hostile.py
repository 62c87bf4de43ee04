"""A server that answers with whatever bytes it likes, and says how many it got rid of."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Hostile:
    """Calls ``answer(request)`` for the pieces to send; each is sent as it comes."""

    def __init__(self, answer: Callable[[bytes], Iterator[bytes]]) -> None:
        self.sent = 0
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                thread = threading.Thread(target=self._serve, args=(connection,))
                thread.start()
                self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            for piece in self._answer(read_request(connection)):
                connection.sendall(piece)
                self.sent += len(piece)
            connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(30)


def read_request(connection: socket.socket) -> bytes:
    """One request with its body."""
    data = b""
    while b"\r\n\r\n" not in data and (more := connection.recv(65536)):
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            while len(body) < int(line.partition(b":")[2]) and (more := connection.recv(65536)):
                body += more
    return head + b"\r\n\r\n" + body


@contextlib.contextmanager
def hostile(answer: Callable[[bytes], Iterator[bytes]]) -> Iterator[Hostile]:
    server = Hostile(answer)
    try:
        yield server
    finally:
        server.close()


def whole(body: bytes, status: bytes = b"200 OK", head: bytes = b"") -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), head, body)
