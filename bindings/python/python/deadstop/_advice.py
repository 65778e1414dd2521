"""Puts what the model should be told behind a tool's result."""

from __future__ import annotations

from typing import Any, Callable, cast

#: Takes a result and a note; gives the result with the note, or ``None`` if it cannot carry one.
Advise = Callable[[Any, str], Any]

#: The field of a ``dict`` that holds the note.
FIELD = "deadstop_note"


def advise(result: Any, note: str) -> Any:
    """Text, a ``dict``, content blocks and MCP results carry a note. Other values do not: ``None``."""
    if isinstance(result, str):
        return f"{result}\n\n{note}" if result else note
    content = getattr(result, "content", None)
    if isinstance(content, list) and hasattr(result, "model_copy"):
        return _advise_mcp(result, cast(list[Any], content), note)
    if type(result) is dict:
        found = cast(dict[Any, Any], result)
        blocks: Any = found.get("content")
        if _are_blocks(blocks):
            return {**found, "content": [*cast(list[Any], blocks), {"type": "text", "text": note}]}
        return {**found, FIELD: note}
    if _are_blocks(result):
        return [*result, {"type": "text", "text": note}]
    return None


def _are_blocks(value: Any) -> bool:
    """Whether a value is a list of content blocks, as models read them."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(block, dict) and "type" in block for block in cast(list[Any], value))


def _advise_mcp(result: Any, content: list[Any], note: str) -> Any:
    """The result of an MCP server, with one more block of text."""
    try:
        from mcp.types import TextContent
    except ImportError:
        return None
    block = TextContent(type="text", text=note)
    return result.model_copy(update={"content": [*content, block]})


def advise_error(error: Exception, note: str) -> None:
    """Adds a note to the message of an error, which most frameworks show to the model. Where the message
    is made of other parts, the note is added as ``add_note`` does."""
    if len(error.args) == 1 and isinstance(error.args[0], str) and str(error) == error.args[0]:
        error.args = (f"{error.args[0]}\n\n{note}",)
    else:
        # Python 3.11 and later.
        add_note: Any = getattr(error, "add_note", None)
        if add_note is not None:
            add_note(note)
