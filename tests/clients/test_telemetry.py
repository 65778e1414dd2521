"""Telemetry as a door, with real emitters: the OpenTelemetry SDK with the instrumentations of OpenInference and of
OpenLLMetry. The agent speaks to its provider directly; Deadstop sees its spans only."""

import json
import os
import urllib.request

import openai
import pytest
from openinference.instrumentation.openai import OpenAIInstrumentor as OpenInference
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.openai import OpenAIInstrumentor as OpenLLMetry
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from gateway import Gateway

EMITTERS = {"openinference": OpenInference, "openllmetry": OpenLLMetry}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    folder = tmp_path_factory.mktemp("telemetry")
    policy = folder / "policy.toml"
    policy.write_text('preset = "strict"\n')
    gateway = Gateway(os.environ["DEADSTOP_BIN"], folder, os.environ["STANDIN"], "strict", policy=policy)
    yield gateway.url
    assert gateway.stop()


def provider(url, service, compression=None):
    made = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", compression=compression)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def session(url, agent, name):
    status = json.load(urllib.request.urlopen(f"{url}/api/status?limit=500", timeout=10))
    found = [scope for scope in status["scopes"]
             if scope["kind"] == "session" and (scope["agent"], scope["name"]) == (agent, name)]
    assert len(found) == 1, status["scopes"]
    return found[0]


@pytest.mark.parametrize("emitter", EMITTERS)
def test_the_calls_of_a_real_sdk_are_charged_to_their_conversation(strict, emitter):
    traces = provider(strict, emitter)
    instrument = EMITTERS[emitter]()
    instrument.instrument(tracer_provider=traces)
    try:
        client = openai.OpenAI(base_url=f"{os.environ['STANDIN']}/v1", api_key="sk-x", max_retries=0)
        used = 0
        with traces.get_tracer("agent").start_as_current_span("invoke_agent planner") as span:
            span.set_attribute("gen_ai.operation.name", "invoke_agent")
            # A conversation's id stands on each span, since a parent is exported after its children.
            for n in range(3):
                with traces.get_tracer("agent").start_as_current_span("turn"):
                    answer = client.chat.completions.create(
                        model="gpt-4o", messages=[{"role": "user", "content": f"question {n}"}])
                used += answer.usage.prompt_tokens + answer.usage.completion_tokens
            trace = f"{span.get_span_context().trace_id:032x}"
    finally:
        instrument.uninstrument()
        traces.shutdown()
    seen = session(strict, emitter, trace)
    assert seen["model_calls"] == 3
    assert seen["input_tokens"] + seen["output_tokens"] == used
    assert seen["cost_usd"] > 0


def test_a_loop_that_only_telemetry_shows_is_refused_at_the_gateway(strict):
    from opentelemetry.exporter.otlp.proto.http import Compression

    traces = provider(strict, "shop", Compression.Gzip)
    for n in range(12):
        with traces.get_tracer("agent").start_as_current_span("execute_tool query") as span:
            span.set_attributes({
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "query",
                "gen_ai.tool.call.id": f"call_{n}", "gen_ai.tool.call.arguments": '{"sql": "select 1 from orders"}',
                "gen_ai.agent.name": "looper", "gen_ai.conversation.id": "c1"})
            span.set_status(Status(StatusCode.ERROR, "no such table: orders"))
    traces.shutdown()
    client = openai.OpenAI(base_url=f"{strict}/openai/v1", api_key="sk-x", max_retries=0,
                           default_headers={"x-deadstop-agent": "looper", "x-deadstop-session": "c1"})
    with pytest.raises(openai.PermissionDeniedError) as refused:
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "go on"}])
    assert "query" in str(refused.value)
    incidents = json.load(urllib.request.urlopen(f"{strict}/api/incidents?agent=looper", timeout=10))
    assert "observed through telemetry" in incidents["items"][0]["explain"]
