"""MCP: every tool call of a client session is admitted before it is sent."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ._errors import DeadstopError

if TYPE_CHECKING:
    from ._session import Session


def wrap(session: Session[Any], client_session: Any, server: str | None = None) -> Any:
    """Guards an MCP client session, in place, and gives it back.

    A result that says ``isError`` counts as an error. ``server`` names the MCP server for the
    circuit breaker.
    """
    original = getattr(client_session, "call_tool", None)
    if original is None:
        raise DeadstopError(f"{type(client_session).__name__} has no call_tool: no MCP session?")
    if getattr(original, "__deadstop_session__", None) is not None:
        raise DeadstopError("this MCP session is already guarded")

    @functools.wraps(original)
    async def call_tool(name: str, arguments: dict[str, Any] | None = None, *args: Any, **more: Any) -> Any:
        return await session.arun_tool(
            name,
            arguments or {},
            lambda: original(name, arguments, *args, **more),
            server=server,
            failed=_failed,
        )

    call_tool.__deadstop_session__ = session  # type: ignore[attr-defined]
    client_session.call_tool = call_tool
    return client_session


def _failed(result: Any) -> bool:
    return bool(getattr(result, "isError", getattr(result, "is_error", False)))
