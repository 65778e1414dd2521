//! Programs that need a refusal of their own.

/// The program that calls, as far as a refusal depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Client {
    /// Claude Code. It shows a 403 as "Failed to authenticate" and asks its user to log in.
    ClaudeCode,
    /// Any other.
    #[default]
    Other,
}

impl Client {
    /// The client that sends these headers.
    ///
    /// ```
    /// use deadstop_protocol::llm::client::Client;
    /// let client = Client::of([("user-agent", "claude-cli/2.1.197 (external, cli)")].into_iter());
    /// assert_eq!((client, client.status(403), client.status(402)), (Client::ClaudeCode, 451, 402));
    /// ```
    pub fn of<'h>(mut headers: impl Iterator<Item = (&'h str, &'h str)>) -> Client {
        let named = headers.any(|(name, value)| {
            name.eq_ignore_ascii_case("user-agent") && value.starts_with("claude-cli/")
        });
        if named { Client::ClaudeCode } else { Client::Other }
    }

    /// The status of a refusal for this client. It is shown without advice to log in, and is not
    /// retried either.
    pub fn status(self, status: u16) -> u16 {
        match (self, status) {
            (Client::ClaudeCode, 403) => 451,
            _ => status,
        }
    }
}
