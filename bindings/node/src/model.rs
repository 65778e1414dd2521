//! Model calls: over HTTP, or reported by their caller.

use std::borrow::Cow;
use std::sync::Arc;

use deadstop_sdk::{Api, Exchange, ModelAsk, Outgoing, Scope, Tokens, Usage, api_of};
use napi::bindgen_prelude::{Buffer, Either, Either3, Object, Uint8Array};
use napi::{Env, Result};
use napi_derive::napi;
use serde::Deserialize;

use crate::convert::{mistake, refusal, status};
use crate::engine::{BODY, Decided, Engine, FLAGS, Shared, later};

/// Flags if all is as it was, other bytes, or a refusal as JSON.
type Passed = Either3<u32, Buffer, String>;

/// Where requests go: told once, and named by its number from then on.
pub(crate) struct Door {
    api: Api,
    host: String,
    method: String,
    path: String,
}

/// A model call, as far as its caller knows it.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Told {
    model: String,
    provider: Option<String>,
    input_tokens: u64,
    max_output_tokens: Option<u64>,
    prompt: Option<String>,
    from_person: bool,
    compacted: bool,
}

/// What a model call has used.
#[napi(object)]
pub struct Used {
    /// Tokens of the prompt, without those from a cache.
    pub input: f64,
    /// Tokens of the answer.
    pub output: f64,
    /// Tokens read from a cache.
    pub cache_read: f64,
    /// Tokens written to a cache.
    pub cache_write: f64,
}

impl Shared {
    fn request(&self, scope: &Scope, door: &Door, body: &[u8]) -> Decided {
        let Door { api, host, method, path } = door;
        let api = *api;
        match scope.request(&Outgoing::new(host, path, body).api(api).method(method)) {
            Ok(exchange) => {
                let changed = if exchange.body().is_some() { BODY } else { 0 };
                self.watch_again();
                let number = self.exchanges().put(Box::new(exchange));
                Either::A(number << FLAGS | changed | self.flags())
            }
            Err(refused) => Either::B(refusal(&refused)),
        }
    }

    fn model(&self, scope: &Scope, told: &Told) -> Decided {
        let mut ask = ModelAsk::new(&told.model).input_tokens(told.input_tokens);
        (ask.provider, ask.prompt) = (told.provider.as_deref(), told.prompt.as_deref());
        (ask.max_output_tokens, ask.from_person) = (told.max_output_tokens, told.from_person);
        ask.compacted = told.compacted;
        match scope.model(&ask) {
            Ok(running) => {
                let number = self.running().put(running);
                Either::A(number << FLAGS | self.flags())
            }
            Err(refused) => Either::B(refusal(&refused)),
        }
    }

    /// Works on an exchange. Its list is not locked meanwhile: a kill may want to end another.
    fn with<T>(&self, number: u32, work: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
        let mut exchange = self.exchanges().lend(number)?;
        let done = work(&mut exchange);
        let unwanted = self.exchanges().give_back(number, exchange);
        drop(unwanted);
        Some(done)
    }

    fn push(&self, number: u32, bytes: &[u8]) -> Passed {
        let passed = self.with(number, |exchange| {
            exchange.push(bytes).map(|passed| match passed {
                Cow::Borrowed(_) => None,
                Cow::Owned(bytes) => Some(bytes),
            })
        });
        match passed {
            None | Some(Ok(None)) => Either3::A(self.flags()),
            Some(Ok(Some(bytes))) => Either3::B(bytes.into()),
            Some(Err(refused)) => Either3::C(refusal(&refused)),
        }
    }

    fn whole(&self, number: u32, status: u16, kind: &str, bytes: &[u8]) -> Passed {
        let passed = self.with(number, |exchange| {
            exchange.whole(status, kind, bytes).map(|passed| match passed {
                Cow::Borrowed(_) => None,
                Cow::Owned(bytes) => Some(bytes),
            })
        });
        let done = self.exchanges().take(number);
        drop(done);
        match passed {
            None | Some(Ok(None)) => Either3::A(self.flags()),
            Some(Ok(Some(bytes))) => Either3::B(bytes.into()),
            Some(Err(refused)) => Either3::C(refusal(&refused)),
        }
    }

    fn finish(&self, number: u32) -> Passed {
        let rest = self.with(number, Exchange::finish);
        let done = self.exchanges().take(number);
        drop(done);
        match rest {
            None => Either3::A(self.flags()),
            Some(Ok(rest)) if rest.is_empty() => Either3::A(self.flags()),
            Some(Ok(rest)) => Either3::B(rest.into()),
            Some(Err(refused)) => Either3::C(refusal(&refused)),
        }
    }
}

#[napi]
impl Engine {
    /// Tells where requests go that name this door; another may have had its number before.
    #[napi]
    pub fn door(&self, number: u32, api: String, host: String, method: String, path: String) {
        let api = match api.as_str() {
            "openai" => Api::OpenAi,
            "anthropic" => Api::Anthropic,
            "gemini" => Api::Gemini,
            _ => api_of(&host, &path),
        };
        self.shared.doors().insert(number, Arc::new(Door { api, host, method, path }));
    }

    /// May a request be sent?
    #[napi(ts_return_type = "number | string")]
    pub fn request(
        &self,
        scope: u32,
        door: u32,
        body: Either<String, Uint8Array>,
    ) -> Result<Decided> {
        let (scope, door) = (self.shared.scope(scope)?, self.shared.door(door)?);
        Ok(match body {
            Either::A(text) => self.shared.request(&scope, &door, text.as_bytes()),
            Either::B(bytes) => self.shared.request(&scope, &door, &bytes),
        })
    }

    /// The same, where a server is asked.
    #[napi(ts_return_type = "Promise<number | string>")]
    pub fn request_later<'env>(
        &self,
        env: &'env Env,
        scope: u32,
        door: u32,
        body: Either<String, Uint8Array>,
    ) -> Result<Object<'env>> {
        // Bytes of Node's own stay on its thread.
        let body = match body {
            Either::A(text) => text.into_bytes(),
            Either::B(bytes) => bytes.to_vec(),
        };
        let shared = Arc::clone(&self.shared);
        let (scope, door) = (shared.scope(scope)?, shared.door(door)?);
        later(env, move || shared.request(&scope, &door, &body))
    }

    /// The body to send in place of the one that was given.
    #[napi]
    pub fn body(&self, exchange: u32) -> Option<Buffer> {
        let mut exchanges = self.shared.exchanges();
        exchanges
            .get(exchange)
            .and_then(|exchange| exchange.body())
            .map(|body| body.to_vec().into())
    }

    /// The headers in which providers report their windows: names in lower case and values in turn.
    #[napi]
    pub fn headers(&self, exchange: u32, headers: Vec<String>) {
        let pairs: Vec<(&str, &str)> =
            headers.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        self.shared.with(exchange, |exchange| exchange.headers(&pairs));
    }

    /// The answer begins.
    #[napi]
    pub fn answer(&self, exchange: u32, status: u32, content_type: String) {
        let status = u16::try_from(status).unwrap_or(500);
        self.shared.with(exchange, |exchange| exchange.answer(status, &content_type));
    }

    /// The next bytes of the answer.
    #[napi(ts_return_type = "number | Buffer | string")]
    pub fn push(&self, exchange: u32, bytes: &[u8]) -> Passed {
        self.shared.push(exchange, bytes)
    }

    /// The same, where a server is asked about the tool calls in them.
    #[napi(ts_return_type = "Promise<number | Buffer | string>")]
    pub fn push_later<'env>(
        &self,
        env: &'env Env,
        exchange: u32,
        bytes: &[u8],
    ) -> Result<Object<'env>> {
        let (shared, bytes) = (Arc::clone(&self.shared), bytes.to_vec());
        later(env, move || shared.push(exchange, &bytes))
    }

    /// The answer is complete.
    #[napi(ts_return_type = "number | Buffer | string")]
    pub fn finish(&self, exchange: u32) -> Passed {
        self.shared.finish(exchange)
    }

    /// The same, where a server is asked about the tool calls in it.
    #[napi(ts_return_type = "Promise<number | Buffer | string>")]
    pub fn finish_later<'env>(&self, env: &'env Env, exchange: u32) -> Result<Object<'env>> {
        let shared = Arc::clone(&self.shared);
        later(env, move || shared.finish(exchange))
    }

    /// All of an answer at once: its beginning, its bytes and its end.
    #[napi(ts_return_type = "number | Buffer | string")]
    pub fn whole(&self, exchange: u32, status: u32, content_type: String, bytes: &[u8]) -> Passed {
        let status = u16::try_from(status).unwrap_or(500);
        self.shared.whole(exchange, status, &content_type, bytes)
    }

    /// The same, where a server is asked about the tool calls in it.
    #[napi(ts_return_type = "Promise<number | Buffer | string>")]
    pub fn whole_later<'env>(
        &self,
        env: &'env Env,
        exchange: u32,
        status: u32,
        content_type: String,
        bytes: &[u8],
    ) -> Result<Object<'env>> {
        let status = u16::try_from(status).unwrap_or(500);
        let (shared, bytes) = (Arc::clone(&self.shared), bytes.to_vec());
        later(env, move || shared.whole(exchange, status, &content_type, &bytes))
    }

    /// The call was not answered, or its answer broke off. Gives flags.
    #[napi]
    pub fn broken(&self, exchange: u32) -> u32 {
        self.shared.with(exchange, Exchange::broken);
        let done = self.shared.exchanges().take(exchange);
        drop(done);
        self.shared.flags()
    }

    /// The rest is not read. Gives flags.
    #[napi]
    pub fn abandon(&self, exchange: u32) -> u32 {
        self.shared.with(exchange, Exchange::abandon);
        let done = self.shared.exchanges().take(exchange);
        drop(done);
        self.shared.flags()
    }

    /// May a model be asked? For calls that are not made over HTTP; told as JSON.
    #[napi(ts_return_type = "number | string")]
    pub fn model(&self, scope: u32, told: String) -> Result<Decided> {
        let told: Told = serde_json::from_str(&told).map_err(mistake)?;
        let scope = self.shared.scope(scope)?;
        Ok(self.shared.model(&scope, &told))
    }

    /// The same, where a server is asked.
    #[napi(ts_return_type = "Promise<number | string>")]
    pub fn model_later<'env>(
        &self,
        env: &'env Env,
        scope: u32,
        told: String,
    ) -> Result<Object<'env>> {
        let told: Told = serde_json::from_str(&told).map_err(mistake)?;
        let (shared, scope) = (Arc::clone(&self.shared), self.shared.scope(scope)?);
        later(env, move || shared.model(&scope, &told))
    }

    /// May its answer go on? Tokens from its beginning, text that is new.
    #[napi(ts_return_type = "number | string")]
    pub fn progress(&self, call: u32, output_tokens: f64, text: String) -> Decided {
        let mut running = self.shared.running();
        let Some(mut call_out) = running.lend(call) else { return Either::A(self.shared.flags()) };
        drop(running);
        let judged = call_out.progress(output_tokens as u64, &text);
        let unwanted = self.shared.running().give_back(call, call_out);
        drop(unwanted);
        self.shared.settled(judged)
    }

    /// It has ended.
    #[napi(ts_return_type = "number | string")]
    pub fn end_model(&self, call: u32, how: u32, used: Used, text: String) -> Decided {
        let taken = self.shared.running().take(call);
        let usage = Usage {
            input: Tokens(used.input as u64),
            output: Tokens(used.output as u64),
            cache_read: Tokens(used.cache_read as u64),
            cache_write: Tokens(used.cache_write as u64),
        };
        let end = |running: deadstop_sdk::Running| running.end_model(status(how), usage, &text);
        let ended = taken.map_or(Ok(()), |running| end(running).map(drop));
        self.shared.settled(ended)
    }
}
