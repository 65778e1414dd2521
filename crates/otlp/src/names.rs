//! Names of attributes and events, each with its older and other spellings, the preferred one first.
//!
//! `gen_ai.*` and `mcp.*` follow the OpenTelemetry conventions for generative AI, which are still in
//! development: [`CONVENTION`] says as of which commit. What we write uses the first name of each
//! list. The names of emitters are those that the emitters themselves wrote in `tests/telemetry`.

/// The repository of the conventions, and the commit that these names were compared with.
pub const CONVENTION: &str =
    "open-telemetry/semantic-conventions-genai@9430220eb6f3f8a0e41d2e0e548aeb5cb9ca5f14";

/// Who made the telemetry.
pub const SERVICE: &str = "service.name";

/// What a span does: `chat`, `execute_tool`, `invoke_agent`.
pub const OPERATION: &str = "gen_ai.operation.name";
/// Operations that are one model call.
pub const MODEL_OPERATIONS: &[&str] =
    &["chat", "text_completion", "generate_content", "embeddings"];
/// The operation that we write for a model call.
pub const CHAT: &str = MODEL_OPERATIONS[0];
/// The operation that is one tool call.
pub const TOOL_OPERATION: &str = "execute_tool";
/// The operation that is a run of an agent, around its calls.
pub const RUN: &str = "invoke_agent";
/// The model that a request asks for.
pub const REQUEST_MODEL: &str = MODEL[1];
/// The MCP server that a tool runs on: by its name in our configuration, or where others reach it.
pub const SERVER: &[&str] = &["deadstop.mcp_server", "server.address"];

/// OpenInference: `LLM`, `TOOL`, `AGENT`.
pub const OPENINFERENCE_KIND: &str = "openinference.span.kind";
/// OpenLLMetry: `workflow`, `task`, `agent`, `tool`.
pub const OPENLLMETRY_KIND: &str = "traceloop.span.kind";
/// OpenLLMetry on a model call: `chat`, `completion`.
pub const OPENLLMETRY_REQUEST: &[&str] = &["llm.request.type", "gen_ai.request.type"];
/// The AI SDK: `ai.generateText.doGenerate`, `ai.toolCall`.
pub const AI_SDK_OPERATION: &str = "ai.operationId";
/// The AI SDK's tool call.
pub const AI_SDK_TOOL: &str = "ai.toolCall";
/// What is in the name of each of the AI SDK's model calls. The spans around them repeat their figures.
pub const AI_SDK_MODEL: &str = ".do";
/// MCP: `tools/call`.
pub const MCP_METHOD: &str = "mcp.method.name";
/// The method that is one tool call.
pub const MCP_CALL: &str = "tools/call";

/// Claude Code's events for a model call and for a tool call.
pub const CLAUDE_CODE: (&str, &str) = ("claude_code.api_request", "claude_code.tool_result");
/// Gemini CLI's.
pub const GEMINI_CLI: (&str, &str) = ("gemini_cli.api_response", "gemini_cli.tool_call");
/// Events of these programs begin so.
pub const PROGRAMS: &[&str] = &["claude_code.", "gemini_cli."];

/// The agent.
pub const AGENT: &[&str] = &[
    "gen_ai.agent.name",
    "agent.name",
    "ai.telemetry.functionId",
    "traceloop.association.properties.lc_agent_name",
    "traceloop.workflow.name",
];
/// LangChain's own facts as one JSON text, as OpenInference writes them.
pub const METADATA: &str = "metadata";
/// LangChain's name of the agent in it.
pub const METADATA_AGENT: &str = "lc_agent_name";
/// The conversation.
pub const SESSION: &[&str] = &[
    "gen_ai.conversation.id",
    "session.id",
    "traceloop.association.properties.session_id",
    "traceloop.association.properties.thread_id",
    "ai.telemetry.metadata.sessionId",
    "ai.telemetry.metadata.threadId",
    "conversation.id",
];

/// The provider.
pub const PROVIDER: &[&str] =
    &["gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider"];
/// Providers that the conventions name otherwise than we do.
const CONVENTIONAL: &[(&str, &str)] = &[
    ("azure", "azure.ai.openai"),
    ("bedrock", "aws.bedrock"),
    ("gemini", "gcp.gemini"),
    ("mistral", "mistral_ai"),
    ("vertex", "gcp.vertex_ai"),
    ("xai", "x_ai"),
];

/// A provider's name as the conventions have it; a name that they do not know stays as it is.
pub fn conventional(provider: &str) -> &str {
    let known = CONVENTIONAL.iter().find(|(ours, _)| *ours == provider);
    known.map_or(provider, |(_, theirs)| theirs)
}

/// The model, as the answer names it where it does.
pub const MODEL: &[&str] = &[
    "gen_ai.response.model",
    "gen_ai.request.model",
    "llm.model_name",
    "ai.response.model",
    "ai.model.id",
    "model",
];
/// Tokens of the prompt, those of a cache among them.
pub const INPUT: &[&str] = &[
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
    "llm.usage.prompt_tokens",
    "llm.token_count.prompt",
    "ai.usage.inputTokens",
    "ai.usage.promptTokens",
    "input_token_count",
];
/// Tokens of the answer.
pub const OUTPUT: &[&str] = &[
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
    "llm.usage.completion_tokens",
    "llm.token_count.completion",
    "ai.usage.outputTokens",
    "ai.usage.completionTokens",
    "output_token_count",
];
/// Tokens of the prompt that came from the provider's cache.
pub const CACHE_READ: &[&str] = &[
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
    "ai.usage.cachedInputTokens",
    "cached_content_token_count",
];
/// Tokens of the prompt that were written to it.
pub const CACHE_WRITE: &[&str] = &[
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_creation_input_tokens",
    "llm.token_count.prompt_details.cache_write",
];
/// The prompt.
pub const PROMPT: &[&str] =
    &["gen_ai.input.messages", "gen_ai.prompt", "input.value", "ai.prompt.messages", "ai.prompt"];
/// The answer.
pub const ANSWER: &[&str] = &[
    "gen_ai.output.messages",
    "gen_ai.completion",
    "gen_ai.completion.0.content",
    "output.value",
    "ai.response.text",
];

/// What the emitter says that a call cost, in dollars.
pub const COST: &[&str] = &["cost_usd", "llm.cost.total", "gen_ai.usage.cost"];

/// A tool's name.
pub const TOOL: &[&str] =
    &["gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name"];
/// The model's id for a call.
pub const CALL_ID: &[&str] =
    &["gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool.id", "tool_use_id"];
/// A tool's arguments.
pub const ARGUMENTS: &[&str] = &[
    "gen_ai.tool.call.arguments",
    "tool.parameters",
    "ai.toolCall.args",
    "ai.toolCall.input",
    "traceloop.entity.input",
    "input.value",
];
/// A tool's result.
pub const RESULT: &[&str] = &[
    "gen_ai.tool.call.result",
    "ai.toolCall.result",
    "ai.toolCall.output",
    "traceloop.entity.output",
    "output.value",
];
/// Why something failed.
pub const ERROR: &[&str] = &["error.type", "exception.message", "error", "error.message"];
/// What was thrown, in an event of the span.
pub const THROWN: &[&str] = &["exception.message", "exception.type"];

/// The attribute of a line of our log: what the conventions have a name for has that, all else ours.
pub fn of_field(name: &str) -> String {
    match name {
        "agent" => AGENT[0].to_owned(),
        "session" => SESSION[0].to_owned(),
        other => format!("deadstop.{other}"),
    }
}

/// Ours: what was decided about a call, and why.
pub mod deadstop {
    /// `allow`, `warn`, `steer`, `ask`, `block`, `kill`.
    pub const VERDICT: &str = "deadstop.verdict";
    /// The guard that decided.
    pub const GUARD: &str = "deadstop.guard";
    /// Its code for why.
    pub const REASON: &str = "deadstop.reason";
    /// What it measured.
    pub const MEASURED: &str = "deadstop.measured";
    /// Against which limit.
    pub const LIMIT: &str = "deadstop.limit";
    /// The incident.
    pub const INCIDENT: &str = "deadstop.incident";
    /// What the call cost, in dollars.
    pub const COST: &str = "deadstop.cost_usd";
    /// The project.
    pub const PROJECT: &str = "deadstop.project";
}

#[cfg(test)]
mod tests {
    /// Names stand here and nowhere else: a change of the conventions is a change of this file.
    #[test]
    fn no_other_file_spells_a_name() {
        let files = [
            ("attributes.rs", include_str!("attributes.rs")),
            ("call.rs", include_str!("call.rs")),
            ("read/events.rs", include_str!("read/events.rs")),
            ("read/langchain.rs", include_str!("read/langchain.rs")),
            ("read/spans.rs", include_str!("read/spans.rs")),
            ("span.rs", include_str!("span.rs")),
        ];
        let known = ["\"gen_ai.", "\"mcp.", "\"ai.", "\"llm.", "\"traceloop.", "\"tools/call"];
        for (name, text) in files {
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for spelled in known {
                assert!(!code.contains(spelled), "{name} spells a name that begins with {spelled}");
            }
        }
    }
}
