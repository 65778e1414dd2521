"""CrewAI, in an environment of its own: it wants older versions of much that others use.

That it brings an older OpenAI client, too, is what the second test is for.
"""

from __future__ import annotations

import os

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

import deadstop
import openai
import pytest


def test_a_loop_is_stopped(provider):
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    from deadstop.crewai import guard_llm, guard_tools

    session = deadstop.session(agent="crew", policy={"preset": "strict", "loop": {"threshold": 3}})
    llm = LLM(model="openai/gpt-4o-loop", base_url=provider + "/v1", api_key="k")
    guard_llm(session, llm)
    ran = []

    @tool("get_weather")
    def get_weather(city: str, days: int) -> str:
        """The weather in a city."""
        ran.append(city)
        return "it rains"

    agent = Agent(
        role="Forecaster",
        goal="Tell the weather",
        backstory="You look out of the window.",
        llm=llm,
        tools=guard_tools(session, [get_weather]),
        max_iter=20,
        cache=False,
    )
    task = Task(description="How is the weather?", expected_output="A sentence.", agent=agent)
    with pytest.raises(deadstop.DeadstopKilled) as caught:
        Crew(agents=[agent], tasks=[task], cache=False).kickoff()
    assert caught.value.guard in ("loop", "killed")
    state = session.get_state()
    assert state.killed and 1 <= len(ran) <= state.steps <= 3
    session.restore()


def test_an_older_client_does_not_retry_either(openai_client):
    told = []
    policy = {"access": {"deny": ["get_weather"]}, "strikes": {"enabled": False}}
    session = deadstop.guard(openai_client, agent="a", policy=policy, on_tripped=told.append)
    ask = {"messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(deadstop.DeadstopBlocked, match="get_weather") as caught:
        session.client.chat.completions.create(model="gpt-4o-tool", **ask)
    assert isinstance(caught.value, openai.OpenAIError) and len(told) == 1
    assert session.client.chat.completions.create(model="gpt-4o-plain", **ask).choices
    session.kill("enough")
    with pytest.raises(deadstop.DeadstopKilled):
        session.client.chat.completions.create(model="gpt-4o-plain", **ask)
    session.restore()
