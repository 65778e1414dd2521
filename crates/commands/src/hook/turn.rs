//! Ends the turn of a host whose hooks cannot, and says why where its user reads.
//!
//! Codex and Copilot take a refusal of a tool and ask their model again, without end. The first refusal
//! after a stop goes to the model alone, which may finish by itself. At the second one the host is
//! interrupted, as Ctrl-C would. A host that reads keys itself (a full-screen one) is left alone: its
//! user sees the refusals, and a signal would leave the terminal in disorder.

use deadstop_gate::{Gate, ScopePath};
use deadstop_process::Caller;
use deadstop_protocol::hook::{Event, Host, Moment, Reply};
use deadstop_protocol::told;

/// The key under which it is noted that the model was told of the stop.
const TOLD: &str = "told of the stop";

/// Does what the answer to this event cannot do.
pub(super) fn end(host: Host, gate: &Gate, place: &ScopePath, event: &Event, reply: &Reply) {
    let Reply::End(why) = reply else { return };
    let moment = host.moment(&event.name);
    // Claude Code and Qwen Code end their turn, but print nothing without a terminal; nor does
    // `codex exec` for a session that is taken up again.
    let silent = matches!(
        (host, moment),
        (Host::ClaudeCode, Moment::Stop | Moment::Prompt)
            | (Host::Codex, Moment::Start | Moment::Prompt)
            | (Host::Qwen, Moment::Prompt)
    );
    let goes_on = !host.ends_turn(moment) && matches!(moment, Moment::Before | Moment::Prompt);
    if !silent && !goes_on {
        return;
    }
    if moment == Moment::Before && gate.recall(place, TOLD).is_none() {
        gate.remember(place, TOLD, "once");
        return;
    }
    let Some(caller) = Caller::named(host.programs()).filter(Caller::takes_interrupts) else {
        return;
    };
    caller.tell(&told::sentence(why));
    if goes_on {
        // It may be another user's: then its model goes on and is refused.
        let _ = caller.interrupt();
    }
}
