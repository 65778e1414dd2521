"""One agent of one framework, with one tool, in a process of its own: `loops.py FRAMEWORK`.

BASE is the base URL of the model, MODEL its name. What the agent says, or the error that ends it, goes to
stdout; the exit code is 1 if an error ended it. The tool asks for a build that does not exist, or in a
healthy run for several that do.
"""

import asyncio
import os
import sys

BASE, MODEL, KEY = os.environ["BASE"], "gpt-4o", "stand-in"
HEALTHY = os.environ.get("HEALTHY") == "1"
TASK = "Which of the builds failed?"
#: More steps than any run here should take.
MOST = 60


def get_build(number: str) -> str:
    """Reads the log of a build.

    Args:
        number: the build's number
    """
    print(f"tool: build {number}", flush=True)
    return f"build {number} passed" if HEALTHY else "error: no such build"


def openai_agents():
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel(model=MODEL, openai_client=AsyncOpenAI(base_url=BASE, api_key=KEY))
    agent = Agent(name="a", model=model, tools=[function_tool(get_build)])
    return Runner.run_sync(agent, TASK, max_turns=MOST).final_output


def pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    agent = Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE, api_key=KEY)), tools=[get_build])
    return agent.run_sync(TASK).output


def langgraph():
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent
    agent = create_react_agent(ChatOpenAI(model=MODEL, base_url=BASE, api_key=KEY), [get_build])
    return agent.invoke({"messages": [("user", TASK)]}, {"recursion_limit": 2 * MOST})["messages"][-1].content


def langchain():
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI
    agent = create_agent(ChatOpenAI(model=MODEL, base_url=BASE, api_key=KEY), [get_build])
    return agent.invoke({"messages": [("user", TASK)]}, {"recursion_limit": 2 * MOST})["messages"][-1].content


def smolagents():
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool
    model = OpenAIServerModel(model_id=MODEL, api_base=BASE, api_key=KEY)
    return ToolCallingAgent(tools=[tool(get_build)], model=model, max_steps=MOST).run(TASK)


def dspy():
    import dspy
    dspy.configure(lm=dspy.LM(f"openai/{MODEL}", api_base=BASE, api_key=KEY, cache=False))
    return dspy.ReAct("question -> answer", tools=[get_build], max_iters=MOST)(question=TASK).answer


def mini_swe_agent():
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models.litellm_model import LitellmModel
    model = LitellmModel(model_name=f"openai/{MODEL}", model_kwargs={"api_base": BASE, "api_key": KEY})
    agent = DefaultAgent(model, LocalEnvironment(), system_template="Use bash.", instance_template="{{task}}",
                         step_limit=MOST, cost_limit=50)
    return agent.run(TASK)


def litellm():
    import json
    import litellm
    parameters = {"type": "object", "properties": {"number": {"type": "string"}}, "required": ["number"]}
    tools = [{"type": "function", "function": {"name": "get_build", "parameters": parameters}}]
    messages = [{"role": "user", "content": TASK}]
    for _ in range(MOST):
        said = litellm.completion(f"openai/{MODEL}", messages, api_base=BASE, api_key=KEY, tools=tools).choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return said.content
        for call in said.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id,
                             "content": get_build(**json.loads(call.function.arguments))})
    return "no end"


def instructor():
    import instructor
    from openai import OpenAI
    from pydantic import BaseModel

    class Build(BaseModel):
        number: int

    client = instructor.from_openai(OpenAI(base_url=BASE, api_key=KEY))
    messages = [{"role": "user", "content": TASK}]
    for _ in range(MOST if not HEALTHY else 3):
        client.chat.completions.create(model=MODEL, response_model=Build, messages=messages, max_retries=5)
    return "read"


def strands():
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel
    model = OpenAIModel(client_args={"base_url": BASE, "api_key": KEY}, model_id=MODEL)
    return str(Agent(model=model, tools=[tool(get_build)], callback_handler=None)(TASK))


def haystack():
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import create_tool_from_function
    from haystack.utils import Secret
    generator = OpenAIChatGenerator(model=MODEL, api_base_url=BASE, api_key=Secret.from_token(KEY))
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(get_build)], max_agent_steps=MOST)
    return agent.run(messages=[ChatMessage.from_user(TASK)])["messages"][-1].text


def google_adk():
    from google.adk.agents import Agent
    from google.adk.models.lite_llm import LiteLlm
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    async def run():
        model = LiteLlm(model=f"openai/{MODEL}", api_base=BASE, api_key=KEY)
        runner = InMemoryRunner(Agent(name="a", model=model, tools=[get_build]), app_name="a")
        session = await runner.session_service.create_session(app_name="a", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text=TASK)])
        text = ""
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            text = "".join(part.text or "" for part in event.content.parts) if event.content else text
        return text
    return asyncio.run(run())


def llama_index():
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai import OpenAI
    agent = FunctionAgent(tools=[get_build], llm=OpenAI(model=MODEL, api_base=BASE, api_key=KEY), timeout=60)

    async def run():
        return str(await agent.run(TASK, max_iterations=MOST))
    return asyncio.run(run())


def autogen():
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient
    model = OpenAIChatCompletionClient(model=MODEL, base_url=BASE, api_key=KEY)
    agent = AssistantAgent("a", model_client=model, tools=[get_build], max_tool_iterations=MOST, reflect_on_tool_use=True)
    return asyncio.run(agent.run(task=TASK)).messages[-1].content


def ag2():
    from ag2 import Agent
    from ag2.config import OpenAIConfig
    config = OpenAIConfig(model=MODEL, base_url=BASE, api_key=KEY)

    async def run():
        return (await Agent("a", "Answer.", config=config, tools=[get_build]).ask(TASK)).body
    return asyncio.run(run())


def agno():
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat
    model = OpenAIChat(id=MODEL, base_url=BASE, api_key=KEY)
    said = Agent(model=model, tools=[get_build], telemetry=False).run(TASK)
    if str(said.status).endswith("error"):
        raise RuntimeError(said.content)
    return said.content


def semantic_kernel():
    from openai import AsyncOpenAI
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    class Builds:
        @kernel_function(name="get_build", description="Reads the log of a build")
        def get_build(self, number: str) -> str:
            return get_build(number)

    async def run():
        service = OpenAIChatCompletion(ai_model_id=MODEL, async_client=AsyncOpenAI(base_url=BASE, api_key=KEY))
        agent = ChatCompletionAgent(kernel=Kernel(), service=service, name="a", plugins=[Builds()])
        return str(await agent.get_response(messages=TASK))
    return asyncio.run(run())


def crewai():
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool
    # As docs/frameworks.md advises: a failed task would begin anew, twice.
    agent = Agent(role="r", goal="g", backstory="b", tools=[tool("get_build")(get_build)], max_iter=MOST,
                  max_retry_limit=0, llm=LLM(model=f"openai/{MODEL}", base_url=BASE, api_key=KEY))
    return str(Crew(agents=[agent], tasks=[Task(description=TASK, expected_output="a number", agent=agent)]).kickoff())


if __name__ == "__main__":
    try:
        print("said:", globals()[sys.argv[1].replace("-", "_")]())
    except Exception as error:
        print(f"error: {type(error).__name__}: {error}")
        # Some have threads that go on.
        sys.stdout.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)
