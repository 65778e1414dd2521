"""pydantic-ai: the client of a model and the tools of an agent under one session."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._advice import advise

if TYPE_CHECKING:
    from ._session import Session

M = TypeVar("M")


def guard_model(session: Session[Any], model: M) -> M:
    """A copy of a model (``OpenAIChatModel``, ``AnthropicModel``) whose client is guarded. The model
    that was given stays as it is."""
    copied: Any = copy.copy(model)
    if "client" in vars(copied):
        copied.client = session.guarded(copied.client)
        return copied
    provider = copied._provider = copy.copy(copied._provider)
    provider._client = session.guarded(provider.client)
    return copied


def guard_toolset(session: Session[Any], toolset: Any) -> Any:
    """A toolset whose calls are guarded; also one of an MCP server."""
    from pydantic_ai.toolsets import WrapperToolset

    class Guarded(WrapperToolset):  # type: ignore[type-arg,misc]
        async def call_tool(
            self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any
        ) -> Any:
            return await session.arun_tool(
                name,
                tool_args,
                lambda: self.wrapped.call_tool(name, tool_args, ctx, tool),
                advise=_advise,
            )

    return Guarded(toolset)


def _advise(result: Any, note: str) -> Any:
    """A ``ToolReturn`` carries a note with what it returns."""
    missing = object()
    returned: Any = getattr(result, "return_value", missing)
    if returned is missing or not dataclasses.is_dataclass(result):
        return advise(result, note)
    advised = advise(returned, note)
    return None if advised is None else dataclasses.replace(cast(Any, result), return_value=advised)
