"""The OpenAI Agents SDK: its client and its tools under one session."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Iterable

if TYPE_CHECKING:
    from ._session import Session


def use(session: Session[Any]) -> None:
    """Makes the session's client (an ``AsyncOpenAI``) the one that all agents use."""
    from agents import set_default_openai_client  # pyright: ignore[reportUnknownVariableType]

    set_default_openai_client(session.client)


def guard_tools(session: Session[Any], tools: Iterable[Any]) -> list[Any]:
    """Guards function tools; others (hosted ones, which run at the provider) stay as they are."""
    return [_guard(session, tool) for tool in tools]


def _guard(session: Session[Any], tool: Any) -> Any:
    original = getattr(tool, "on_invoke_tool", None)
    if original is None or not dataclasses.is_dataclass(tool) or isinstance(tool, type):
        return tool
    name: str = getattr(tool, "name", "tool")

    async def invoke(context: Any, arguments: str) -> Any:
        try:
            read = json.loads(arguments or "{}")
        except ValueError:
            read = {"input": arguments}
        told = read if isinstance(read, dict) else {"input": read}
        return await session.arun_tool(name, told, lambda: original(context, arguments))

    return dataclasses.replace(tool, on_invoke_tool=invoke)
