"""Requests whose connection a stop shuts.

A thread that waits for an answer cannot be interrupted, but another thread can shut the connection that it waits
on. So where a connection is free, a request is sent on the caller's own thread. Everything else goes through a
helper thread (see `_stopping`), which costs two changes of threads: a connection that has to be opened first,
HTTP/2, and transports that are not httpx's own.
"""

from __future__ import annotations

import socket
import threading
from typing import Any, Callable, TypeVar

from . import _stopping
from ._native import Stop
from ._stopping import Stopped

T = TypeVar("T")

#: The request's extension that says which call it belongs to; httpx passes on what it does not know.
_CALL = "deadstop.call"
#: Seconds between two looks for a connection that is to be shut.
_AGAIN = 0.005


def send(
    http: Any,
    request: Any,
    work: Callable[..., T],
    stream: bool,
    options: dict[str, Any],
    stop: Stop,
) -> T:
    """Sends this request by `work`, and raises :class:`Stopped` as soon as a stop comes."""
    pool = _free(http, request.url)
    if pool is None:
        return _stopping.run(lambda: work(request, stream=stream, **options), stop)
    if stop.is_stopped:
        raise Stopped
    call = _Call(pool)
    request.extensions[_CALL] = call
    watch = stop.on_stop(call.cut)
    try:
        return work(request, stream=stream, **options)
    except Exception:
        if stop.is_stopped:
            raise Stopped from None
        raise
    finally:
        call.end()
        watch.cancel()


def _free(http: Any, url: Any) -> Any:
    """The pool that has a free connection for this address: one that carries a request at a time, and whose
    socket can be found. `None` for a pool of another make."""
    try:
        pool = http._transport_for_url(url)._pool
        host, port = url.raw_host, url.port
        for connection in pool._connections:
            origin = connection._origin
            if (
                origin.host == host
                and origin.port == (port or _PORTS.get(url.scheme))
                and origin.scheme == url.raw_scheme
                and connection.is_available()
                and not connection.has_expired()
            ):
                # The pool takes the first one that is available.
                return pool if _socket(connection) is not None and pool._requests is not None else None
    except AttributeError:
        pass
    return None


_PORTS = {"http": 80, "https": 443}


def _socket(connection: Any) -> socket.socket | None:
    """The socket of a connection that carries one request at a time."""
    # A connection through a proxy holds another one.
    while (inner := getattr(connection, "_connection", None)) is not None:
        connection = inner
    if not hasattr(connection, "_h11_state"):
        return None
    found = connection._network_stream.get_extra_info("socket")
    return found if isinstance(found, socket.socket) else None


def shut(found: socket.socket) -> None:
    """Ends what waits on a socket, on whichever thread."""
    try:
        # Below TLS, which another thread may be in the middle of.
        socket.socket.shutdown(found, socket.SHUT_RDWR)
    except OSError:
        pass


class _Call:
    """A request on its way through a pool."""

    __slots__ = ("_pool", "_over", "_lock")

    def __init__(self, pool: Any) -> None:
        self._pool, self._over = pool, False
        # A handler of signals may cut a call while its own thread ends it.
        self._lock = threading.RLock()

    def end(self) -> None:
        """Its connection may serve another call now."""
        with self._lock:
            self._over = True

    def cut(self) -> None:
        """Shuts its connection. The request may not have one yet, so it is looked for until the call is over."""
        self._look()
        try:
            threading.Thread(target=self._chase, name="deadstop-cut", daemon=True).start()
        except RuntimeError:
            pass  # the interpreter is on its way out

    def _chase(self) -> None:
        again = threading.Event()
        while not self._over:
            self._look()
            again.wait(_AGAIN)

    def _look(self) -> None:
        with self._lock:
            for waiting in [] if self._over else list(self._pool._requests):
                if waiting.request.extensions.get(_CALL) is self and waiting.connection is not None:
                    found = _socket(waiting.connection)
                    if found is not None:
                        shut(found)
