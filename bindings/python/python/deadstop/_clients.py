"""Guards HTTP clients: those of OpenAI and Anthropic, and plain httpx.

Only the method that sends requests is replaced, on the one client that is guarded; its type stays
what it was, and so do those of all answers. A client is guarded in place, or a copy of it is, which
shares its connections and leaves the original as it is.
"""

from __future__ import annotations

import contextvars
import copy
import socket
import sys
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, TypeVar

from . import _connections, _stopping
from ._context import entered
from ._errors import DeadstopBlocked, DeadstopError
from ._native import Exchange, Stop
from ._stopping import Stopped

if TYPE_CHECKING:
    from ._session import Session


C = TypeVar("C")


class Guarded:
    """A client that is guarded, and what it was before. Without a session of its own it charges each
    call to the session that the caller is in."""

    def __init__(self, session: Session[Any] | None, client: Any) -> None:
        self._session = session
        self.client = client
        self._http = http_of(client)
        self._api, self._errors = _family(client)
        # Two clients may share one connection pool (``client.with_options()``).
        current = self._http.__dict__.get("send")
        if current is not None and getattr(current, "deadstop", None) is not None:
            raise already(current.deadstop)
        self._send = self._http.send
        send = self._sender_async() if is_async(self._http) else self._sender()
        send.deadstop = session or SHARED  # type: ignore[attr-defined]
        self._http.send = send
        if self._errors is not None and callable(getattr(client, "request", None)):
            client.request = self._requester()

    def restore(self) -> None:
        """Makes the client what it was."""
        self._http.__dict__.pop("send", None)
        if self.client is not self._http:
            self.client.__dict__.pop("request", None)

    def _requester(self) -> Callable[..., Any]:
        """Older clients take every ``Exception`` that comes while they send for a fault of the
        network, and try again. A block passes them as something else."""
        original = self.client.request

        def request(*args: Any, **options: Any) -> Any:
            token = _requesting.set(True)
            try:
                return original(*args, **options)
            except _Carried as carried:
                raise carried.blocked from None
            finally:
                _requesting.reset(token)

        async def request_async(*args: Any, **options: Any) -> Any:
            token = _requesting.set(True)
            try:
                return await original(*args, **options)
            except _Carried as carried:
                raise carried.blocked from None
            finally:
                _requesting.reset(token)

        return request_async if is_async(self._http) else request

    def _sender(self) -> Callable[..., Any]:
        original = self._send

        def send(request: Any, *, stream: bool = False, **options: Any) -> Any:
            exchange, request = self._ask(request, request.read(), stream)
            whole = exchange.document and not stream
            try:
                response = _connections.send(
                    self._http, request, original, not whole, options, exchange.stop
                )
            except Stopped:
                raise exchange.cut_off() from None
            except Exception:
                exchange.broken()
                raise
            except BaseException:
                # The caller has left: a task was cancelled, a key was pressed. Not a failed call.
                exchange.abandon()
                raise
            # Some were read before they came here: out of a cache, or of a test's transport.
            if hasattr(response, "_content"):
                self._whole(exchange, response)
                return response
            _begin(exchange, response)
            response.stream = _sync_stream(response)(response.stream, exchange, self._blocked)
            if not stream:
                try:
                    response.read()
                except DeadstopBlocked as blocked:
                    response.close()
                    raise self._passing(blocked) from None
                except BaseException:
                    response.close()
                    raise
            return response

        send.__doc__ = "Sends a request, if its session admits it."
        return send

    def _sender_async(self) -> Callable[..., Any]:
        original = self._send

        async def send(request: Any, *, stream: bool = False, **options: Any) -> Any:
            body = await request.aread()
            if self._now()._native.governed:
                import asyncio

                exchange, request = await asyncio.to_thread(self._ask, request, body, stream)
            else:
                exchange, request = self._ask(request, body, stream)
            whole = exchange.document and not stream
            try:
                response = await _stopping.arun(
                    original(request, stream=not whole, **options), exchange.stop
                )
            except Stopped:
                raise exchange.cut_off() from None
            except Exception:
                exchange.broken()
                raise
            except BaseException:
                # The caller has left: a task was cancelled, a key was pressed. Not a failed call.
                exchange.abandon()
                raise
            if hasattr(response, "_content"):
                if exchange.governed:
                    import asyncio

                    await asyncio.to_thread(self._whole, exchange, response)
                else:
                    self._whole(exchange, response)
                return response
            _begin(exchange, response)
            response.stream = _async_stream(response)(response.stream, exchange, self._blocked)
            if not stream:
                try:
                    await response.aread()
                except DeadstopBlocked as blocked:
                    await response.aclose()
                    raise self._passing(blocked) from None
                except BaseException:
                    await response.aclose()
                    raise
            return response

        send.__doc__ = "Sends a request, if its session admits it."
        return send

    def _now(self) -> Session[Any]:
        """The session that a call is charged to."""
        if self._session is not None:
            return self._session
        scopes = entered.get()
        if not scopes:
            raise DeadstopError(
                "a shared client was called outside of every session; call it inside "
                "`with deadstop.session(...):`"
            )
        return scopes[-1]._session

    def _ask(self, request: Any, body: bytes, stream: bool) -> tuple[Exchange, Any]:
        """Asks whether a request may be sent; gives the one to send."""
        url = request.url
        scope = self._now()._scope()
        try:
            exchange = scope.request(self._api, url.host, request.method, url.path, body)
        except DeadstopBlocked as blocked:
            raise self._passing(blocked) from None
        return exchange, _sent(request, exchange.body(), stream or not exchange.document)

    def _whole(self, exchange: Exchange, response: Any) -> None:
        """Judges an answer that is there as a whole, unpacked."""
        try:
            changed = exchange.whole(response.status_code, response.headers.raw, response.content)
        except DeadstopBlocked as blocked:
            raise self._passing(blocked) from None
        if changed is not None:
            response._content = changed

    def _passing(self, blocked: DeadstopBlocked) -> BaseException:
        """A block that gets out of the client."""
        made = self._blocked(blocked)
        return _Carried(made) if _requesting.get() else made

    def _blocked(self, blocked: DeadstopBlocked) -> DeadstopBlocked:
        """A block that the client passes on as it is: it takes it for an error of its own."""
        if self._errors is None or isinstance(blocked, self._errors):
            return blocked
        kind = _kinds.get(self._errors)
        if kind is None:
            kind = type("DeadstopBlocked", (DeadstopBlocked, self._errors), {"__reduce__": _plain})
            _kinds[self._errors] = kind
        made: DeadstopBlocked = kind.__new__(kind, *blocked.args)
        DeadstopBlocked.__init__(made, blocked.args[0], blocked._why)
        return made


def _sent(request: Any, body: bytes | None, in_pieces: bool) -> Any:
    """The request to send: as the client made it, or with another body. An answer that is read in pieces must
    not come packed, since what is packed could not be read."""
    if body is not None:
        headers = [
            (name, value)
            for name, value in request.headers.multi_items()
            if name.lower() not in ("accept-encoding", "content-length")
        ]
        headers.append(("accept-encoding", "identity"))
        return type(request)(
            request.method, request.url, headers=headers, content=body, extensions=request.extensions
        )
    # To make a request from its parts takes longer than to judge the call.
    sent = object.__new__(type(request))
    sent.__dict__.update(request.__dict__)
    if in_pieces:
        sent.headers = request.headers.copy()
        sent.headers["accept-encoding"] = "identity"
    sent.extensions = dict(request.extensions)
    return sent


_kinds: dict[type, type] = {}
#: Whether a request is under way that lets a block out.
_requesting: contextvars.ContextVar[bool] = contextvars.ContextVar("deadstop_requesting", default=False)


class _Carried(BaseException):
    """A block on its way out of a client."""

    def __init__(self, blocked: DeadstopBlocked) -> None:
        super().__init__(str(blocked))
        self.blocked = blocked


def _plain(blocked: DeadstopBlocked) -> tuple[Any, ...]:
    return DeadstopBlocked, (blocked.args[0], blocked._why)


class _Shared:
    """Marks clients that charge each call to the session that the caller is in."""


SHARED = _Shared()


def share(client: C) -> C:
    """A copy of a client for many sessions at once: each call is charged to the session that the
    caller is in. The original stays as it is.

    For servers: make it once, and open a session for each request.

        client = deadstop.share(openai.AsyncOpenAI())

        async def handle(request):
            with deadstop.session(agent="support", session=request.id, max_cost_usd=0.50):
                return await client.chat.completions.create(...)
    """
    shared = copy_of(client)
    Guarded(None, shared)
    return shared


def already(holder: Any) -> DeadstopError:
    """The error for a second guard on a client."""
    if holder is SHARED:
        return DeadstopError("this client is shared by many sessions; guard the original")
    return DeadstopError(
        f"this client is already guarded by the session {holder.name} of {holder.agent}; call its "
        "restore() first, or use session.guarded(client), which guards a copy"
    )


def copy_of(client: Any) -> Any:
    """A copy of a client that is not guarded and shares its connections."""
    http = http_of(client)
    shell = copy.copy(http)
    shell.__dict__.pop("send", None)
    shell.__class__ = _shell(type(http))
    return shell if http is client else client.with_options(http_client=shell)


_shells: dict[type, type] = {}


def _shell(kind: type) -> type:
    """HTTP clients close their connections when they are collected. A copy must not: they are not its
    own."""
    if getattr(kind, "__deadstop_shell__", False):
        return kind
    if kind not in _shells:
        own = {"__deadstop_shell__": True, "__del__": lambda self: None, "__module__": kind.__module__}
        _shells[kind] = type(kind.__name__, (kind,), own)
    return _shells[kind]


def http_of(client: Any) -> Any:
    """The HTTP client inside a client, or the client itself."""
    for http in (getattr(client, "_client", None), client):
        if http is not None and callable(getattr(http, "send", None)) and hasattr(
            http, "build_request"
        ):
            return http
    raise DeadstopError(
        f"{type(client).__name__} cannot be guarded: pass a client of OpenAI or Anthropic, or an "
        "httpx client; for anything else guard its tools with session.tool"
    )


def is_async(http: Any) -> bool:
    """Whether an HTTP client is used with ``await``."""
    return hasattr(http, "aclose")


def _family(client: Any) -> tuple[str, type | None]:
    """Which API a client speaks, and what it takes for errors of its own."""
    for kind in type(client).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("openai", "anthropic"):
            error = "OpenAIError" if root == "openai" else "AnthropicError"
            return root, getattr(sys.modules.get(root), error, None)
    return "any", None


def _begin(exchange: Exchange, response: Any) -> None:
    exchange.answer(response.status_code, response.headers.raw)


class _Cut:
    """Wakes the code that reads an answer when a stop comes: the connection is shut."""

    def __init__(self, response: Any, stop: Stop) -> None:
        self._stream = response.extensions.get("network_stream")
        self._watch = stop.on_stop(self) if self._stream is not None else None

    def __call__(self) -> None:
        found = self._stream.get_extra_info("socket") if self._stream is not None else None
        if isinstance(found, socket.socket):
            _connections.shut(found)

    def cancel(self) -> None:
        self._stream = None
        if self._watch is not None:
            self._watch.cancel()


_streams: dict[tuple[str, str], type] = {}


def _base(response: Any, name: str) -> type:
    """The class of streams in the package that a response comes from."""
    package = type(response).__module__.partition(".")[0]
    return getattr(sys.modules[package], name)


def _sync_stream(response: Any) -> Callable[..., Any]:
    base = _base(response, "SyncByteStream")
    key = (base.__module__, "sync")
    if key not in _streams:
        _streams[key] = type("GuardedStream", (_SyncStream, base), {})
    kind = _streams[key]

    def make(stream: Any, exchange: Exchange, blocked: Callable[..., Any]) -> Any:
        return kind(stream, exchange, _Cut(response, exchange.stop), blocked)

    return make


def _async_stream(response: Any) -> Callable[..., Any]:
    base = _base(response, "AsyncByteStream")
    key = (base.__module__, "async")
    if key not in _streams:
        _streams[key] = type("GuardedStream", (_AsyncStream, base), {})
    kind = _streams[key]

    def make(stream: Any, exchange: Exchange, blocked: Callable[..., Any]) -> Any:
        return kind(stream, exchange, blocked)

    return make


class _SyncStream:
    """An answer that is judged as it is read."""

    def __init__(self, stream: Any, exchange: Exchange, cut: _Cut, blocked: Any) -> None:
        self._stream, self._exchange, self._cut, self._blocked = stream, exchange, cut, blocked

    def __iter__(self) -> Iterator[bytes]:
        exchange = self._exchange
        try:
            for chunk in self._stream:
                passed = exchange.push(chunk)
                if passed:
                    yield passed
            if exchange.stop.is_stopped:
                # The connection may have been shut: what looks like an end is none.
                raise exchange.cut_off()
            rest = exchange.finish()
            if rest:
                yield rest
        except DeadstopBlocked as blocked:
            raise self._blocked(blocked) from None
        except Exception:
            if exchange.stop.is_stopped:
                raise exchange.cut_off() from None
            exchange.broken()
            raise
        except GeneratorExit:
            # The reader has left; the generator may be collected much later.
            exchange.abandon()
            raise
        finally:
            self._cut.cancel()

    def close(self) -> None:
        self._cut.cancel()
        self._exchange.abandon()
        self._stream.close()


class _AsyncStream:
    """An answer that is judged as it is read, with ``await``."""

    def __init__(self, stream: Any, exchange: Exchange, blocked: Any) -> None:
        self._stream, self._exchange, self._blocked = stream, exchange, blocked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        exchange = self._exchange
        chunks = self._stream.__aiter__()
        try:
            while True:
                chunk = await _stopping.arun(_next(chunks), exchange.stop)
                if chunk is None:
                    break
                passed = await self._judge(exchange.push, chunk)
                if passed:
                    yield passed
            rest = await self._judge(exchange.finish)
            if rest:
                yield rest
        except Stopped:
            raise exchange.cut_off() from None
        except DeadstopBlocked as blocked:
            raise self._blocked(blocked) from None
        except Exception:
            if exchange.stop.is_stopped:
                raise exchange.cut_off() from None
            exchange.broken()
            raise
        except GeneratorExit:
            exchange.abandon()
            raise

    async def _judge(self, judge: Callable[..., bytes], *chunk: bytes) -> bytes:
        if not self._exchange.governed:
            return judge(*chunk)
        import asyncio

        return await asyncio.to_thread(judge, *chunk)

    async def aclose(self) -> None:
        self._exchange.abandon()
        await self._stream.aclose()


async def _next(chunks: Any) -> bytes | None:
    async for chunk in chunks:
        return chunk
    return None
