//! A scope, and the calls that are made in it.

use std::sync::Arc;

use deadstop_core::{Call, ModelCall, TextFacts, Tokens};
use deadstop_protocol::facts;
use serde_json::Value;

use crate::authority::{Asked, Telling};
use crate::blocking;
use crate::health::Figures;
use crate::limits::{BadLimit, Limits};
use crate::refused::{Refused, Why};
use crate::running::Running;
use crate::session::Session;
use crate::stop::{StopOnDrop, StopSignal};
use crate::tree::{SESSION, ScopeError};

/// A scope of a session: what happens in it is charged to it and to everything above it.
///
/// ```
/// use deadstop_sdk::{Limits, Session};
/// use serde_json::json;
///
/// let session = Session::builder("crew").open()?;
/// let researcher = session.scope("researcher", Limits::new().max_steps(2))?;
/// for page in 1..=2 {
///     researcher.tool("read", &json!({ "page": page }))?.done("text")?;
/// }
/// let killed = researcher.tool("read", &json!({ "page": 3 })).unwrap_err();
/// assert_eq!((killed.why().reason(), killed.why().context.depth), ("max_steps", 1));
/// // Its siblings go on.
/// assert!(session.tool("write", &json!({})).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scope {
    pub(crate) session: Session,
    pub(crate) at: usize,
}

/// A model call, as far as its caller knows it.
///
/// ```
/// use deadstop_sdk::{ModelAsk, Session, Tokens, Usage};
/// let session = Session::builder("writer").open()?;
/// let ask = ModelAsk::new("gpt-4o").input_tokens(400).max_output_tokens(400);
/// let call = session.model(&ask)?;
/// call.answered(Usage { input: Tokens(400), output: Tokens(20), ..Usage::default() }, "Hi")?;
/// assert_eq!(session.state().figures.output_tokens, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct ModelAsk<'a> {
    /// The model.
    pub model: &'a str,
    /// The API or server that it goes to.
    pub provider: Option<&'a str>,
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// The most tokens that the answer may have.
    pub max_output_tokens: Option<u64>,
    /// What is new in the prompt since the last call.
    pub prompt: Option<&'a str>,
    /// Whether a person has said it.
    pub from_person: bool,
    /// Whether the context before it was compacted.
    pub compacted: bool,
}

impl<'a> ModelAsk<'a> {
    /// A call of this model.
    pub fn new(model: &'a str) -> ModelAsk<'a> {
        ModelAsk { model, ..ModelAsk::default() }
    }

    /// The API or server that it goes to: the breaker counts per provider.
    #[must_use]
    pub fn provider(mut self, provider: &'a str) -> ModelAsk<'a> {
        self.provider = Some(provider);
        self
    }

    /// Tokens of the prompt.
    #[must_use]
    pub fn input_tokens(mut self, tokens: u64) -> ModelAsk<'a> {
        self.input_tokens = tokens;
        self
    }

    /// The most tokens that the answer may have.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u64) -> ModelAsk<'a> {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// What is new in the prompt since the last call.
    #[must_use]
    pub fn prompt(mut self, prompt: &'a str) -> ModelAsk<'a> {
        self.prompt = Some(prompt);
        self
    }

    /// The prompt is what a person has said: it starts the loop guard's memory afresh.
    #[must_use]
    pub fn from_person(mut self) -> ModelAsk<'a> {
        self.from_person = true;
        self
    }

    /// The context before it was compacted: what the agent forgot it may look up again, so the loop
    /// guard's memory starts afresh.
    #[must_use]
    pub fn compacted(mut self) -> ModelAsk<'a> {
        self.compacted = true;
        self
    }
}

impl Scope {
    /// The session that it belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.session.tree().name(self.at).to_string()
    }

    /// Its names inside the session, the outermost first; empty for the session itself.
    pub fn path(&self) -> Vec<String> {
        self.session.tree().names(self.at)
    }

    /// A scope inside it, opened if there is none of this name. Limits that are given replace those
    /// that it had; the others stay.
    pub fn scope(&self, name: &str, limits: Limits) -> Result<Scope, ScopeError> {
        let now = self.session.now();
        let at = self.session.tree().open(self.at, name, limits, now)?;
        Ok(Scope { session: self.session.clone(), at })
    }

    /// Sets limits, also while it is in use; they hold from the next call on. Limits that are not
    /// given stay what they are; [`Scope::replace_limits`] removes them.
    ///
    /// ```
    /// use deadstop_sdk::{Limits, Session};
    /// let scope = Session::builder("a").open()?.scope("crew", Limits::new().max_cost_usd(5.0))?;
    /// scope.set_limits(Limits::new().max_steps(100))?;
    /// assert_eq!(scope.limits(), Limits::new().max_cost_usd(5.0).max_steps(100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_limits(&self, limits: Limits) -> Result<(), BadLimit> {
        limits.check()?;
        let mut tree = self.session.tree();
        let known = tree.limits(self.at);
        tree.limit(self.at, limits.or(known));
        Ok(())
    }

    /// Sets all its limits: those that are not given are removed.
    pub fn replace_limits(&self, limits: Limits) -> Result<(), BadLimit> {
        limits.check()?;
        self.session.tree().limit(self.at, limits);
        Ok(())
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.session.tree().limits(self.at)
    }

    /// What it has used.
    pub fn figures(&self) -> Figures {
        Figures::of(self.session.tree().state(self.at))
    }

    /// The signal that is given when it, or anything above it, is killed.
    pub fn stop_signal(&self) -> StopSignal {
        self.session.tree().stop(self.at)
    }

    /// Ends it and all below it, for good; its siblings go on. For the session itself this is
    /// [`Session::kill`].
    pub fn kill(&self, reason: &str) {
        if self.at <= SESSION {
            return self.session.kill(reason);
        }
        let now = self.session.now();
        let ended = self.session.tree().kill(self.at, "the agent's process", reason, now);
        self.session.carry_out(ended.into_iter().collect());
    }

    /// Tells that the agent's context was compacted, or that it forgot what it knew in another way:
    /// what it may look up again is no loop. A guarded client sees a compaction by itself.
    ///
    /// ```
    /// use deadstop_sdk::Session;
    /// use serde_json::json;
    ///
    /// let session = Session::builder("a").policy("balanced")?.open()?;
    /// let read = || session.tool("read_file", &json!({ "path": "a.md" }))?.done("text");
    /// for _ in 0..4 {
    ///     read()?;
    /// }
    /// assert!(read().is_err(), "it read the same file four times");
    /// session.root().compacted();
    /// assert!(read().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn compacted(&self) {
        self.session.tree().compacted(self.at);
        if let Some(authority) = self.session.authority() {
            authority.tell(Telling::Compacted(self.path()));
        }
    }

    /// Calls a function once for each trip in it: when a guard refuses a call or ends a scope, and in
    /// log-only mode when it would have. It cannot prevent anything, and calls that it makes itself
    /// do not call it again.
    pub fn on_tripped(&self, observer: impl Fn(&Why) + Send + Sync + 'static) {
        self.session.tree().observe(self.at, Arc::new(observer));
    }

    /// Calls a function each time the model is steered in it: [`Why::advice`] is what the model is told,
    /// behind the tool's result or with the next request. The function cannot prevent anything.
    pub fn on_steer(&self, observer: impl Fn(&Why) + Send + Sync + 'static) {
        self.session.tree().observe_steers(self.at, Arc::new(observer));
    }

    /// Variables with which another process continues in this scope.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("DEADSTOP_AGENT", self.session.agent().to_owned()),
            ("DEADSTOP_SESSION", self.session.name().to_owned()),
        ];
        let path = self.path();
        if !path.is_empty() {
            all.push(("DEADSTOP_SCOPE", path.join("/")));
        }
        if let Some(authority) = self.session.authority() {
            all.push(("DEADSTOP_SERVER", authority.health().url));
        }
        all
    }

    /// May a tool be called? Settle the call with [`Running::done`]; one that is dropped counts as
    /// cancelled. With a server this waits for the server's answer: see [`Scope::tool_async`].
    pub fn tool(&self, name: &str, arguments: &Value) -> Result<Running, Refused> {
        self.tool_on(name, None, arguments)
    }

    /// The same for a tool that runs on a server: the breaker counts per server.
    pub fn tool_on(
        &self,
        name: &str,
        server: Option<&str>,
        arguments: &Value,
    ) -> Result<Running, Refused> {
        self.tool_until(name, server, arguments, &StopSignal::default())
    }

    /// The same without blocking: a server is asked on another thread.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let session = deadstop_sdk::Session::builder("a").open()?;
    /// let call = session.root().tool_async("search", None, serde_json::json!({})).await?;
    /// call.done("three pages")?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn tool_async(
        &self,
        name: &str,
        server: Option<&str>,
        arguments: Value,
    ) -> Result<Running, Refused> {
        if self.session.authority().is_none() {
            return self.tool_on(name, server, &arguments);
        }
        let (scope, name, server) = (self.clone(), name.to_owned(), server.map(str::to_owned));
        let (leaving, left) = StopOnDrop::new();
        let asked =
            blocking::run(move || scope.tool_until(&name, server.as_deref(), &arguments, &left));
        let decided = asked.await;
        drop(leaving);
        decided
    }

    /// May a tool be called? Stops asking once the caller has left.
    fn tool_until(
        &self,
        name: &str,
        server: Option<&str>,
        arguments: &Value,
        left: &StopSignal,
    ) -> Result<Running, Refused> {
        let mut call = facts::tool_call(name, arguments);
        if let Some(server) = server {
            call.server = Some(server.to_owned());
        }
        let call = Call::Tool(call);
        let claimed = self.session.tree().claim(self.at, &call);
        match claimed {
            Some((at, pending)) if at == self.at => return self.resume(pending),
            // The answer that asks for it came outside, and it runs in here: it is charged here, too.
            Some((at, pending)) => Scope { at, ..self.clone() }.give_up(pending),
            None => {}
        }
        let asked = || Asked::Tool {
            tool: name.to_owned(),
            server: server.map(str::to_owned),
            arguments: arguments.clone(),
        };
        self.admit(call, asked, left)
    }

    /// May a model be asked? For calls over HTTP see [`Scope::request`]. With a server this waits for
    /// the server's answer: see [`Scope::model_async`].
    pub fn model(&self, ask: &ModelAsk<'_>) -> Result<Running, Refused> {
        let mut running =
            self.admit(self.model_call(ask), || asked(ask), &StopSignal::default())?;
        running.take_late();
        Ok(running)
    }

    /// The same without blocking: a server is asked on another thread.
    pub async fn model_async(&self, ask: &ModelAsk<'_>) -> Result<Running, Refused> {
        if self.session.authority().is_none() {
            return self.model(ask);
        }
        let (scope, call, asked) = (self.clone(), self.model_call(ask), asked(ask));
        let (leaving, left) = StopOnDrop::new();
        let decided = blocking::run(move || scope.admit(call, || asked, &left)).await;
        drop(leaving);
        let mut running = decided?;
        running.take_late();
        Ok(running)
    }

    fn model_call(&self, ask: &ModelAsk<'_>) -> Call {
        Call::Model(ModelCall {
            model: ask.model.to_owned(),
            server: ask.provider.map(str::to_owned),
            rates: self.session.prices().price(ask.model).rates,
            input: Tokens(ask.input_tokens),
            max_output: ask.max_output_tokens.map(Tokens),
            prompt: ask.prompt.map(TextFacts::of),
            from_person: ask.from_person,
            compacted: ask.compacted,
            ..ModelCall::default()
        })
    }
}

fn asked(ask: &ModelAsk<'_>) -> Asked {
    Asked::Model {
        model: ask.model.to_owned(),
        provider: ask.provider.map(str::to_owned),
        input: ask.input_tokens,
        max_output: ask.max_output_tokens,
        prompt: ask.prompt.map(str::to_owned),
        from_person: ask.from_person,
        compacted: ask.compacted,
    }
}

impl Session {
    /// May a tool be called? See [`Scope::tool`].
    pub fn tool(&self, name: &str, arguments: &Value) -> Result<Running, Refused> {
        self.root().tool(name, arguments)
    }

    /// May a model be asked? See [`Scope::model`].
    pub fn model(&self, ask: &ModelAsk<'_>) -> Result<Running, Refused> {
        self.root().model(ask)
    }
}
