//! Programs that need a refusal of their own.

/// The program that calls, as far as a refusal depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Client {
    /// Claude Code. It shows a 403 as "Failed to authenticate" and asks its user to log in.
    ClaudeCode,
    /// Codex. It retries every status but 400, and every error in a stream but a few of its own
    /// provider's; among those is `invalid_prompt`, whose message it shows.
    Codex,
    /// Copilot CLI. It shows a 403 as "Authentication failed" and sends what an error in a stream has
    /// ended again, unless its code is `invalid_prompt`.
    Copilot,
    /// OpenAI's Python SDK where the raw answer is wanted, as LiteLLM and LangChain do. LiteLLM makes a
    /// general error of 402 and 403, which programs around it retry with back-off.
    RawPython,
    /// Google's Gen AI SDK on Node, as in Gemini CLI. It passes over an error among a stream's events, and
    /// its program takes the stream for a whole answer. It raises on an error that arrives by itself,
    /// as plain JSON.
    GenAiNode,
    /// Any other.
    #[default]
    Other,
}

impl Client {
    /// The client that sends these headers.
    ///
    /// ```
    /// use deadstop_protocol::llm::client::Client;
    /// let of = |agent| Client::of([("user-agent", agent)].into_iter());
    /// assert_eq!(of("claude-cli/2.1.197 (external, cli)"), Client::ClaudeCode);
    /// assert_eq!(of("codex_exec/0.166.0 (Debian 12; x86_64) dumb"), Client::Codex);
    /// let copilot = [("user-agent", "OpenAI/JS 5.20.1"), ("x-initiator", "agent")];
    /// assert_eq!(Client::of(copilot.into_iter()), Client::Copilot);
    /// let raw = [("user-agent", "OpenAI/Python 2.9.0"), ("x-stainless-raw-response", "true")];
    /// assert_eq!(Client::of(raw.into_iter()), Client::RawPython);
    /// let google = [("x-goog-api-client", "google-genai-sdk/1.30.0 gl-node/v20.20.2")];
    /// assert_eq!(Client::of(google.into_iter()), Client::GenAiNode);
    /// ```
    pub fn of<'h>(headers: impl Iterator<Item = (&'h str, &'h str)>) -> Client {
        let mut client = Client::Other;
        for (name, value) in headers {
            if name.eq_ignore_ascii_case("user-agent") {
                if value.starts_with("claude-cli/") {
                    return Client::ClaudeCode;
                }
                if value.starts_with("codex_") {
                    return Client::Codex;
                }
            } else if name.eq_ignore_ascii_case("x-initiator") {
                client = Client::Copilot;
            } else if name.eq_ignore_ascii_case("x-stainless-raw-response") && value == "true" {
                client = Client::RawPython;
            } else if name.eq_ignore_ascii_case("x-goog-api-client")
                && value.contains("google-genai-sdk/")
                && value.contains("gl-node/")
            {
                client = Client::GenAiNode;
            }
        }
        client
    }

    /// The status of a refusal for this client: one that it does not retry, and shows without advice
    /// to log in.
    pub(crate) fn status(self, status: u16) -> u16 {
        match (self, status) {
            (Client::ClaudeCode | Client::Copilot, 403) => 451,
            (Client::Codex, 402 | 403) => 400,
            _ => status,
        }
    }

    /// Whether it only notices an error in a stream that arrives apart from what came before.
    pub fn reads_errors_apart(self) -> bool {
        self == Client::GenAiNode
    }

    /// The code of an error in a stream that this client does not take for a passing fault; `None` where
    /// the reason itself may stand there.
    pub(crate) fn final_code(self) -> Option<&'static str> {
        match self {
            Client::Codex | Client::Copilot => Some("invalid_prompt"),
            _ => None,
        }
    }

    /// Words that make a client's library take a refusal for final, whatever its status: LiteLLM
    /// searches the whole body, and these stand for an error that is not retried.
    pub(crate) fn final_words(self) -> Option<&'static str> {
        (self == Client::RawPython).then_some("invalid_request_error, model_not_found")
    }
}
