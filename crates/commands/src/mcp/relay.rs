//! Between a client and a server: lines pass as they are, tool calls are judged first.
//!
//! One thread reads from the client and judges what it has read, so that later messages cannot
//! overtake a call, and no thread waits for another. If judging takes longer than [`PATIENCE`],
//! because the call is held, another thread takes its place and reads on.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use deadstop_core::{Digest, Outcome, Status, Verdict};
use deadstop_gate::{Ask, By, Gate, Judgement, ScopePath, Told};
use deadstop_protocol::mcp::{self, Envelope, Message, Unnamed, Why};
use serde_json::json;

use super::flights::{Flight, Flights, Ours};

/// How long later messages wait for a call to be judged.
const PATIENCE: Duration = Duration::from_millis(500);
/// A call that runs for longer is watched: an operator may stop it.
const QUICK: Duration = Duration::from_millis(100);
/// How often the watcher looks, and how long it goes on without a call before it parks.
const LOOK: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_secs(2);
/// How long one question about a call that runs, or is held, waits for its answer.
const WAIT: Duration = Duration::from_secs(20);
/// How often a person's decision is polled.
const WORD: Duration = Duration::from_millis(250);
/// How long an answer waits for what the guards say about it. A slower server is not waited for, and
/// the model is told with a later result.
const ADVISED: Duration = Duration::from_millis(250);
/// Why a message of the server does not pass: two clients could read it in two ways.
const AMBIGUOUS: &str = "the server's message has more than one meaning (a member that is there twice, for example), \
    so it was not passed on";
/// How long a call is held while its session is paused.
const HOLD: Duration = Duration::from_secs(300);

/// A relay between both ends.
pub(super) struct Relay {
    gate: Gate,
    place: ScopePath,
    server: String,
    timeout: Duration,
    json: bool,
    to_server: Mutex<Option<Box<dyn Write + Send>>>,
    to_client: Mutex<Box<dyn Write + Send>>,
    from_client: Mutex<Option<Ear>>,
    turn: Mutex<Turn>,
    flights: Mutex<Flights>,
    /// Calls whose ends are told now.
    settling: Mutex<usize>,
    settled: Condvar,
    ends: Sender<End>,
    watcher: Mutex<Option<thread::Thread>>,
    number: AtomicU64,
    /// Makes the ids of this process unique.
    run: String,
}

/// What the client says, and what is done when it says no more.
struct Ear {
    lines: Box<dyn BufRead + Send>,
    gone: Box<dyn FnOnce() + Send>,
}

/// Whose turn it is to read from the client.
#[derive(Default)]
struct Turn {
    number: u64,
    /// Since when the reading thread judges a call.
    judging: Option<Instant>,
}

/// How a call ended.
struct End {
    ours: Ours,
    outcome: Outcome,
    text: String,
    /// Hears what the model should be told because of the result.
    advice: Option<Sender<Option<String>>>,
}

/// A call that may run.
struct Admitted<'m, 'a> {
    message: &'m Message<'a>,
    ours: Ours,
    advice: Option<String>,
    /// Its span, where the server exports it.
    span: Option<String>,
}

/// What a relay is told.
pub(super) struct Setup {
    pub(super) gate: Gate,
    pub(super) place: ScopePath,
    pub(super) server: String,
    pub(super) timeout: Duration,
    pub(super) json: bool,
    pub(super) run: String,
    pub(super) to_server: Box<dyn Write + Send>,
    pub(super) to_client: Box<dyn Write + Send>,
}

/// A lock whose holder cannot have left anything half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    pub(super) fn new(setup: Setup) -> Arc<Relay> {
        let (ends, told) = mpsc::channel();
        let relay = Arc::new(Relay {
            gate: setup.gate,
            place: setup.place,
            server: setup.server,
            timeout: setup.timeout,
            json: setup.json,
            to_server: Mutex::new(Some(setup.to_server)),
            to_client: Mutex::new(setup.to_client),
            from_client: Mutex::new(None),
            turn: Mutex::default(),
            flights: Mutex::default(),
            settling: Mutex::new(0),
            settled: Condvar::new(),
            ends,
            watcher: Mutex::new(None),
            number: AtomicU64::new(0),
            run: setup.run,
        });
        let settling = Arc::clone(&relay);
        thread::spawn(move || settling.settle(&told));
        let watching = Arc::clone(&relay);
        let watcher = thread::spawn(move || watching.watch());
        *lock(&relay.watcher) = Some(watcher.thread().clone());
        relay
    }

    /// Passes on what the client says, in the background, until it says no more.
    pub(super) fn hear_client(
        self: &Arc<Relay>,
        client: impl BufRead + Send + 'static,
        gone: impl FnOnce() + Send + 'static,
    ) {
        *lock(&self.from_client) = Some(Ear { lines: Box::new(client), gone: Box::new(gone) });
        let relay = Arc::clone(self);
        thread::spawn(move || relay.read_on(0));
    }

    /// Reads from the client as long as it is this thread's turn.
    fn read_on(&self, turn: u64) {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = match &mut *lock(&self.from_client) {
                Some(ear) => ear.lines.read_until(b'\n', &mut line),
                None => return,
            };
            match read {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if line.trim_ascii().is_empty() {
                self.send(&line);
                continue;
            }
            let envelope = match mcp::read(&line) {
                Ok(envelope) => envelope,
                Err(problem) => {
                    self.answer(&mcp::unreadable(&problem.to_string()));
                    continue;
                }
            };
            let messages = envelope.messages();
            for message in messages.iter().filter(|message| message.asks_for(mcp::LIST)) {
                if let Some((key, id)) = message.key().zip(message.id) {
                    lock(&self.flights).list(key, id);
                }
            }
            if !messages.iter().any(|m| m.asks_for(mcp::CALL) || m.is_governed()) {
                self.send(&line);
                continue;
            }
            lock(&self.turn).judging = Some(Instant::now());
            self.wake_watcher();
            self.judge(&line, &envelope);
            let mut now = lock(&self.turn);
            if now.number != turn {
                return;
            }
            now.judging = None;
        }
        // Nothing more will be said to the server.
        *lock(&self.to_server) = None;
        let ear = lock(&self.from_client).take();
        ear.into_iter().for_each(|ear| (ear.gone)());
    }

    /// Passes on what the server says, until it says no more.
    pub(super) fn hear_server(&self, mut server: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match server.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let (changed, ends) = self.read(&line);
            *lock(&self.settling) += ends.len();
            match changed {
                Passes::AsItIs => self.tell(&line),
                Passes::As(other) => self.answer(&other),
                Passes::Never => {}
            }
            for end in ends {
                let _ = self.ends.send(end);
            }
        }
        let text = "the MCP server has ended before it answered";
        let open = lock(&self.flights).keys();
        for key in open {
            self.fail(key, "server_died", text);
        }
    }

    /// Reads what the server says.
    fn read(&self, line: &[u8]) -> (Passes, Vec<End>) {
        if let Ok(envelope) = mcp::read(line) {
            return self.heard(line, &envelope);
        }
        // What is no JSON to any client is a message to none.
        let Some(strict) = mcp::strictly(line) else { return (Passes::AsItIs, Vec::new()) };
        match mcp::read(&strict) {
            Ok(envelope) => self.heard(&strict, &envelope),
            Err(_) => self.left_out(AMBIGUOUS),
        }
    }

    /// Leaves a message out, and ends what waits for an answer: it may have been that.
    fn left_out(&self, why: &str) -> (Passes, Vec<End>) {
        let open = lock(&self.flights).keys();
        for key in open {
            self.fail(key, "answer_unreadable", why);
        }
        let lists = lock(&self.flights).lists();
        for id in lists {
            self.answer(&mcp::failure(&id, "answer_unreadable", why));
        }
        self.say(why);
        (Passes::Never, Vec::new())
    }

    fn heard(&self, line: &[u8], envelope: &Envelope<'_>) -> (Passes, Vec<End>) {
        let (mut passes, mut ends) = (Passes::AsItIs, Vec::new());
        let alone = matches!(envelope, Envelope::One(_));
        for message in envelope.messages().iter().filter(|message| message.is_answer()) {
            let Some(key) = message.key() else { continue };
            let (flight, dead) = {
                let mut flights = lock(&self.flights);
                (flights.answered(key), flights.is_dead(key))
            };
            // A listing is judged whichever request it seems to answer: clients do not agree on which ids are equal.
            let listing = message.result.filter(|_| flight.is_none());
            if listing.is_some_and(mcp::lists_unreadably) {
                return self.left_out(AMBIGUOUS);
            }
            lock(&self.flights).listed(key);
            if let Some(flight) = flight {
                let mcp::Ended { outcome, text } = mcp::ended(message);
                let end = End { ours: flight.ours, outcome, text, advice: None };
                if alone {
                    let line = line.trim_ascii_end();
                    let advice = self.advised(end).or(flight.advice);
                    let noted = advice.and_then(|advice| mcp::noted(line, message, &advice));
                    passes = noted.map_or(Passes::AsItIs, Passes::As);
                } else {
                    ends.push(end);
                }
            }
            if listing.is_some()
                && let Some(narrowed) = self.narrowed(message, line.trim_ascii_end())
            {
                passes = Passes::As(narrowed);
            }
            if dead && alone {
                passes = Passes::Never;
            }
        }
        (passes, ends)
    }

    /// Settles a call before its answer passes: gives what the model should be told because of it.
    fn advised(&self, end: End) -> Option<String> {
        let (heard, advice) = mpsc::channel();
        *lock(&self.settling) += 1;
        let _ = self.ends.send(End { advice: Some(heard), ..end });
        advice.recv_timeout(ADVISED).ok().flatten()
    }

    fn narrowed(&self, message: &Message<'_>, line: &[u8]) -> Option<Vec<u8>> {
        let listing = mcp::listing(message.result?)?;
        let judged = self.gate.listed(&self.place, &self.server, &listing);
        for tool in &judged.changed {
            let what = "changed its description, or added it later";
            self.say(&format!("{} {what}: {tool}", self.server));
        }
        for tool in listing.tools.iter().filter(|tool| !tool.invisible.is_empty()) {
            let what = "its description contains invisible characters";
            self.say(&format!("the tool {} of {} is odd: {what}", tool.name, self.server));
        }
        listing.narrowed(line, |name| judged.hidden.iter().any(|hidden| hidden == name))
    }

    /// Judges the calls of a line, and sends it on or answers it.
    fn judge(&self, line: &[u8], envelope: &Envelope<'_>) {
        let messages = envelope.messages();
        let mut whys: Vec<Option<Why>> = vec![None; messages.len()];
        let mut admitted = Vec::new();
        let dead = self.dead(messages);
        for (message, why) in messages.iter().zip(&mut whys) {
            if !message.asks_for(mcp::CALL) {
                *why = dead.clone().filter(|_| message.is_governed());
                continue;
            }
            let Some(asked) = mcp::asked(message) else {
                self.answer(&mcp::unreadable_call(message.id.unwrap_or("null")));
                self.give_up(admitted);
                return;
            };
            let id = format!("{}-{}", self.run, self.number.fetch_add(1, Ordering::Relaxed));
            let trace = mcp::in_trace(message).map(|said| said.parent.into_owned());
            let ours = Ours { id, trace };
            let answer = self.ask(&ours, asked);
            if let Some(notice) = &answer.notice {
                self.say(notice);
            }
            match answer.allowed() {
                true => {
                    let steers = answer.verdict == Verdict::Steer;
                    let advice = answer.trips.into_iter().find_map(|trip| trip.advice);
                    let (advice, span) = (advice.filter(|_| steers), answer.span);
                    admitted.push(Admitted { message, ours, advice, span });
                }
                false => *why = Some(self.refused(&answer)),
            }
        }
        if whys.iter().all(Option::is_none) {
            // There are no headers here: the server can read our span in the message only.
            let spans = admitted.iter().filter_map(|one| Some((one.message, one.span.as_deref()?)));
            let traced = mcp::traced(line, &spans.collect::<Vec<_>>(), Unnamed::IsNamed);
            let mut flights = lock(&self.flights);
            for Admitted { message, ours, advice, .. } in admitted {
                // A notification gets no answer, so its call ends as soon as it is sent.
                let Some((id, key)) = message.id.zip(message.key()) else {
                    self.end(ours, Status::Cancelled, "");
                    continue;
                };
                let id = id.to_owned();
                let since = Instant::now();
                flights.call(key, Flight { id, ours, since, watched: false, advice });
            }
            drop(flights);
            self.send(traced.as_deref().unwrap_or(line));
            return;
        }
        self.give_up(admitted);
        let refusal = match envelope {
            Envelope::One(message) => message
                .id
                .zip(whys.into_iter().flatten().next())
                .map(|(id, why)| mcp::refuse(id, &why)),
            Envelope::Batch(messages) => mcp::refuse_all(messages, &whys),
        };
        if let Some(refusal) = refusal {
            self.answer(&refusal);
        }
    }

    /// Why requests other than tool calls are refused, if their session is dead.
    fn dead(&self, messages: &[Message<'_>]) -> Option<Why> {
        let is_other = |m: &Message<'_>| m.is_governed() && !m.asks_for(mcp::CALL);
        if !messages.iter().any(is_other) {
            return None;
        }
        let answer = self.gate.standing(&self.place, None);
        (answer.verdict == Verdict::Kill).then(|| self.refused(&answer))
    }

    /// Asks the gate about one call. If the session is paused, the call is held.
    fn ask(&self, ours: &Ours, asked: mcp::Asked) -> Judgement {
        // Calls that ended earlier are settled first, so that they count.
        let mut settling = lock(&self.settling);
        while *settling > 0 {
            settling = self.settled.wait(settling).unwrap_or_else(PoisonError::into_inner);
        }
        drop(settling);
        let ask = Ask {
            place: self.place.clone(),
            id: ours.id.clone(),
            tool: asked.name,
            server: Some(self.server.clone()),
            arguments: asked.arguments,
            cwd: std::env::current_dir().ok(),
            spawns: false,
            trace: ours.trace.clone(),
        };
        let until = Instant::now() + HOLD;
        loop {
            let answer = self.gate.ask_held(&ask, WAIT);
            // A person was asked; the server knows when that has taken too long.
            if answer.verdict == Verdict::Ask && answer.by == By::Server {
                thread::sleep(WORD);
                continue;
            }
            let paused = answer.trips.first().is_some_and(|trip| trip.guard == "paused");
            if !paused || Instant::now() >= until {
                return answer;
            }
        }
    }

    fn refused(&self, answer: &Judgement) -> Why {
        let first = answer.trips.first();
        let (guard, reason) = first.map_or(("", "refused"), |trip| (&trip.guard, &trip.reason));
        let mut why = Why::said(answer.verdict, guard, reason, &answer.why());
        why.incident.clone_from(&answer.incident);
        self.say(&why.sentence);
        why
    }

    /// Calls that were admitted and are not sent on.
    fn give_up(&self, admitted: Vec<Admitted<'_, '_>>) {
        for Admitted { ours, .. } in admitted {
            self.end(ours, Status::Cancelled, "");
        }
    }

    /// Tells how a call ended, in the background.
    fn end(&self, ours: Ours, status: Status, text: &str) {
        *lock(&self.settling) += 1;
        let outcome = Outcome { status, ..Outcome::default() };
        let _ = self.ends.send(End { ours, outcome, text: text.to_owned(), advice: None });
    }

    fn settle(&self, told: &Receiver<End>) {
        while let Ok(End { ours, outcome, text, advice }) = told.recv() {
            let told = Told { outcome: &outcome, text: &text, trace: ours.trace.as_deref() };
            let answer = self.gate.settle_soon(&self.place, &ours.id, told);
            if let Some(heard) = advice {
                let steers = answer.verdict == Verdict::Steer;
                let advice = answer.trips.into_iter().find_map(|trip| trip.advice);
                // The answer may have passed already.
                let _ = heard.send(advice.filter(|_| steers));
            }
            let mut settling = lock(&self.settling);
            *settling -= 1;
            if *settling == 0 {
                self.settled.notify_all();
            }
        }
    }

    /// Waits until everything that ended is told.
    pub(super) fn flush(&self, patience: Duration) {
        let settling = lock(&self.settling);
        let _ = self.settled.wait_timeout_while(settling, patience, |settling| *settling > 0);
    }

    /// Looks after long calls: an operator may stop them, and some time out.
    fn watch(self: &Arc<Relay>) {
        let mut busy = Instant::now();
        loop {
            match busy.elapsed() < IDLE {
                true => thread::sleep(LOOK),
                false => thread::park(),
            }
            if self.take_turn() {
                busy = Instant::now();
            }
            let (unwatched, late) = {
                let mut flights = lock(&self.flights);
                if flights.has_calls() {
                    busy = Instant::now();
                }
                let unwatched = flights.unwatched(|flight| flight.since.elapsed() > QUICK);
                (unwatched, flights.late(|flight| flight.since.elapsed() > self.timeout))
            };
            for (key, ours) in unwatched {
                let relay = Arc::clone(self);
                thread::spawn(move || relay.watch_one(key, &ours));
            }
            for key in late {
                self.fail(key, "timeout", "the MCP server did not answer in time");
            }
        }
    }

    /// Lets another thread read on where a call is held; true while a call is being judged.
    fn take_turn(self: &Arc<Relay>) -> bool {
        let mut turn = lock(&self.turn);
        let Some(since) = turn.judging else { return false };
        if since.elapsed() > PATIENCE {
            let next = turn.number + 1;
            *turn = Turn { number: next, judging: None };
            let relay = Arc::clone(self);
            thread::spawn(move || relay.read_on(next));
        }
        true
    }

    fn wake_watcher(&self) {
        if let Some(watcher) = &*lock(&self.watcher) {
            watcher.unpark();
        }
    }

    fn watch_one(&self, key: Digest, ours: &Ours) {
        while lock(&self.flights).runs(key, ours) {
            if let Some(answer) = self.gate.watch(&self.place, &ours.id, WAIT) {
                // The call may have ended meanwhile: then the watch ends as well.
                if !lock(&self.flights).runs(key, ours) {
                    return;
                }
                let Some(flight) = lock(&self.flights).take(key) else { return };
                let why = self.refused(&answer);
                self.answer(&mcp::refuse(&flight.id, &why));
                self.send(&with_newline(mcp::cancelled(&flight.id, "stopped by deadstop")));
                self.end(flight.ours, Status::Cancelled, "");
                return;
            }
        }
    }

    /// Ends a call that got no answer.
    fn fail(&self, key: Digest, reason: &str, text: &str) {
        let Some(flight) = lock(&self.flights).take(key) else { return };
        self.answer(&mcp::failure(&flight.id, reason, text));
        self.send(&with_newline(mcp::cancelled(&flight.id, text)));
        self.say(text);
        self.end(flight.ours, Status::Fault, text);
    }

    /// Whether calls are under way.
    pub(super) fn is_busy(&self) -> bool {
        lock(&self.flights).has_calls()
    }

    /// To the server, as it is.
    fn send(&self, line: &[u8]) {
        if let Some(server) = &mut *lock(&self.to_server) {
            // A server that is gone is noticed at its other end.
            let _ = server.write_all(line).and_then(|()| server.flush());
        }
    }

    /// To the client, as it is.
    fn tell(&self, line: &[u8]) {
        let mut client = lock(&self.to_client);
        let _ = client.write_all(line).and_then(|()| client.flush());
    }

    /// To the client, in the server's place.
    fn answer(&self, message: &[u8]) {
        self.tell(&with_newline(message.to_vec()));
    }

    /// To the user, on stderr.
    fn say(&self, text: &str) {
        let line = match self.json {
            true => json!({ "deadstop": text, "server": self.server }).to_string(),
            false => crate::ui::printable(text),
        };
        let named = line.starts_with("deadstop") || line.starts_with("Deadstop");
        let mark = if self.json || named { "" } else { "deadstop: " };
        eprintln!("{mark}{line}");
    }
}

enum Passes {
    AsItIs,
    As(Vec<u8>),
    Never,
}

fn with_newline(mut message: Vec<u8>) -> Vec<u8> {
    message.push(b'\n');
    message
}
