"""Brings a runaway AI agent to a dead stop, inside its own process.

    import deadstop, openai

    session = deadstop.guard(openai.OpenAI(), agent="researcher", policy="strict")
    session.client.chat.completions.create(model="gpt-4o", messages=[...])   # as before
    session.kill("that is enough")                                           # from anywhere
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Mapping, TypeVar

from ._clients import share
from ._errors import DeadstopBlocked, DeadstopError, DeadstopKilled, KillContext, Trip
from ._native import __version__
from ._session import Health, OnSteer, OnTripped, Quota, Scope, Session, State, current_session, open_session

C = TypeVar("C")

__all__ = [
    "DeadstopBlocked",
    "DeadstopError",
    "DeadstopKilled",
    "Health",
    "Quota",
    "KillContext",
    "OnSteer",
    "OnTripped",
    "Scope",
    "Session",
    "State",
    "Trip",
    "__version__",
    "current_session",
    "guard",
    "session",
    "share",
]


def guard(
    client: C,
    *,
    agent: str | None = None,
    session: str | None = None,
    policy: str | Path | Mapping[str, Any] | None = None,
    mode: Literal["enforce", "log-only"] | None = None,
    server: str | None = None,
    on_tripped: OnTripped | None = None,
    on_steer: OnSteer | None = None,
    captures: str | Path | None = None,
    pricing_table: Mapping[str, tuple[float, float]] | None = None,
    watch_answers: bool = True,
    input_token_limit: int | None = None,
    output_token_limit: int | None = None,
    total_token_limit: int | None = None,
    max_cost_usd: float | None = None,
    max_steps: int | None = None,
    max_model_calls: int | None = None,
    max_wall_time_seconds: int | None = None,
) -> Session[C]:
    """Puts a client of OpenAI or Anthropic (sync or async), or an httpx client, under guard.

    :param agent: Who is running; from ``DEADSTOP_AGENT`` if not given.
    :param session: This run's name; from ``DEADSTOP_SESSION``, or made up.
    :param policy: A preset (``observe``, ``balanced``, ``strict``), a file, a text, or a mapping.
    :param mode: ``enforce``, or ``log-only``: trips are told and nothing is refused.
    :param server: A Deadstop server that governs the session; from ``DEADSTOP_SERVER``, or none.
        ``""`` is none, also if the environment names one. Its policy then replaces ``policy``.
    :param on_tripped: A function, sync or async, that is called with a :class:`KillContext` once for
        each trip: when a guard refuses a call or ends a scope. It cannot prevent anything.
    :param on_steer: The same for each time the model is steered: ``context.advice`` is what it is told.
    :param captures: A file that gets a line for everything that happens.
    :param pricing_table: Dollars per million tokens, in and out, of models of your own.
    :param watch_answers: Whether tool calls are judged when an answer asks for them.

    Limits are those of the session in this process, beside the policy's. Limits for all processes
    belong into the server's policy. The client is guarded in place, and is ``session.client``; a
    second guard on it is an error until ``session.restore()``.
    """
    limits = {
        name: value
        for name, value in (
            ("input_token_limit", input_token_limit),
            ("output_token_limit", output_token_limit),
            ("total_token_limit", total_token_limit),
            ("max_cost_usd", max_cost_usd),
            ("max_steps", max_steps),
            ("max_model_calls", max_model_calls),
            ("max_wall_time_seconds", max_wall_time_seconds),
        )
        if value is not None
    }
    opened = open_session(
        client,
        agent,
        session,
        policy,
        mode,
        server,
        captures,
        pricing_table,
        limits,
        watch_answers,
    )
    if on_tripped is not None:
        opened.on_tripped(on_tripped)
    if on_steer is not None:
        opened.on_steer(on_steer)
    return opened


def session(**options: Any) -> Session[None]:
    """A session without a client, for tools alone or for clients that are attached later. Takes
    what :func:`guard` takes."""
    return guard(None, **options)
