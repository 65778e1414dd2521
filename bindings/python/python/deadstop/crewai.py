"""CrewAI: tools of a crew under one session; its models through the client that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable

if TYPE_CHECKING:
    from ._session import Session


def guard_tools(session: Session[Any], tools: Iterable[Any]) -> list[Any]:
    """Guards tools of CrewAI, in place: whatever they run is admitted first."""
    guarded: list[Any] = []
    for tool in tools:
        name = getattr(tool, "name", None)
        for field in ("_run", "_arun", "func"):
            work = getattr(tool, field, None)
            if callable(work):
                object.__setattr__(tool, field, session.tool(name=name)(work))
                break
        guarded.append(tool)
    return guarded
