//! Names of attributes and events, each with its older and other spellings, the preferred one first.
//!
//! `gen_ai.*` and `mcp.*` follow the OpenTelemetry conventions for generative AI, which are still in
//! development (repository open-telemetry/semantic-conventions-genai, as of November 2026). What we
//! write uses the first name of each list.

/// Who made the telemetry.
pub const SERVICE: &str = "service.name";

/// What a span does: `chat`, `execute_tool`, `invoke_agent`.
pub const OPERATION: &str = "gen_ai.operation.name";
/// Operations that are one model call.
pub const MODEL_OPERATIONS: &[&str] =
    &["chat", "text_completion", "generate_content", "embeddings"];
/// The operation that is one tool call.
pub const TOOL_OPERATION: &str = "execute_tool";

/// OpenInference: `LLM`, `TOOL`, `AGENT`.
pub const OPENINFERENCE_KIND: &str = "openinference.span.kind";
/// OpenLLMetry: `workflow`, `task`, `agent`, `tool`.
pub const OPENLLMETRY_KIND: &str = "traceloop.span.kind";
/// OpenLLMetry on a model call: `chat`, `completion`.
pub const OPENLLMETRY_REQUEST: &[&str] = &["llm.request.type", "gen_ai.request.type"];
/// The AI SDK: `ai.generateText.doGenerate`, `ai.toolCall`.
pub const AI_SDK_OPERATION: &str = "ai.operationId";
/// MCP: `tools/call`.
pub const MCP_METHOD: &str = "mcp.method.name";

/// The agent.
pub const AGENT: &[&str] =
    &["gen_ai.agent.name", "agent.name", "ai.telemetry.functionId", "traceloop.workflow.name"];
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
