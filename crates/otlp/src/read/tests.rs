//! Spans and events as their emitters write them.

use super::*;
use serde_json::json;

fn attributes(pairs: &Value) -> Value {
    let pairs = pairs.as_object().unwrap().iter().map(|(key, value)| {
        let value = match value {
            Value::Number(number) if number.is_i64() => json!({ "intValue": number.to_string() }),
            Value::Number(number) => json!({ "doubleValue": number }),
            Value::Bool(truth) => json!({ "boolValue": truth }),
            Value::String(text) => json!({ "stringValue": text }),
            other => panic!("{other}"),
        };
        json!({ "key": key, "value": value })
    });
    Value::Array(pairs.collect())
}

fn span(n: u8, parent: u8, name: &str, own: &Value) -> Value {
    let id = |n: u8| if n == 0 { String::new() } else { format!("{n:016x}") };
    json!({
        "traceId": "5b8efff798038103d269b633813fc60c", "spanId": id(n), "parentSpanId": id(parent),
        "name": name, "kind": 1, "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661500000000", "attributes": attributes(own), "status": {},
    })
}

fn request(spans: &[Value]) -> Value {
    json!({ "resourceSpans": [{
        "resource": { "attributes": attributes(&json!({ "service.name": "shop" })) },
        "scopeSpans": [{ "scope": { "name": "x" }, "spans": spans }],
    }] })
}

/// Reads a request as JSON and, written anew, as protobuf: both must tell the same.
fn read(request: &Value) -> Batch {
    let body = request.to_string();
    let batch = traces(body.as_bytes(), Format::Json).unwrap();
    let decoded: trace_api::ExportTraceServiceRequest = serde_json::from_str(&body).unwrap();
    assert_eq!(traces(&decoded.encode_to_vec(), Format::Protobuf).unwrap(), batch);
    batch
}

fn only(spans: &[Value]) -> Observed {
    let mut batch = read(&request(spans));
    assert_eq!((batch.calls.len(), &batch.rejected), (1, &Vec::new()), "{batch:?}");
    batch.calls.remove(0)
}

#[test]
fn genai_spans_are_calls_of_their_agent_and_conversation() {
    let agent = json!({
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner",
        "gen_ai.conversation.id": "conv_7",
    });
    let chat = json!({
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o", "gen_ai.response.model": "gpt-4o-2024-08-06",
        "gen_ai.usage.input_tokens": 120, "gen_ai.usage.output_tokens": 8,
        "gen_ai.usage.cache_read.input_tokens": 100,
    });
    let call =
        only(&[span(1, 0, "invoke_agent planner", &agent), span(2, 1, "chat gpt-4o", &chat)]);
    assert_eq!((call.agent.as_deref(), call.session.as_deref()), (Some("planner"), Some("conv_7")));
    assert_eq!((call.began_ms, call.ended_ms), (1_544_712_660_000, 1_544_712_661_500));
    let What::Model { provider, model, usage } = call.what else { panic!("{:?}", call.what) };
    assert_eq!((provider.as_deref(), model.as_str()), (Some("openai"), "gpt-4o-2024-08-06"));
    assert_eq!((usage.input.0, usage.cache_read.0, usage.output.0), (20, 100, 8));
}

#[test]
fn every_emitter_tells_of_its_tools() {
    for (name, own) in [
        (
            "execute_tool search",
            json!({
                "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": "{\"q\":\"x\"}", "gen_ai.tool.call.result": "nothing",
            }),
        ),
        (
            "search",
            json!({
                "openinference.span.kind": "TOOL", "tool.name": "search",
                "input.value": "{\"q\":\"x\"}", "output.value": "nothing",
            }),
        ),
        (
            "search.tool",
            json!({
                "traceloop.span.kind": "tool", "traceloop.entity.name": "search",
                "traceloop.entity.input": "{\"q\":\"x\"}", "traceloop.entity.output": "nothing",
            }),
        ),
        (
            "ai.toolCall",
            json!({
                "ai.operationId": "ai.toolCall", "ai.toolCall.name": "search",
                "ai.toolCall.args": "{\"q\":\"x\"}", "ai.toolCall.result": "nothing",
            }),
        ),
        (
            "tools/call search",
            json!({
                "mcp.method.name": "tools/call", "gen_ai.tool.call.arguments": "{\"q\":\"x\"}",
                "gen_ai.tool.call.result": "nothing",
            }),
        ),
    ] {
        let call = only(&[span(1, 0, name, &own)]);
        let What::Tool { name, .. } = call.what else { panic!("{own}") };
        assert_eq!((name.as_str(), &call.arguments), ("search", &json!({ "q": "x" })), "{own}");
        assert_eq!(call.answer.as_deref(), Some("nothing"), "{own}");
        assert_eq!(call.agent.as_deref(), Some("shop"), "the service, where no agent is named");
        assert_eq!(call.session.as_deref(), Some("5b8efff798038103d269b633813fc60c"));
    }
}

/// LangChain's callbacks wrap what a tool is given and gives, with ids that are others each time. These are
/// the attributes that OpenLLMetry 0.62.4 and OpenInference 0.1.80 wrote for one call.
#[test]
fn langchains_wrappings_are_taken_off() {
    let wrapped = |step: u64| {
        json!({
            "input_str": "{'city': 'Paris'}", "tags": ["seq:step:1"],
            "metadata": { "lc_agent_name": "planner", "langgraph_step": step },
            "inputs": { "city": "Paris" }, "kwargs": { "tool_call_id": format!("call_{step}") },
        })
    };
    let message = json!({
        "lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "ToolMessage"],
        "kwargs": { "content": "rain", "type": "tool", "tool_call_id": "call_4" },
    });
    let openllmetry = json!({
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_weather",
        "traceloop.association.properties.lc_agent_name": "planner",
        "traceloop.association.properties.session_id": "s1", "traceloop.workflow.name": "flow",
        "gen_ai.tool.call.arguments": wrapped(4).to_string(),
        "gen_ai.tool.call.result": json!({ "output": message, "kwargs": {} }).to_string(),
    });
    let openinference = json!({
        "openinference.span.kind": "TOOL", "tool.name": "get_weather", "session.id": "s1",
        "metadata": json!({ "lc_agent_name": "planner", "langgraph_step": 4 }).to_string(),
        "input.value": "{\"city\": \"Paris\"}",
        "output.value": json!({
            "type": "tool", "data": { "content": "rain", "tool_call_id": "call_4", "id": null },
        }).to_string(),
    });
    for own in [openllmetry, openinference] {
        let call = only(&[span(1, 0, "x", &own)]);
        let What::Tool { name, call_id, .. } = &call.what else { panic!("{own}") };
        assert_eq!((name.as_str(), call_id.as_deref()), ("get_weather", Some("call_4")), "{own}");
        assert_eq!(
            (&call.arguments, call.answer.as_deref()),
            (&json!({ "city": "Paris" }), Some("rain"))
        );
        assert_eq!((call.agent.as_deref(), call.session.as_deref()), (Some("planner"), Some("s1")));
    }
    // What only looks a little like it stays as it is.
    for said in ["{\"content\": 1}", "{\"output\": \"content\"}", "{\"type\":\"tool\",\"content\":"]
    {
        let own = json!({
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a", "gen_ai.tool.call.result": said,
        });
        assert_eq!(only(&[span(1, 0, "x", &own)]).answer.as_deref(), Some(said));
    }
}

#[test]
fn every_emitter_tells_of_its_model_calls() {
    for own in [
        json!({ "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.token_count.prompt": 5,
                "llm.token_count.completion": 2 }),
        json!({ "llm.request.type": "chat", "gen_ai.request.model": "m",
                "gen_ai.usage.prompt_tokens": 5, "gen_ai.usage.completion_tokens": 2 }),
        json!({ "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m",
                "ai.usage.inputTokens": 5, "ai.usage.outputTokens": 2 }),
        json!({ "ai.operationId": "ai.streamText.doStream", "ai.model.id": "m",
                "gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 2 }),
    ] {
        let call = only(&[span(1, 0, "x", &own)]);
        let What::Model { model, usage, .. } = call.what else { panic!("{own}") };
        assert_eq!((model.as_str(), usage.input.0, usage.output.0), ("m", 5, 2), "{own}");
    }
}

#[test]
fn a_call_that_two_instrumentations_tell_of_is_one() {
    let outer = json!({ "openinference.span.kind": "LLM", "llm.model_name": "m" });
    let inner = json!({ "gen_ai.operation.name": "chat", "gen_ai.request.model": "m" });
    let batch = read(&request(&[span(2, 1, "inner", &inner), span(1, 0, "outer", &outer)]));
    assert_eq!((batch.calls.len(), batch.others), (1, 1));
    // The AI SDK's own outer span is no call, and its figures are those of the inner one.
    let outer = json!({ "ai.operationId": "ai.generateText", "ai.model.id": "m", "ai.usage.inputTokens": 5 });
    let inner = json!({ "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m" });
    let batch = read(&request(&[span(1, 0, "a", &outer), span(2, 1, "b", &inner)]));
    assert_eq!((batch.calls.len(), batch.others), (1, 1));
}

#[test]
fn failures_say_why() {
    let own = json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "query" });
    let mut failed = span(1, 0, "execute_tool query", &own);
    failed["status"] = json!({ "code": 2, "message": "table is read-only" });
    assert_eq!(only(&[failed.clone()]).failed.as_deref(), Some("table is read-only"));
    failed["status"] = json!({ "code": 2 });
    failed["events"] = json!([{ "name": "exception", "timeUnixNano": "1",
        "attributes": attributes(&json!({ "exception.message": "no such table" })) }]);
    assert_eq!(only(&[failed]).failed.as_deref(), Some("no such table"));
}

#[test]
fn what_cannot_be_used_is_named_and_the_rest_is_kept() {
    let good = json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a" });
    let nameless = json!({ "gen_ai.operation.name": "chat" });
    let mut backwards = span(3, 0, "execute_tool b", &good);
    backwards["endTimeUnixNano"] = json!("1");
    let batch = read(&request(&[span(1, 0, "x", &good), span(2, 0, "chat", &nameless), backwards]));
    assert_eq!(batch.calls.len(), 1);
    assert_eq!(
        batch.rejected,
        ["span \"chat\" names no model", "span \"execute_tool b\" ends before it begins",]
    );
    let said = answer(Signal::Traces, Format::Json, &batch.rejected);
    let said: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said["partialSuccess"]["rejectedSpans"], "2");
    let said = answer(Signal::Traces, Format::Protobuf, &batch.rejected);
    let said = trace_api::ExportTraceServiceResponse::decode(&*said).unwrap();
    assert_eq!(said.partial_success.unwrap().rejected_spans, 2);
    assert!(traces(b"{\"resourceSpans\": 7}", Format::Json).is_err());
    assert!(traces(b"\xff\xff\xff", Format::Protobuf).is_err());
    assert_eq!(traces(b"", Format::Protobuf).unwrap(), Batch::default());
}

/// Emitters write numbers as texts and texts as numbers, leave out what is empty, and add what we do not know.
#[test]
fn json_is_read_as_emitters_write_it() {
    let text = |attributes: &str| {
        format!(
            r#"{{"resourceSpans":[{{"unknown":[1],"scopeSpans":[{{"spans":[{{
            "traceId":"5B8EFFF798038103D269B633813FC60C","spanId":"00000000000000a1","name":"x \u0061",
            "startTimeUnixNano":1544712660000000000,"endTimeUnixNano":"1544712661500000000","links":[{{}}],
            "attributes":[{{"key":"gen_ai.operation.name","value":{{"stringValue":"chat"}}}},
            {{"key":"gen_ai.request.model","value":{{"stringValue":"m\u00e9"}}}},{attributes}]}}]}}]}}]}}"#
        )
    };
    let read = |attributes: &str| traces(text(attributes).as_bytes(), Format::Json);
    let used = |attributes: &str| {
        let call = read(attributes).unwrap().calls.remove(0);
        assert_eq!(call.id, "5b8efff798038103d269b633813fc60c00000000000000a1");
        let What::Model { model, usage, .. } = call.what else { panic!("no model call") };
        assert_eq!(model, "mé");
        usage.input.0
    };
    let tokens = |value: &str| format!(r#"{{"key":"gen_ai.usage.input_tokens","value":{value}}}"#);
    for (value, expected) in [
        (r#"{"intValue":"7"}"#, 7),
        (r#"{"intValue":7}"#, 7),
        (r#"{"doubleValue":7}"#, 7),
        (r#"{"doubleValue":"7.5"}"#, 7),
        (r#"{"stringValue":"7"}"#, 7),
        (r#"{"stringValue":null,"intValue":"7","newValue":{"a":[]}}"#, 7),
        (r#"{"doubleValue":"NaN"}"#, 0),
        (r#"{"arrayValue":{}}"#, 0),
        (r#"{"kvlistValue":{"values":[{"key":"a"},{}]}}"#, 0),
        (r#"{"bytesValue":"AA=="}"#, 0),
        ("{}", 0),
        ("null", 0),
    ] {
        assert_eq!(used(&tokens(value)), expected, "{value}");
    }
    for bad in [r#"{"intValue":"x"}"#, r#"{"intValue":[]}"#, r#"{"boolValue":1}"#, "7"] {
        assert!(read(&tokens(bad)).is_err(), "{bad}");
    }
    // An id that is none spoils its own span, not the request.
    for id in ["5b8e", "no id", &"a1".repeat(40)] {
        let text = text(&tokens("{}")).replace("5B8EFFF798038103D269B633813FC60C", id);
        let batch = traces(text.as_bytes(), Format::Json).unwrap();
        assert_eq!((batch.calls.len(), batch.rejected.len()), (0, 1), "{id}");
    }
}

/// Spans that are each other's parents.
#[test]
fn a_circle_of_parents_ends() {
    let own = json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a" });
    let other = json!({ "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "b" });
    let batch = read(&request(&[span(1, 2, "x", &own), span(2, 1, "y", &other)]));
    assert_eq!(batch.calls.len() + batch.others, 2);
}

fn record(body: &str, own: &Value) -> Batch {
    let request = json!({ "resourceLogs": [{
        "resource": { "attributes": attributes(&json!({ "service.name": "claude-code" })) },
        "scopeLogs": [{ "logRecords": [{
            "timeUnixNano": "1544712661500000000", "body": { "stringValue": body },
            "attributes": attributes(own),
        }] }],
    }] });
    logs(request.to_string().as_bytes(), Format::Json).unwrap()
}

#[test]
fn claude_code_tells_of_its_calls_in_logs() {
    let batch = record(
        "claude_code.api_request",
        &json!({
            "event.name": "api_request", "session.id": "s-1", "model": "claude-sonnet-4-5",
            "input_tokens": "12", "output_tokens": "30", "cache_read_tokens": "4000",
            "cache_creation_tokens": "7", "cost_usd": "0.0021", "duration_ms": "1500",
        }),
    );
    let call = &batch.calls[0];
    assert_eq!(
        (call.session.as_deref(), call.agent.as_deref()),
        (Some("s-1"), Some("claude-code"))
    );
    assert_eq!(call.ended_ms - call.began_ms, 1500);
    let What::Model { usage, .. } = &call.what else { panic!() };
    assert_eq!(call.cost, NanoUsd::from_dollars(0.0021));
    assert_eq!((usage.input.0, usage.cache_read.0, usage.cache_write.0), (12, 4000, 7));

    let batch = record(
        "claude_code.tool_result",
        &json!({
            "event.name": "tool_result", "session.id": "s-1", "tool_name": "Bash", "success": "false",
            "error": "exit 1", "tool_parameters": "{\"command\":\"make\"}", "duration_ms": 20,
        }),
    );
    let call = &batch.calls[0];
    assert_eq!(call.failed.as_deref(), Some("exit 1"));
    let What::Tool { name, .. } = &call.what else { panic!() };
    assert_eq!((name.as_str(), &call.arguments), ("Bash", &json!({ "command": "make" })));
    assert_eq!(
        record("claude_code.user_prompt", &json!({ "event.name": "user_prompt" })).others,
        1
    );
}

#[test]
fn gemini_cli_tells_of_its_calls_in_logs() {
    let batch = record(
        "x",
        &json!({
            "event.name": "gemini_cli.api_response", "session.id": "g", "model": "gemini-2.5-pro",
            "input_token_count": 100, "cached_content_token_count": 40, "output_token_count": 10,
            "thoughts_token_count": 5,
        }),
    );
    let What::Model { usage, .. } = &batch.calls[0].what else { panic!() };
    assert_eq!((usage.input.0, usage.cache_read.0, usage.output.0), (60, 40, 15));
    let batch = record(
        "x",
        &json!({
            "event.name": "gemini_cli.tool_call", "session.id": "g", "function_name": "run_shell_command",
            "function_args": "{\"command\":\"ls\"}", "success": true,
        }),
    );
    assert!(matches!(&batch.calls[0].what, What::Tool { name, .. } if name == "run_shell_command"));
}
