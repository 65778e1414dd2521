"""Sessions and scopes, as users see them."""

from __future__ import annotations

import asyncio
import atexit
import functools
import inspect
import json
import os
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Awaitable, Callable, Generic, Mapping, ParamSpec, TypeVar, cast, overload

from . import _context, _native, _stopping
from ._advice import Advise, advise, advise_error
from ._callbacks import OnSteer, OnTripped, adapt
from ._clients import Guarded, already, copy_of, http_of
from ._context import entered as _entered
from ._errors import DeadstopError, DeadstopKilled
from ._stopping import Stopped

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
T = TypeVar("T")

_LIMITS = (
    "input_token_limit",
    "output_token_limit",
    "total_token_limit",
    "max_cost_usd",
    "max_steps",
    "max_model_calls",
    "max_wall_time_seconds",
)
#: How long a kill waits until the server has it, outside of event loops.
_LASTING = 2.0
_alive: weakref.WeakSet[Session[Any]]


@dataclass(frozen=True)
class Health:
    """How a session is."""

    killed: bool
    """Whether it is over."""
    authority_state: str
    """``active``, ``paused``, ``killed``, or ``unreachable`` while the server is away."""
    status: str
    """``active``, ``degraded`` while the server is away, ``inactive`` once killed or restored."""
    durability: str
    """Where a kill lasts: ``process``, ``pending`` until the server has it, ``server``."""
    server: Mapping[str, Any] | None = None
    """The server: its url, whether it is connected, what waits to be sent, the fail mode."""
    lost_captures: int = 0
    """Captures that could not be written."""


@dataclass(frozen=True)
class Quota:
    """A window of a provider, as its answers report it."""

    provider: str
    """The provider, by the name under which it is called."""
    window: str
    """The window's name: ``5h``, ``7d``, ``primary``, ``requests``."""
    used: float
    """The share that is used."""
    resets_ms: int
    """When it begins anew, in milliseconds since 1970."""


@dataclass(frozen=True)
class State:
    """What a session has used. A kill freezes it: only calls in flight are still booked."""

    agent: str
    session: str
    mode: str
    killed: bool
    kill_reason: str | None
    state_version: int
    forbidden_tools: list[str]
    steps: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float
    reserved_usd: float
    in_flight: int
    scopes: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class Scope:
    """A part of a session, with limits of its own: a sub-agent, a crew, a pipeline.

    Use it with ``with`` or ``async with``, as often as you like and on several threads at once.
    What happens inside is charged to it and to everything above it.
    """

    def __init__(self, session: Session[Any], native: _native.Scope) -> None:
        self._session = session
        self._native = native

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def path(self) -> list[str]:
        """Its names inside the session, the outermost first."""
        return self._native.path

    def set_limits(
        self,
        *,
        input_token_limit: int | None = None,
        output_token_limit: int | None = None,
        total_token_limit: int | None = None,
        max_cost_usd: float | None = None,
        max_steps: int | None = None,
        max_model_calls: int | None = None,
        max_wall_time_seconds: int | None = None,
    ) -> None:
        """Sets limits, also while it is in use; they hold from the next call on. Limits that are not
        given stay; :meth:`clear_limits` removes them."""
        self._native.set_limits(
            _limits(
                input_token_limit,
                output_token_limit,
                total_token_limit,
                max_cost_usd,
                max_steps,
                max_model_calls,
                max_wall_time_seconds,
            )
        )

    def get_limits(self) -> dict[str, Any]:
        """Its limits."""
        return self._native.limits()

    def clear_limits(self, *names: str) -> None:
        """Removes these limits, or all of them."""
        known = {name: limit for name, limit in self._native.limits().items() if limit is not None}
        unknown = [name for name in names if name not in _LIMITS]
        if unknown:
            raise DeadstopError(f"there is no limit `{unknown[0]}`; there are {', '.join(_LIMITS)}")
        kept = {name: limit for name, limit in known.items() if names and name not in names}
        self._native.replace_limits(kept)

    def get_figures(self) -> dict[str, Any]:
        """What it has used."""
        return self._native.figures()

    def on_tripped(self, callback: OnTripped) -> None:
        """Calls a function, sync or async, with a :class:`KillContext` once for each trip in it. It
        cannot prevent anything; what it raises is reported and changes nothing."""
        self._native.on_tripped(adapt(callback))

    def on_steer(self, callback: OnSteer) -> None:
        """Calls a function, sync or async, with a :class:`KillContext` each time the model is steered in
        it: ``context.advice`` is what the model is told. It cannot prevent anything."""
        self._native.on_steer(adapt(callback))

    def kill(self, reason: str = "") -> None:
        """Ends it, for good; what is beside it goes on."""
        self._native.kill(reason)

    def compacted(self) -> None:
        """Tells that the agent's context was compacted: what it forgot it may look up again, so the loop
        guard starts over. A guarded client sees that by itself."""
        self._native.compacted()

    def scope(self, name: str, **limits: Any) -> Scope:
        """A scope inside it: see :meth:`Session.scope`."""
        with self:
            return self._session.scope(name, **limits)

    def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs a function inside it."""
        with self:
            return work(*args, **kwargs)

    def environment(self) -> dict[str, str]:
        """Variables with which another process continues here: see :meth:`Session.environment`."""
        return self._native.environment()

    def __enter__(self) -> Scope:
        _context.inherit()
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        scopes = list(_entered.get())
        for at in range(len(scopes) - 1, -1, -1):
            if scopes[at] is self:
                del scopes[at]
                break
        _entered.set(tuple(scopes))

    async def __aenter__(self) -> Scope:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<deadstop scope {'/'.join(self.path) or self._session.name}>"


class Session(Generic[C]):
    """One run of an agent under guard. Make one with :func:`deadstop.guard`.

    It may be used from any thread and any task. After a fork the child goes on with a copy, from
    what was used by then. Pickling gives the session's address, so it needs a server.
    """

    def __init__(self, native: _native.Session, client: C, base: list[str]) -> None:
        self._native = native
        self._root = native.root()
        for name in base:
            self._root = self._root.scope(name)
        self._guarded: list[Guarded] = []
        self._own = Scope(self, self._root)
        self._client = client
        self._lock = threading.Lock()
        _alive.add(self)
        if client is not None:
            self.attach(client)

    @property
    def client(self) -> C:
        """The client, guarded. Its type and its methods are what they were."""
        return self._client

    @property
    def agent(self) -> str:
        """The agent."""
        return self._native.agent

    @property
    def name(self) -> str:
        """The session's name."""
        return self._native.name

    @property
    def killed(self) -> bool:
        """Whether it is over."""
        return self._native.killed

    def attach(self, client: Any) -> Any:
        """Guards one more client with this session, in place, and gives it back."""
        guarded = Guarded(self, client)
        with self._lock:
            self._guarded.append(guarded)
        return client

    def guarded(self, client: T) -> T:
        """A copy of a client that is guarded with this session. It shares the connections of the
        original, which stays as it is."""
        return cast(T, self.attach(copy_of(client)))

    def guards(self, client: Any) -> bool:
        """Whether a client is guarded by this session."""
        send = http_of(client).__dict__.get("send")
        return getattr(send, "deadstop", None) is self

    def kill(self, reason: str = "") -> None:
        """Ends the session, for good: every later call raises, calls in flight are cut, its state is
        frozen. From any thread, task or signal handler. The first reason stays.

        With a server it waits until the server has the kill, for two seconds at most. Inside an event
        loop it does not wait. A file keeps the kill until the server has it."""
        self._native.kill(reason, 0.0 if _in_loop() else _LASTING)

    def compacted(self) -> None:
        """Tells that the agent's context was compacted: see :meth:`Scope.compacted`."""
        self._own.compacted()

    def restore(self) -> None:
        """Makes the clients what they were. A session that was killed stays dead; to go on, guard
        the client again."""
        with self._lock:
            guarded, self._guarded = self._guarded, []
        for one in guarded:
            one.restore()
        self._native.restore()

    def get_state(self) -> State:
        """What it has used. A kill freezes it: afterwards only calls in flight are still booked."""
        return State(**self._native.state())

    def get_health(self) -> Health:
        """How it is."""
        return Health(**self._native.health())

    def get_quotas(self) -> list[Quota]:
        """The windows that providers have reported to its agent, the fullest first."""
        return [Quota(**window) for window in self._native.quotas()]

    def get_captures(self) -> list[dict[str, Any]]:
        """What happened last, the oldest first: calls by name, verdicts, figures."""
        return self._native.captures()

    def set_policy(self, policy: str | Path | Mapping[str, Any]) -> None:
        """Puts another policy in force, from the next call on."""
        self._native.set_policy(read_policy(policy) or "balanced")

    def on_tripped(self, callback: OnTripped) -> None:
        """Calls a function, sync or async, with a :class:`KillContext` once for each trip: when a guard
        refuses a call or ends a scope. It cannot prevent anything."""
        self._root.on_tripped(adapt(callback))

    def on_steer(self, callback: OnSteer) -> None:
        """Calls a function, sync or async, with a :class:`KillContext` each time the model is steered:
        ``context.advice`` is what the model is told, behind the tool's result or with the next request.
        It cannot prevent anything."""
        self._root.on_steer(adapt(callback))

    def set_limits(self, **limits: Any) -> None:
        """Sets limits of the session itself, beside those of its policy. The others stay."""
        self._own.set_limits(**limits)

    def get_limits(self) -> dict[str, Any]:
        """Limits of the session itself, beside those of its policy."""
        return self._root.limits()

    def clear_limits(self, *names: str) -> None:
        """Removes these limits of the session itself, or all of them."""
        self._own.clear_limits(*names)

    def flush(self, seconds: float = 5.0) -> None:
        """Waits, at most so long, until what happened is at the server and on disk."""
        self._native.flush(seconds)

    def scope(
        self,
        name: str,
        *,
        input_token_limit: int | None = None,
        output_token_limit: int | None = None,
        total_token_limit: int | None = None,
        max_cost_usd: float | None = None,
        max_steps: int | None = None,
        max_model_calls: int | None = None,
        max_wall_time_seconds: int | None = None,
        on_tripped: OnTripped | None = None,
        on_steer: OnSteer | None = None,
    ) -> Scope:
        """A scope inside the one that this thread or task is in.

        The same name in the same place is the same scope: what was spent and seen there stays spent
        and seen. Limits hold for the sum of all that happens inside.
        """
        limits = _limits(
            input_token_limit,
            output_token_limit,
            total_token_limit,
            max_cost_usd,
            max_steps,
            max_model_calls,
            max_wall_time_seconds,
        )
        native = self._scope().scope(name, limits)
        if on_tripped is not None:
            native.on_tripped(adapt(on_tripped))
        if on_steer is not None:
            native.on_steer(adapt(on_steer))
        return Scope(self, native)

    def bind(self, work: Callable[P, R]) -> Callable[P, R]:
        """A function that runs in the scopes that are entered now, on whichever thread it is called.
        Threads and ``ThreadPoolExecutor`` inherit scopes without it; other pools need it."""
        return cast(Callable[P, R], _context.inside(_entered.get(), work))

    def environment(self) -> dict[str, str]:
        """Variables with which another process continues in this scope: its ``deadstop.guard()``
        takes agent, session, scope and server from them."""
        return self._scope().environment()

    def headers(self) -> dict[str, str]:
        """Headers with which a request through the gateway is charged to this scope."""
        scope = self._scope()
        headers = {"x-deadstop-agent": self.agent, "x-deadstop-session": self.name}
        if scope.path:
            headers["x-deadstop-scope"] = "/".join(scope.path)
        return headers

    @overload
    def tool(self, work: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def tool(
        self, /, *, name: str | None = None, server: str | None = None, advise: Advise = ...
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
    def tool(
        self,
        work: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        server: str | None = None,
        advise: Advise = advise,
    ) -> Any:
        """Guards a tool, sync or async: ``@session.tool``, ``@session.tool(name="search")``, or
        ``session.tool(function)``. A call is admitted before it runs and settled by its result. Advice
        for the model stands behind a result that is text, a ``dict`` or content blocks; ``advise``
        puts it elsewhere (see :meth:`run_tool`)."""
        if work is None:
            return functools.partial(_guard_tool, self, name=name, server=server, advise=advise)
        return _guard_tool(self, work, name, server, advise)

    def run_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        work: Callable[[], R],
        *,
        server: str | None = None,
        advise: Advise = advise,
    ) -> R:
        """Admits a tool call, runs it, and settles it: what adapters are made of.

        If a guard steers the model, the advice stands behind the result: ``advise`` puts it there, and
        gives ``None`` for a result that cannot carry it."""
        running = self._scope().tool(name, arguments, server)
        try:
            result = work()
        except Exception as error:
            _advise_failure(running, error)
            raise
        except BaseException:
            _cancel(running)
            raise
        return _advised(running, result, running.end("ok", result), advise)

    async def arun_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        work: Callable[[], Awaitable[R]],
        *,
        server: str | None = None,
        failed: Callable[[R], bool] | None = None,
        advise: Advise = advise,
    ) -> R:
        """The same for one that is awaited; it is cancelled when the session is killed."""
        scope = self._scope()
        if self._native.governed:
            running = await asyncio.to_thread(scope.tool, name, arguments, server)
        else:
            running = scope.tool(name, arguments, server)
        try:
            result = await _stopping.arun(work(), running.stop)
        except Stopped:
            result, status = cast(R, None), "cancelled"
        except Exception as error:
            _advise_failure(running, error)
            raise
        except BaseException:
            _cancel(running)
            raise
        else:
            status = "error" if failed is not None and failed(result) else "ok"
        # Raises if the session was killed meanwhile.
        return _advised(running, result, running.end(status, result), advise)

    def wrap_mcp(self, client_session: Any, server: str | None = None) -> Any:
        """Guards an MCP client session, in place, and gives it back: every ``call_tool`` is
        admitted before it is sent. ``server`` names it for the circuit breaker."""
        from .mcp import wrap

        return wrap(self, client_session, server)

    def _scope(self) -> _native.Scope:
        """The scope that this thread or task is in."""
        for scope in reversed(_entered.get()):
            if scope._session is self:
                return scope._native
        return self._root

    def _before_fork(self) -> Callable[[], None]:
        copy, path = self._native.before_fork(), self._root.path
        return lambda: self._after_fork(copy, path)

    def _after_fork(self, copy: _native.Forked, path: list[str]) -> None:
        native = copy.session()
        if native is None:
            return
        self._native = native
        self._root = self._native.root()
        for name in path:
            self._root = self._root.scope(name)
        self._own._native = self._root
        self._lock = threading.Lock()

    def __enter__(self) -> Session[C]:
        """Makes it the session of this thread or task: shared clients charge their calls to it."""
        self._own.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._own.__exit__(kind, error, trace)
        self.restore()

    async def __aenter__(self) -> Session[C]:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)

    def __reduce__(self) -> tuple[Any, ...]:
        health = self._native.health()
        if health["server"] is None:
            raise TypeError(
                "a deadstop session lives in its process and cannot be pickled; give it a server, "
                "or open another one there"
            )
        address = (self.agent, self.name, health["server"]["url"], self._root.path)
        return _reopen, address

    def __repr__(self) -> str:
        state = "killed" if self.killed else "running"
        return f"<deadstop session {self.name} of {self.agent}: {state}>"


_alive = weakref.WeakSet()


def current_session() -> Session[Any] | None:
    """The session that this thread or task is in: the one of the innermost ``with``."""
    scopes = _entered.get()
    return scopes[-1]._session if scopes else None


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def open_session(
    client: C,
    agent: str | None,
    session: str | None,
    policy: str | Path | Mapping[str, Any] | None,
    mode: str | None,
    server: str | None,
    captures: str | Path | None,
    pricing_table: Mapping[str, tuple[float, float]] | None,
    limits: Mapping[str, Any],
    watch_answers: bool,
) -> Session[C]:
    environment = os.environ
    if client is not None:
        send = http_of(client).__dict__.get("send")
        if getattr(send, "deadstop", None) is not None:
            raise already(send.deadstop)
    named = environment.get("DEADSTOP_SERVER") if server is None else server
    inherited = agent is None or agent == environment.get("DEADSTOP_AGENT")
    base = environment.get("DEADSTOP_SCOPE", "") if inherited and session is None else ""
    native = _native.Session(
        agent or environment.get("DEADSTOP_AGENT") or "agent",
        session or (environment.get("DEADSTOP_SESSION") if inherited else None) or None,
        read_policy(policy),
        mode,
        named or None,
        limits,
        None if captures is None else os.fspath(captures),
        pricing_table,
        watch_answers,
    )
    return Session(native, client, [name for name in base.split("/") if name])


def _reopen(agent: str, name: str, server: str, base: list[str]) -> Session[None]:
    return Session(_native.Session(agent, name, None, None, server), None, base)


def read_policy(policy: str | Path | Mapping[str, Any] | None) -> str | None:
    """A policy as text: a preset's name, a file, a text, or a mapping."""
    if policy is None:
        return None
    if isinstance(policy, Mapping):
        return json.dumps(policy)
    is_file = isinstance(policy, Path) or (
        "\n" not in policy and policy.endswith((".toml", ".yaml", ".yml", ".json"))
    )
    if is_file:
        try:
            return Path(policy).read_text(encoding="utf-8")
        except OSError as error:
            raise DeadstopError(f"cannot read the policy {policy}: {error.strerror}") from error
    return str(policy)


def _limits(*limits: Any) -> dict[str, Any]:
    return {name: limit for name, limit in zip(_LIMITS, limits) if limit is not None}


def _cancel(running: _native.Running) -> None:
    """Settles a call that broke off, while something else is being raised."""
    try:
        running.end("cancelled", None)
    except DeadstopKilled:
        pass


def _advised(running: _native.Running, result: R, note: str | None, put: Advise) -> R:
    """A result with what the model should be told behind it."""
    if note is None:
        return result
    advised = put(result, note)
    if advised is None:
        # A guarded client says it with its next request.
        running.leave()
        return result
    return cast(R, advised)


def _advise_failure(running: _native.Running, error: Exception) -> None:
    """Settles a call that raised; what the model should be told goes with the next request, or else
    with the error."""
    note = running.end("error", _error_text(error))
    if note is not None and not running.leave():
        advise_error(error, note)


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _guard_tool(
    session: Session[Any],
    work: Callable[..., Any],
    name: str | None,
    server: str | None,
    advise: Advise,
) -> Any:
    if getattr(work, "__deadstop_session__", None) is session:
        return work
    # A tool that another session guards is guarded anew: a call is charged to one session.
    work = getattr(work, "__deadstop_original__", work)
    tool = name or getattr(work, "__name__", type(work).__name__)
    names = _parameters(work)

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args:
            return kwargs
        told = dict(zip(names, args))
        if len(args) > len(names):
            told["args"] = list(args[len(names) :])
        told.update(kwargs)
        return told

    if inspect.iscoroutinefunction(work):

        @functools.wraps(work)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            told = arguments(args, kwargs)
            return await session.arun_tool(
                tool, told, lambda: work(*args, **kwargs), server=server, advise=advise
            )

        guarded: Any = awaited

    else:

        @functools.wraps(work)
        def called(*args: Any, **kwargs: Any) -> Any:
            told = arguments(args, kwargs)
            return session.run_tool(
                tool, told, lambda: work(*args, **kwargs), server=server, advise=advise
            )

        guarded = called

    guarded.__deadstop_session__ = session
    guarded.__deadstop_original__ = work
    return guarded


def _parameters(work: Callable[..., Any]) -> list[str]:
    """The names of the arguments that may stand without theirs."""
    try:
        parameters = inspect.signature(work).parameters.values()
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in positional]


def _flush_all() -> None:
    """At the end of the interpreter: sends what waits, for a second at most."""
    for session in list(_alive):
        session._native.flush(1.0)


class _Forks(threading.local):
    """What the child of this thread does first, with copies of the sessions. They are made before the fork:
    another thread may hold a session's lock in that moment, and the child has no such thread to release it."""

    begins: list[Callable[[], None]] = []


_forks = _Forks()


def _before_fork() -> None:
    _forks.begins = [session._before_fork() for session in list(_alive)]


def _after_fork_in_parent() -> None:
    _forks.begins = []


def _after_fork_in_child() -> None:
    _stopping.forget_helpers()
    begins, _forks.begins = _forks.begins, []
    for begin in begins:
        begin()


atexit.register(_flush_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
