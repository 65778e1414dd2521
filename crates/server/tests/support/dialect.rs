//! The dialects, as their providers speak them: requests with a history, answers whole and in
//! events.

use serde_json::{Value, json};

use super::{Ask, Reply};

/// A dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Chat,
    Responses,
    Anthropic,
    Gemini,
}

/// All of them.
pub(crate) const ALL: [Speech; 4] =
    [Speech::Chat, Speech::Responses, Speech::Anthropic, Speech::Gemini];

/// One turn of a conversation.
#[derive(Debug, Clone)]
pub(crate) enum Turn {
    User(String),
    Call { id: String, name: String, arguments: Value },
    Result { id: String, name: String, text: String },
}

/// What a model says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Calls: id, tool, arguments.
    pub(crate) calls: Vec<(String, String, Value)>,
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl Said {
    pub(crate) fn text(text: &str) -> Said {
        Said { text: text.to_owned(), input: 20, output: 7, ..Said::default() }
    }

    pub(crate) fn call(id: &str, name: &str, arguments: Value) -> Said {
        let calls = vec![(id.to_owned(), name.to_owned(), arguments)];
        Said { calls, input: 30, output: 12, ..Said::default() }
    }
}

impl Speech {
    /// The path, with the provider in front.
    pub(crate) fn path(self, stream: bool) -> &'static str {
        match (self, stream) {
            (Speech::Chat, _) => "/openai/v1/chat/completions",
            (Speech::Responses, _) => "/openai/v1/responses",
            (Speech::Anthropic, _) => "/anthropic/v1/messages",
            (Speech::Gemini, false) => "/gemini/v1beta/models/gemini-2.5-flash:generateContent",
            (Speech::Gemini, true) => {
                "/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
            }
        }
    }

    /// A request that ends with these turns.
    pub(crate) fn ask(self, stream: bool, turns: &[Turn]) -> Ask {
        Ask::post(self.path(stream), &self.request(stream, turns))
    }

    /// A request in which a person says one thing.
    pub(crate) fn says(self, stream: bool, text: &str) -> Ask {
        self.ask(stream, &[Turn::User(text.to_owned())])
    }

    /// The body of a request, with the same tools in it every time.
    pub(crate) fn request(self, stream: bool, turns: &[Turn]) -> Value {
        let mut turns: Vec<Value> = turns.iter().map(|turn| self.turn(turn)).collect();
        let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
        let tools = ["read_file", "list_files", "delete_asset"];
        let functions = tools.map(
            |name| json!({ "name": name, "description": "one of the tools", "parameters": schema }),
        );
        match self {
            Speech::Chat => {
                turns.insert(0, json!({ "role": "system", "content": "You are a careful agent." }));
                let tools = functions.map(|f| json!({ "type": "function", "function": f }));
                json!({ "model": "gpt-4o", "stream": stream, "tools": tools, "messages": turns })
            }
            Speech::Responses => {
                let tools = tools
                    .map(|name| json!({ "type": "function", "name": name, "parameters": schema }));
                json!({
                    "model": "gpt-4o", "stream": stream, "tools": tools, "input": turns,
                    "instructions": "You are a careful agent.",
                })
            }
            Speech::Anthropic => {
                let tools = tools.map(|name| json!({ "name": name, "input_schema": schema }));
                json!({
                    "model": "claude-sonnet-4-20250514", "max_tokens": 4096, "stream": stream,
                    "system": "You are a careful agent.", "tools": tools, "messages": turns,
                })
            }
            Speech::Gemini => json!({
                "systemInstruction": { "parts": [{ "text": "You are a careful agent." }] },
                "tools": [{ "functionDeclarations": functions }], "contents": turns,
            }),
        }
    }

    fn turn(self, turn: &Turn) -> Value {
        match (self, turn) {
            (Speech::Gemini, Turn::User(text)) => {
                json!({ "role": "user", "parts": [{ "text": text }] })
            }
            (_, Turn::User(text)) => json!({ "role": "user", "content": text }),
            (Speech::Chat, Turn::Call { id, name, arguments }) => json!({
                "role": "assistant", "content": null, "tool_calls": [{
                    "id": id, "type": "function",
                    "function": { "name": name, "arguments": arguments.to_string() },
                }],
            }),
            (Speech::Chat, Turn::Result { id, text, .. }) => {
                json!({ "role": "tool", "tool_call_id": id, "content": text })
            }
            (Speech::Responses, Turn::Call { id, name, arguments }) => json!({
                "type": "function_call", "call_id": id, "name": name,
                "arguments": arguments.to_string(),
            }),
            (Speech::Responses, Turn::Result { id, text, .. }) => {
                json!({ "type": "function_call_output", "call_id": id, "output": text })
            }
            (Speech::Anthropic, Turn::Call { id, name, arguments }) => json!({
                "role": "assistant",
                "content": [{ "type": "tool_use", "id": id, "name": name, "input": arguments }],
            }),
            (Speech::Anthropic, Turn::Result { id, text, .. }) => json!({
                "role": "user",
                "content": [{ "type": "tool_result", "tool_use_id": id, "content": text }],
            }),
            (Speech::Gemini, Turn::Call { name, arguments, .. }) => json!({
                "role": "model", "parts": [{ "functionCall": { "name": name, "args": arguments } }],
            }),
            (Speech::Gemini, Turn::Result { name, text, .. }) => json!({
                "role": "user",
                "parts": [{ "functionResponse": { "name": name, "response": { "result": text } } }],
            }),
        }
    }

    /// The provider's reply.
    pub(crate) fn reply(self, stream: bool, said: &Said) -> Reply {
        if stream { Reply::events(&self.events(said)) } else { Reply::json(200, &self.whole(said)) }
    }

    /// An answer in one piece.
    pub(crate) fn whole(self, said: &Said) -> Value {
        let Said { text, calls, input, output } = said;
        match self {
            Speech::Chat => {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|(id, name, arguments)| {
                        let function = json!({ "name": name, "arguments": arguments.to_string() });
                        json!({ "id": id, "type": "function", "function": function })
                    })
                    .collect();
                let mut message = json!({ "role": "assistant", "content": text });
                if !calls.is_empty() {
                    message["tool_calls"] = json!(calls);
                }
                let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
                json!({
                    "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o",
                    "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
                    "usage": {
                        "prompt_tokens": input, "completion_tokens": output,
                        "total_tokens": input + output,
                    },
                })
            }
            Speech::Responses => responses(said, "completed"),
            Speech::Anthropic => {
                let mut content = Vec::new();
                if !text.is_empty() {
                    content.push(json!({ "type": "text", "text": text }));
                }
                for (id, name, arguments) in calls {
                    let call =
                        json!({ "type": "tool_use", "id": id, "name": name, "input": arguments });
                    content.push(call);
                }
                let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
                json!({
                    "id": "msg_1", "type": "message", "role": "assistant", "content": content,
                    "model": "claude-sonnet-4-20250514", "stop_reason": reason,
                    "usage": { "input_tokens": input, "output_tokens": output },
                })
            }
            Speech::Gemini => gemini(said, &gemini_parts(said), Some("STOP")),
        }
    }

    /// An answer in events, one a piece.
    pub(crate) fn events(self, said: &Said) -> Vec<Vec<u8>> {
        match self {
            Speech::Chat => chat_events(said),
            Speech::Responses => responses_events(said),
            Speech::Anthropic => anthropic_events(said),
            Speech::Gemini => gemini_events(said),
        }
    }
}

/// One event without a name.
pub(crate) fn data(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

/// One event that is named as its `type` says.
pub(crate) fn named(value: &Value) -> Vec<u8> {
    format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap()).into_bytes()
}

/// One chunk of a chat completion.
pub(crate) fn chat_chunk(delta: &Value, finish: Option<&str>) -> Vec<u8> {
    data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    }))
}

/// Two halves of a text, at a character's border.
fn halves(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(text.len() / 2))
}

fn chat_events(said: &Said) -> Vec<Vec<u8>> {
    let mut events = vec![chat_chunk(&json!({ "role": "assistant", "content": "" }), None)];
    let (first, second) = halves(&said.text);
    for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
        events.push(chat_chunk(&json!({ "content": part }), None));
    }
    for (index, (id, name, arguments)) in said.calls.iter().enumerate() {
        let call = |call: Value| chat_chunk(&json!({ "tool_calls": [call] }), None);
        events.push(call(json!({
            "index": index, "id": id, "type": "function",
            "function": { "name": name, "arguments": "" },
        })));
        let arguments = arguments.to_string();
        let (first, second) = halves(&arguments);
        for part in [first, second] {
            events.push(call(json!({ "index": index, "function": { "arguments": part } })));
        }
    }
    let reason = if said.calls.is_empty() { "stop" } else { "tool_calls" };
    events.push(chat_chunk(&json!({}), Some(reason)));
    events.push(data(&json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o",
        "choices": [], "usage": {
            "prompt_tokens": said.input, "completion_tokens": said.output,
            "total_tokens": said.input + said.output,
        },
    })));
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}

fn responses(said: &Said, status: &str) -> Value {
    let mut output = Vec::new();
    if !said.text.is_empty() {
        let content = json!([{ "type": "output_text", "text": said.text, "annotations": [] }]);
        output.push(json!({ "type": "message", "id": "m_1", "role": "assistant",
                            "status": status, "content": content }));
    }
    for (id, name, arguments) in &said.calls {
        output.push(function_call(id, name, &arguments.to_string()));
    }
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "status": status,
        "model": "gpt-4o", "output": output,
        "usage": {
            "input_tokens": said.input, "output_tokens": said.output,
            "total_tokens": said.input + said.output,
        },
    })
}

fn function_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name,
            "arguments": arguments, "status": "completed" })
}

fn responses_events(said: &Said) -> Vec<Vec<u8>> {
    let mut events = vec![json!({ "type": "response.created", "response": {
        "id": "resp_1", "object": "response", "status": "in_progress", "output": [],
    }})];
    let (first, second) = halves(&said.text);
    for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
        events.push(json!({ "type": "response.output_text.delta", "item_id": "m_1",
                            "output_index": 0, "content_index": 0, "delta": part }));
    }
    for (index, (id, name, arguments)) in said.calls.iter().enumerate() {
        let (item, arguments) = (format!("fc_{id}"), arguments.to_string());
        events.push(json!({ "type": "response.output_item.added", "output_index": index,
                            "item": function_call(id, name, "") }));
        let (first, second) = halves(&arguments);
        for part in [first, second] {
            events.push(json!({ "type": "response.function_call_arguments.delta",
                                "item_id": item, "output_index": index, "delta": part }));
        }
        events.push(json!({ "type": "response.function_call_arguments.done",
                            "item_id": item, "output_index": index, "arguments": arguments }));
        events.push(json!({ "type": "response.output_item.done", "output_index": index,
                            "item": function_call(id, name, &arguments) }));
    }
    events.push(json!({ "type": "response.completed", "response": responses(said, "completed") }));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events.iter().map(named).collect()
}

fn anthropic_events(said: &Said) -> Vec<Vec<u8>> {
    let mut events = vec![
        json!({ "type": "message_start", "message": {
            "id": "msg_1", "type": "message", "role": "assistant", "content": [],
            "model": "claude-sonnet-4-20250514", "stop_reason": null,
            "usage": { "input_tokens": said.input, "output_tokens": 1 },
        }}),
        json!({ "type": "ping" }),
    ];
    let mut index = 0;
    if !said.text.is_empty() {
        events.push(json!({ "type": "content_block_start", "index": index,
                            "content_block": { "type": "text", "text": "" } }));
        let (first, second) = halves(&said.text);
        for part in [first, second] {
            events.push(json!({ "type": "content_block_delta", "index": index,
                                "delta": { "type": "text_delta", "text": part } }));
        }
        events.push(json!({ "type": "content_block_stop", "index": index }));
        index += 1;
    }
    for (id, name, arguments) in &said.calls {
        let block = json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
        events.push(json!({ "type": "content_block_start", "index": index,
                            "content_block": block }));
        let arguments = arguments.to_string();
        let (first, second) = halves(&arguments);
        for part in [first, second] {
            events.push(json!({ "type": "content_block_delta", "index": index,
                                "delta": { "type": "input_json_delta", "partial_json": part } }));
        }
        events.push(json!({ "type": "content_block_stop", "index": index }));
        index += 1;
    }
    let reason = if said.calls.is_empty() { "end_turn" } else { "tool_use" };
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason },
                        "usage": { "output_tokens": said.output } }));
    events.push(json!({ "type": "message_stop" }));
    events.iter().map(named).collect()
}

fn gemini_parts(said: &Said) -> Vec<Value> {
    let text = (!said.text.is_empty()).then(|| json!({ "text": said.text }));
    let calls = said
        .calls
        .iter()
        .map(|(_, name, arguments)| json!({ "functionCall": { "name": name, "args": arguments } }));
    text.into_iter().chain(calls).collect()
}

fn gemini(said: &Said, parts: &[Value], finish: Option<&str>) -> Value {
    let mut candidate = json!({ "index": 0, "content": { "role": "model", "parts": parts } });
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({
        "candidates": [candidate], "modelVersion": "gemini-2.5-flash",
        "usageMetadata": {
            "promptTokenCount": said.input, "candidatesTokenCount": said.output,
            "totalTokenCount": said.input + said.output,
        },
    })
}

fn gemini_events(said: &Said) -> Vec<Vec<u8>> {
    let parts = gemini_parts(said);
    let mut events: Vec<_> =
        parts.iter().map(|part| gemini(said, std::slice::from_ref(part), None)).collect();
    events.push(gemini(said, &[], Some("STOP")));
    // Google ends its lines the other way.
    events.iter().map(|event| format!("data: {event}\r\n\r\n").into_bytes()).collect()
}
