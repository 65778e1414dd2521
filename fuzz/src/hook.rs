//! Hooks: a refusal of a call is one in the host's own words, whatever the event said.

use deadstop_protocol::hook::{Host, Kind, Reply};

/// The first byte chooses the host; the event follows.
pub fn check(data: &[u8]) {
    let Some((first, event)) = data.split_first() else { return };
    let host = Host::ALL[usize::from(*first) % Host::ALL.len()];
    let names = host.events();
    let (told, _) = names[usize::from(*first) / Host::ALL.len() % names.len()];
    for name in [None, Some(told)] {
        let Ok(event) = host.read(event, name) else { continue };
        let say = |reply: &Reply| host.refuses(&event.name, &host.answer(&event.name, reply));
        for reply in [Reply::Warn("w".into()), Reply::Steer("s".into()), Reply::Pass] {
            assert!(!say(&reply), "{host:?} takes {reply:?} to {event:?} for a refusal");
        }
        if matches!(event.kind, Kind::Before(_)) {
            for reply in [Reply::Refuse("no \"more\"\n".into()), Reply::End("over".into())] {
                assert!(say(&reply), "{host:?} does not hear {reply:?} to {event:?}");
            }
        }
    }
}
