//! What a session remembers of its requests, so that a growing history costs what is new in it.
//!
//! A model is sent the whole conversation again with every request. Each message is digested as it
//! lies in the body, chained to those before it; the *head* of a conversation is the last link of
//! that chain. A request whose chain runs through a head that is known repeats everything up to
//! there, and only what follows is read.
//!
//! A session may hold several conversations at once (sub-agents, the request for a title), so the
//! newest head of each of the last [`HEADS`] is kept. A history that was rewritten (compacted,
//! edited, or with a cache mark moved) runs through no head: then what follows the model's last
//! message is new, as it is in a first request.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Conversations that a session remembers.
const HEADS: usize = 64;

/// What a session remembers of its requests: at most 2 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    /// The one used last at the end.
    heads: VecDeque<Head>,
}

/// How far a conversation went when it was last sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// How many messages it had.
    pub messages: u32,
    /// The last link of their chain.
    chain: u64,
    /// Tokens that the estimate by size counts too many in them: see `attachment`.
    pub discount: u64,
    /// What the conversation is recognised by, whatever becomes of its history; 0 if nothing.
    root: u64,
}

impl Seen {
    /// The head that this chain runs through, if one does: the one furthest on.
    pub(super) fn recognise(&self, chain: &[u64]) -> Option<Head> {
        let through = |head: &&Head| {
            let last = (head.messages as usize).checked_sub(1);
            last.and_then(|last| chain.get(last)) == Some(&head.chain)
        };
        self.heads.iter().filter(through).max_by_key(|head| head.messages).copied()
    }

    /// Whether a conversation that no head leads to is a known one with a shorter history.
    pub(super) fn shortened(&self, root: u64, messages: usize) -> bool {
        let same = |head: &&Head| root != 0 && head.root == root;
        let known = self.heads.iter().rev().find(same);
        known.is_some_and(|head| messages < head.messages as usize)
    }

    /// Puts the new head of a conversation in the place of the one it was recognised by.
    pub(super) fn remember(
        &mut self,
        before: Option<Head>,
        chain: &[u64],
        (discount, root): (u64, u64),
    ) {
        let (Some(&last), Ok(messages)) = (chain.last(), u32::try_from(chain.len())) else {
            return;
        };
        if let Some(before) = before {
            self.heads.retain(|head| *head != before);
        }
        if self.heads.len() >= HEADS {
            self.heads.pop_front();
        }
        self.heads.push_back(Head { messages, chain: last, discount, root });
    }
}

/// The chain of a conversation: a link a message, each standing for all up to it.
pub(super) fn chain(messages: &[&RawValue]) -> Vec<u64> {
    let mut link = 0;
    let step = |message: &&RawValue| {
        link = xxh3_64_with_seed(message.get().as_bytes(), link);
        link
    };
    messages.iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_told_apart_and_memory_is_bounded() {
        let mut seen = Seen::default();
        for step in 1..=1000u64 {
            let chain: Vec<u64> = (0..step % 90 + 1).map(|i| step % 100 * 1000 + i).collect();
            let before = seen.recognise(&chain);
            seen.remember(before, &chain, (u64::MAX, step % 100 + 1));
            assert_eq!(seen.recognise(&chain).unwrap().messages as usize, chain.len());
            assert!(seen.heads.len() <= HEADS);
        }
        assert!(serde_json::to_vec(&seen).unwrap().len() < 8 * 1024);
        assert!(size_of::<Head>() * HEADS <= 2048);
        assert_eq!(seen.recognise(&[]), None);
        assert_eq!(Seen::default().recognise(&[1, 2]), None);
    }
}
