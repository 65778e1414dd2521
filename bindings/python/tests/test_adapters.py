"""Adapters, each with the real framework and a stand-in provider."""

from __future__ import annotations

import asyncio

import deadstop
import httpx
import pytest

PATIENT = {"preset": "strict", "loop": {"threshold": 3}}


def weather(city: str, days: int) -> str:
    """The weather in a city."""
    return "it rains"


class TestLangChain:
    @pytest.fixture
    def made(self, provider):
        from langchain.agents import create_agent
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI

        from deadstop.langchain import guard_model, guard_tools

        session = deadstop.session(agent="langchain", policy=PATIENT)
        # LangChain's own async client would be shared by the event loops of all tests.
        model = ChatOpenAI(
            model="gpt-4o-loop", api_key="k", base_url=provider + "/v1", max_retries=3,
            http_async_client=httpx.AsyncClient(),
        )
        model = guard_model(session, guard_model(session, model))  # twice does no harm
        ran = []

        @tool
        def get_weather(city: str, days: int) -> str:
            """The weather in a city."""
            ran.append(city)
            return weather(city, days)

        [get_weather] = guard_tools(session, [get_weather])
        yield session, model, create_agent(model, [get_weather]), ran
        session.restore()

    def test_a_loop_is_stopped(self, made):
        session, _, agent, ran = made
        with pytest.raises(deadstop.DeadstopKilled) as caught:
            agent.invoke({"messages": [("user", "How is the weather?")]})
        assert caught.value.guard == "loop"
        state = session.get_state()
        assert state.killed and len(ran) == state.steps <= 3, "a call counts once"

    def test_async_and_in_a_scope(self, made):
        session, _, agent, ran = made

        async def main():
            async with session.scope("crew", max_steps=1):
                await agent.ainvoke({"messages": [("user", "How is the weather?")]})

        with pytest.raises(deadstop.DeadstopKilled) as caught:
            asyncio.run(main())
        assert caught.value.context.path[-1] == "crew" and len(ran) == 1

    def test_retries_do_not_swallow_it(self, made):
        session, model, _, _ = made
        session.kill("STOP")
        stubborn = model.with_retry(stop_after_attempt=5).with_fallbacks([model])
        with pytest.raises(deadstop.DeadstopKilled):
            stubborn.invoke("hello")
        assert sum(c["what"] == "refused" for c in session.get_captures()) == 1

    def test_a_graph(self, made):
        from langgraph.graph import END, START, MessagesState, StateGraph

        session, model, _, _ = made

        def think(state: MessagesState):
            return {"messages": [model.invoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("think", think)
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", lambda _: "think", ["think", END])
        session.set_limits(max_model_calls=2)
        with pytest.raises(deadstop.DeadstopKilled, match="all 2 model calls"):
            graph.compile().invoke({"messages": [("user", "hi")]}, {"recursion_limit": 50})


    def test_sessions_do_not_share_models_or_tools(self, provider):
        """Tools were once wrapped in place: 300 sessions later that was a RecursionError."""
        from langchain_core.tools import BaseTool, tool
        from langchain_openai import ChatOpenAI

        from deadstop.langchain import guard_model, guard_tools

        @tool
        def look(n: int) -> str:
            """Looks."""
            return f"seen {n}"

        class Listen(BaseTool):
            name: str = "listen"
            description: str = "Listens."

            def _run(self, n: int) -> str:
                return f"heard {n}"

        def chat():
            return ChatOpenAI(model="gpt-4o-plain", api_key="k", base_url=provider + "/v1", max_retries=0)

        first, second = deadstop.session(agent="a"), deadstop.session(agent="b")
        # Two chat models share one HTTP client inside LangChain.
        one, two, plain = guard_model(first, chat()), guard_model(second, chat()), chat()
        tools, others = guard_tools(first, [look, Listen()]), guard_tools(second, [look, Listen()])
        assert tools[0] is not look
        first.kill("enough")
        with pytest.raises(deadstop.DeadstopKilled):
            one.invoke("hi")
        for guarded in tools:
            with pytest.raises(deadstop.DeadstopKilled):
                guarded.invoke({"n": 1})
        assert two.invoke("hi").content and plain.invoke("hi").content
        assert [guarded.invoke({"n": 1}) for guarded in others] == ["seen 1", "heard 1"]
        assert (second.get_state().steps, second.get_state().model_calls) == (2, 1)
        assert look.invoke({"n": 2}) == "seen 2"
        again = look
        for n in range(400):
            session = deadstop.session(agent="a")
            [again] = guard_tools(session, [again])
        assert again.invoke({"n": 3}) == "seen 3" and session.get_state().steps == 1

    @pytest.mark.parametrize("how", ["ainvoke", "astream", "agenerate", "astream_events", "stream", "batch"])
    def test_the_kill_comes_out_of_every_way_to_call(self, made, how):
        from langchain_core.messages import HumanMessage

        session, model, _, _ = made
        session.kill("STOP")

        async def called():
            if how == "agenerate":
                return await model.agenerate([[HumanMessage("hi")]])
            result = getattr(model, how)("hi")
            return await result if how == "ainvoke" else [chunk async for chunk in result]

        with pytest.raises(deadstop.DeadstopKilled, match="STOP"):
            if how == "stream":
                list(model.stream("hi"))
            elif how == "batch":
                model.batch(["hi", "ho"])
            else:
                asyncio.run(called())

    @pytest.mark.parametrize("when", ["before", "within"])
    def test_a_stream_that_is_killed(self, made, when):
        session, model, _, _ = made
        model.model_name = "gpt-4o-endless"

        async def main():
            async for _ in model.astream("hi"):
                session.kill("STOP")

        if when == "before":
            session.set_limits(max_model_calls=1)
            model.model_name = "gpt-4o-plain"
            model.invoke("hi")
        with pytest.raises(deadstop.DeadstopKilled):
            asyncio.run(main())


class TestOpenAIAgents:
    @pytest.mark.parametrize("kind", ["chat", "responses"])
    def test_a_loop_is_stopped(self, async_client, kind):
        import agents
        from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
        from agents.models.openai_responses import OpenAIResponsesModel

        from deadstop.openai_agents import guard_tools, use

        session = deadstop.guard(async_client, agent="agents", policy=PATIENT)
        use(session)
        ran = []

        @agents.function_tool
        def get_weather(city: str, days: int) -> str:
            """The weather in a city."""
            ran.append(city)
            return weather(city, days)

        model = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[kind]
        agent = agents.Agent(
            name="a",
            instructions="Look.",
            model=model("gpt-4o-loop", openai_client=session.client),
            tools=guard_tools(session, [get_weather]),
        )
        with pytest.raises(deadstop.DeadstopKilled) as caught:
            asyncio.run(agents.Runner.run(agent, "How is the weather?", max_turns=20))
        assert caught.value.guard == "loop"
        assert len(ran) == session.get_state().steps <= 3
        session.restore()


class TestPydanticAI:
    def test_a_loop_is_stopped(self, async_client):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        from pydantic_ai.toolsets import FunctionToolset

        from deadstop.pydantic_ai import guard_model, guard_toolset

        session = deadstop.session(agent="pydantic", policy=PATIENT)
        model = OpenAIChatModel("gpt-4o-loop", provider=OpenAIProvider(openai_client=async_client))
        ran = []

        def get_weather(city: str, days: int) -> str:
            """The weather in a city."""
            ran.append(city)
            return weather(city, days)

        tools = guard_toolset(session, FunctionToolset([get_weather]))
        agent = Agent(guard_model(session, model), toolsets=[tools])
        with pytest.raises(deadstop.DeadstopKilled) as caught:
            agent.run_sync("How is the weather?")
        assert caught.value.guard == "loop"
        assert len(ran) == session.get_state().steps <= 3
        session.restore()


class TestMcp:
    def test_calls_are_admitted_and_errors_count(self):
        from mcp import Client
        from mcp.server import MCPServer

        server = MCPServer("files")

        @server.tool()
        def read(path: str) -> str:
            """Reads a file."""
            return f"text of {path}"

        @server.tool()
        def broken() -> str:
            """Fails."""
            raise ValueError("disk on fire")

        session = deadstop.session(
            agent="mcp",
            policy={"breaker": {"open_after_failures": 2}, "steps": {"max_steps": 5}},
        )

        async def main():
            async with Client(server) as client:
                session.wrap_mcp(client, server="files")
                with pytest.raises(deadstop.DeadstopError, match="already guarded"):
                    session.wrap_mcp(client)
                result = await client.call_tool("read", {"path": "a"})
                assert result.content[0].text == "text of a"
                for _ in range(2):
                    assert (await client.call_tool("broken", {})).is_error
                with pytest.raises(deadstop.DeadstopBlocked) as caught:
                    await client.call_tool("read", {"path": "b"})
                assert caught.value.guard == "breaker"
                session.kill("enough")
                with pytest.raises(deadstop.DeadstopKilled):
                    await client.call_tool("read", {"path": "c"})

        asyncio.run(main())
        assert session.get_state().steps == 3
