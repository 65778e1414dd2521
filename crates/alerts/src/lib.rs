//! Alerts: one message, delivered to one target.
//!
//! A target is a webhook, a Slack-compatible webhook or a mailbox. Where messages come from, which
//! of them were delivered and when one is tried again is the business of whoever calls: this crate
//! knows no database. It says what it can about a failure, above all whether another try makes
//! sense, and it has the rule for that ([`backoff`]).
//!
//! Targets are typed in by people, so they are not trusted with our network: see [`address`].

pub mod address;
mod connect;
mod email;
mod error;
mod message;
mod retry;
mod sender;
mod slack;
mod target;
mod webhook;

pub use connect::{Resolver, Resolving, SystemResolver};
pub use error::DeliveryError;
pub use message::{Kind, Message};
pub use retry::{MOST_ATTEMPTS, backoff};
pub use sender::{Receipt, Sender, Settings};
pub use target::{BadTarget, Secret, Target};
pub use webhook::sign;
