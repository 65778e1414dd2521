"""A LangChain agent that keeps calling one tool, instrumented by OpenInference or by OpenLLMetry. It speaks to its
provider directly; what Deadstop sees of it is its telemetry. `chain.py openinference|openllmetry PROVIDER SESSION STEPS`; where
to send comes from OTEL_* variables, as in any program."""

import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

emitter, provider, session, steps = sys.argv[1:]
traces = TracerProvider()
traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
if emitter == "openinference":
    from openinference.instrumentation.langchain import LangChainInstrumentor
else:
    from opentelemetry.instrumentation.langchain import LangchainInstrumentor as LangChainInstrumentor
LangChainInstrumentor().instrument(tracer_provider=traces)


@tool
def get_weather(city: str, days: int) -> str:
    """The weather in a city."""
    return "rain"


model = ChatOpenAI(model="gpt-4o-loop", base_url=f"{provider}/v1", api_key="sk-x", max_retries=0)
agent = create_agent(model, [get_weather], name="planner")
try:
    agent.invoke({"messages": [("user", "How is the weather?")]},
                 {"recursion_limit": 2 * int(steps), "metadata": {"session_id": session}})
except GraphRecursionError:
    pass  # As many steps as were asked for.
traces.shutdown()
