"""LangChain and LangGraph: models and tools of an agent under one session."""

from __future__ import annotations

import contextvars
import copy
from typing import TYPE_CHECKING, Any, Iterable, TypeVar, cast

from ._advice import advise
from ._errors import DeadstopError, DeadstopKilled

if TYPE_CHECKING:
    from ._session import Session

M = TypeVar("M")

#: Where chat models keep the clients that they use.
_CLIENTS = ("root_client", "root_async_client", "_client", "_async_client", "client", "async_client")

#: What a guarded model has in place of methods.
_PATCHED = ("_agenerate", "agenerate", "_astream")


def guard_model(session: Session[Any], model: M) -> M:
    """A copy of a chat model (``ChatOpenAI``, ``ChatAnthropic``) whose clients are guarded. The model
    that was given stays as it is."""
    copied: Any = model.model_copy() if hasattr(model, "model_copy") else copy.copy(model)  # type: ignore[attr-defined]
    for name in (*_CLIENTS, *_PATCHED):
        # What an earlier guard or a cached property left behind.
        if name in _PATCHED or name.startswith("_"):
            copied.__dict__.pop(name, None)
    guarded: dict[int, Any] = {}

    def guard(client: Any) -> Any:
        if id(client) not in guarded:
            guarded[id(client)] = session.guarded(client)
        return guarded[id(client)]

    for name in _CLIENTS:
        client = getattr(model, name, None)
        if _is_client(client):
            copied.__dict__[name] = guard(client)
        elif _is_client(getattr(client, "_client", None)):
            # A resource of a client, such as ``client.chat.completions``.
            copied.__dict__[name] = type(client)(guard(client._client))  # type: ignore[union-attr,call-arg]
    if not guarded:
        raise DeadstopError(
            f"{type(model).__name__} has no client that can be guarded; pass its HTTP client to "
            "session.attach"
        )
    _let_kills_pass(copied)
    return copied


_kills: contextvars.ContextVar[list[DeadstopKilled]] = contextvars.ContextVar("deadstop_kills")


def _let_kills_pass(model: Any) -> None:
    """Chat models gather what they await, and stumble over what is no ``Exception``: the kill would
    come out as an ``AttributeError``. What was raised inside is raised again outside."""
    generate, inner = getattr(model, "agenerate", None), getattr(model, "_agenerate", None)
    if generate is None or inner is None:
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
    """Guarded copies of tools: functions, and tools of LangChain. The originals stay as they are."""
    return [_guard_tool(session, tool) for tool in tools]


def _guard_tool(session: Session[Any], tool: Any) -> Any:
    name = getattr(tool, "name", None)
    if name is None and callable(tool):
        return session.tool(tool)
    copied = tool.model_copy() if hasattr(tool, "model_copy") else copy.copy(tool)
    both = getattr(tool, "response_format", "content") == "content_and_artifact"
    guard = session.tool(name=name, advise=_advise_content if both else advise)
    fields = [field for field in ("func", "coroutine") if getattr(tool, field, None) is not None]
    for field in fields:
        setattr(copied, field, guard(getattr(tool, field)))
    if not fields:
        # A class of its own. The usual ``_arun`` calls ``_run``, which is no second call.
        for method in ("_run", "_arun"):
            if not _is_usual(type(tool), method):
                object.__setattr__(copied, method, guard(getattr(tool, method)))
    return copied


def _advise_content(result: Any, note: str) -> Any:
    """A tool that gives content for the model and an artifact for the program."""
    if not isinstance(result, tuple) or len(cast(tuple[Any, ...], result)) != 2:
        return None
    content, artifact = cast(tuple[Any, Any], result)
    advised = advise(content, note)
    return None if advised is None else (advised, artifact)


def _is_usual(kind: type, method: str) -> bool:
    """Whether a tool's class takes a method from LangChain."""
    owner = next((one for one in kind.__mro__ if method in vars(one)), object)
    return owner.__module__.startswith("langchain")


def _is_client(client: Any) -> bool:
    http = getattr(client, "_client", None)
    return http is not None and hasattr(http, "send") and hasattr(http, "build_request")
