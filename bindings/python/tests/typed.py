"""What pyright must see: guarding changes no types. Checked, not run."""

from __future__ import annotations

import openai
from typing_extensions import assert_type

import deadstop

session = deadstop.guard(openai.OpenAI(), agent="a", policy={"preset": "strict"}, mode="log-only")
assert_type(session, deadstop.Session[openai.OpenAI])
assert_type(session.client, openai.OpenAI)
assert_type(session.get_health().durability, str)
assert_type(session.get_state().cost_usd, float)


@session.tool
def add(a: int, b: int) -> int:
    return a + b


@session.tool(name="later")
async def later(text: str) -> str:
    return text


assert_type(add(1, 2), int)
add("1", 2)  # pyright: ignore[reportArgumentType]


async def main() -> None:
    assert_type(await later("x"), str)
    async with session.scope("crew", max_cost_usd=1.0, on_tripped=lambda trip: print(trip.reason)):
        pass
    try:
        add(1, 2)
    except deadstop.DeadstopKilled as killed:
        assert_type(killed.context.accumulated_input_tokens, int)
