"""LangChain and LangGraph: models and tools of an agent under one session."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any, Iterable, TypeVar

from ._errors import DeadstopError, DeadstopKilled

if TYPE_CHECKING:
    from ._session import Session

M = TypeVar("M")

#: Where chat models keep the clients that they use.
_CLIENTS = ("root_client", "root_async_client", "_client", "_async_client", "client", "async_client")


def guard_model(session: Session[Any], model: M) -> M:
    """Guards the clients inside a chat model (``ChatOpenAI``, ``ChatAnthropic``), in place."""
    found = False
    for name in _CLIENTS:
        client = getattr(model, name, None)
        # Some hold a resource of a client in place of the client.
        client = getattr(client, "_client", client) if not _is_client(client) else client
        if _is_client(client):
            found = True
            if not session.guards(client):
                session.attach(client)
    if not found:
        raise DeadstopError(
            f"{type(model).__name__} has no client that can be guarded; pass its HTTP client to "
            "session.attach"
        )
    _let_kills_pass(model)
    return model


_kills: contextvars.ContextVar[list[DeadstopKilled]] = contextvars.ContextVar("deadstop_kills")


def _let_kills_pass(model: Any) -> None:
    """Chat models gather what they await, and stumble over what is no ``Exception``: the kill would
    come out as an ``AttributeError``. What was raised inside is raised again outside."""
    generate, inner = getattr(model, "agenerate", None), getattr(model, "_agenerate", None)
    if generate is None or inner is None or "_agenerate" in vars(model):
        return

    async def _agenerate(*args: Any, **kwargs: Any) -> Any:
        try:
            return await inner(*args, **kwargs)
        except DeadstopKilled as killed:
            _kills.get([]).append(killed)
            raise

    async def agenerate(*args: Any, **kwargs: Any) -> Any:
        kills: list[DeadstopKilled] = []
        _kills.set(kills)
        try:
            return await generate(*args, **kwargs)
        except Exception:
            if kills:
                raise kills[0] from None
            raise

    # Models refuse fields that they do not know; these stand beside them.
    object.__setattr__(model, "_agenerate", _agenerate)
    object.__setattr__(model, "agenerate", agenerate)


def guard_tools(session: Session[Any], tools: Iterable[Any]) -> list[Any]:
    """Guards tools: functions, and tools of LangChain, whose functions are guarded in place."""
    guarded: list[Any] = []
    for tool in tools:
        name = getattr(tool, "name", None)
        if name is None and callable(tool):
            guarded.append(session.tool(tool))
            continue
        for field in ("func", "coroutine"):
            work = getattr(tool, field, None)
            if work is not None:
                setattr(tool, field, session.tool(name=name)(work))
        guarded.append(tool)
    return guarded


def _is_client(client: Any) -> bool:
    http = getattr(client, "_client", None)
    return http is not None and hasattr(http, "send") and hasattr(http, "build_request")
