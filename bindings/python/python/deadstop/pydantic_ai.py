"""pydantic-ai: the client of a model and the tools of an agent under one session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ._session import Session

M = TypeVar("M")


def guard_model(session: Session[Any], model: M) -> M:
    """Guards the client of a model (``OpenAIChatModel``, ``AnthropicModel``), in place."""
    client = getattr(model, "client", None)
    if client is None:
        client = getattr(getattr(model, "_provider", None), "client", None)
    if not session.guards(client):
        session.attach(client)
    return model


def guard_toolset(session: Session[Any], toolset: Any) -> Any:
    """A toolset whose calls are guarded; also one of an MCP server."""
    from pydantic_ai.toolsets import WrapperToolset

    class Guarded(WrapperToolset):  # type: ignore[type-arg,misc]
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any
        ) -> Any:
            return await session.arun_tool(
                name, tool_args, lambda: self.wrapped.call_tool(name, tool_args, ctx, tool)
            )

    return Guarded(toolset)
