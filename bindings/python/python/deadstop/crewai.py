"""CrewAI: the models and the tools of a crew under one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, TypeVar

from .langchain import guard_model

if TYPE_CHECKING:
    from ._session import Session

M = TypeVar("M")


def guard_llm(session: Session[Any], llm: M) -> M:
    """Guards the clients inside an ``LLM`` that speaks to OpenAI or Anthropic by itself, in place."""
    for build in ("_get_sync_client", "_get_async_client"):
        # Some are made when they are first needed.
        make = getattr(llm, build, None)
        if callable(make):
            make()
    return guard_model(session, llm)


def guard_tools(session: Session[Any], tools: Iterable[Any]) -> list[Any]:
    """Guards tools of CrewAI, in place: whatever they run is admitted first."""
    guarded: list[Any] = []
    for tool in tools:
        name: str = getattr(tool, "name", type(tool).__name__)
        # A tool made of a function calls that; others are a method themselves.
        fields = ("func",) if callable(getattr(tool, "func", None)) else ("_run", "_arun")
        for field in fields:
            work = getattr(tool, field, None)
            if callable(work):
                object.__setattr__(tool, field, session.tool(name=name)(work))
        guarded.append(tool)
    return guarded
