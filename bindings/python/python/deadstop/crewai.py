"""CrewAI: the models and the tools of a crew under one session."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterable, TypeVar

from ._errors import DeadstopError

if TYPE_CHECKING:
    from ._session import Session

M = TypeVar("M")


def guard_llm(session: Session[Any], llm: M) -> M:
    """Guards both clients of an ``LLM`` that speaks to OpenAI or Anthropic, in place."""
    found = False
    for make in ("_get_sync_client", "_get_async_client"):
        # They are made when they are first needed.
        client = getattr(llm, make, lambda: None)()
        if client is not None:
            found = True
            if not session.guards(client):
                session.attach(client)
    if not found:
        raise DeadstopError(
            f"{type(llm).__name__} has no client that can be guarded; send its calls through the "
            "gateway with base_url and session.headers()"
        )
    return llm


def guard_tools(session: Session[Any], tools: Iterable[Any]) -> list[Any]:
    """Guarded copies of tools: those made with ``@tool`` and objects of a ``BaseTool``. The originals
    stay as they are."""
    from crewai.utilities.string_utils import sanitize_tool_name

    guarded: list[Any] = []
    for tool in tools:
        tool = tool.model_copy()
        # A model asks for a tool by this name, and a call counts once.
        name = sanitize_tool_name(tool.name)
        # What is made with ``@tool`` has one function for all; a class has its methods.
        fields = ("func",) if hasattr(tool, "func") else ("_run", "_arun")
        for field in fields:
            work = getattr(tool, field, None)
            if work is not None:
                # Models refuse fields that they do not know; this stands beside them.
                object.__setattr__(tool, field, _guard(session, tool, name, work))
        guarded.append(tool)
    return guarded


#: The tools that run here, the innermost last.
_running: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("deadstop_crew", default=())


def _guard(session: Session[Any], tool: Any, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """Guards one method of a tool. Often one of them calls the other, which is no second call."""
    if getattr(work, "__deadstop_session__", None) is session:
        return work
    work = getattr(work, "__deadstop_original__", work)
    me, guard = id(tool), session.tool(name=name)

    if inspect.iscoroutinefunction(work):

        @guard
        @functools.wraps(work)
        async def judged(*args: Any, **kwargs: Any) -> Any:
            with _inside(me):
                return await work(*args, **kwargs)

        @functools.wraps(judged)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await (work if me in _running.get() else judged)(*args, **kwargs)

        awaited.__deadstop_original__ = work  # type: ignore[attr-defined]
        return awaited

    @guard
    @functools.wraps(work)
    def judged_now(*args: Any, **kwargs: Any) -> Any:
        with _inside(me):
            return work(*args, **kwargs)

    @functools.wraps(judged_now)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (work if me in _running.get() else judged_now)(*args, **kwargs)

    called.__deadstop_original__ = work  # type: ignore[attr-defined]
    return called


@contextlib.contextmanager
def _inside(tool: int) -> Generator[None, None, None]:
    token = _running.set((*_running.get(), tool))
    try:
        yield
    finally:
        _running.reset(token)
