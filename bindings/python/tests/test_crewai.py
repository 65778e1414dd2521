"""CrewAI, the real one, with a stand-in provider. It has an environment of its own: see `check`."""

from __future__ import annotations

import asyncio
import os
import threading

import deadstop
import pytest
from conftest import eventually

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")

import crewai  # noqa: E402
from crewai.tools import BaseTool, tool  # noqa: E402

from deadstop.crewai import guard_llm, guard_tools  # noqa: E402

PATIENT = {"preset": "strict", "loop": {"threshold": 3}}


@pytest.fixture(autouse=True)
def a_home_of_its_own(tmp_path, monkeypatch):
    """CrewAI keeps files in the user's folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crew"))


@pytest.fixture
def made(provider):
    """A session, the cities that its tool was asked for, and a way to make a crew."""
    session = deadstop.session(agent="crew", policy=PATIENT)
    ran: list[str] = []

    @tool("Get Weather")
    def get_weather(city: str, days: int) -> str:
        """The weather in a city."""
        ran.append(city)
        return "it rains"

    def crew(model: str = "gpt-4o-loop", tools: list | None = None) -> crewai.Crew:
        llm = crewai.LLM(model="openai/" + model, api_key="k", base_url=provider + "/v1")
        guard_llm(session, llm)
        guard_llm(session, llm)  # once more does no harm
        found = guard_tools(session, [get_weather] if tools is None else tools)
        agent = crewai.Agent(role="r", goal="g", backstory="b", llm=llm, tools=guard_tools(session, found))
        task = crewai.Task(description="How is the weather?", expected_output="weather", agent=agent)
        return crewai.Crew(agents=[agent], tasks=[task])

    yield session, ran, crew
    session.restore()


def test_a_loop_is_stopped(made):
    session, ran, crew = made
    with pytest.raises(deadstop.DeadstopKilled) as caught:
        crew().kickoff()
    assert caught.value.guard == "loop"
    state = session.get_state()
    assert state.killed and len(ran) == state.steps <= 3, "a call counts once"


def test_async_and_in_a_scope(made):
    session, ran, crew = made

    async def main():
        async with session.scope("crew", max_steps=1):
            await crew().kickoff_async()

    with pytest.raises(deadstop.DeadstopKilled) as caught:
        asyncio.run(main())
    assert caught.value.context.path[-1] == "crew" and len(ran) == 1


def test_what_is_harmless_passes(made):
    session, ran, crew = made
    done = crew("gpt-4o-plain", []).kickoff()
    assert "quick brown" in done.raw and not session.killed
    assert session.get_state().model_calls >= 1 and not ran


def test_a_kill_from_elsewhere_ends_a_crew_that_waits(made):
    session, _, crew = made
    waiting = crew("gpt-4o-endless", [])

    def kill_once_it_waits() -> None:
        eventually(lambda: session.get_state().in_flight > 0, 60)
        session.kill("enough")

    killer = threading.Thread(target=kill_once_it_waits, daemon=True)
    killer.start()
    with pytest.raises(deadstop.DeadstopKilled, match="enough"):
        waiting.kickoff()
    killer.join()
    with pytest.raises(deadstop.DeadstopKilled):
        waiting.kickoff()


def test_a_tool_whose_methods_call_each_other_counts_once(made):
    session, _, _ = made

    class Search(BaseTool):
        name: str = "Search"
        description: str = "Searches."

        def _run(self, query: str) -> str:
            return f"found {query}"

        async def _arun(self, query: str) -> str:
            return self._run(query)

    [search] = guard_tools(session, [Search()])
    assert search.run(query="a") == "found a"
    assert asyncio.run(search.arun(query="b")) == "found b"
    assert search.to_structured_tool().invoke({"query": "c"}) == "found c"
    assert session.get_state().steps == 3
    session.kill("enough")
    for run in (lambda: search.run(query="d"), lambda: asyncio.run(search.arun(query="e"))):
        with pytest.raises(deadstop.DeadstopKilled):
            run()


def test_what_has_no_client_is_a_clear_error(made):
    session, _, _ = made
    with pytest.raises(deadstop.DeadstopError, match="no client that can be guarded"):
        guard_llm(session, object())
