//! The reader: lines in, traces out, one at a time.
//!
//! A file of gigabytes is never in memory as a whole: traces on lines are handed out as they come.
//! Two things need more, and have a limit: a document over many lines ([`MAX_LINE`], as for one
//! line), and a transcript, whose sessions are only complete at the end ([`MAX_TRANSCRIPT`]; from
//! there on they are handed out in pieces, with an error that says so).

use std::collections::VecDeque;
use std::io::{self, BufRead, Read};

use serde_json::error::Category;

use super::record::{Kind, Record, Top};
use super::transcript::Sessions;
use super::{Trace, assemble};

/// The longest line, and the longest document over many lines, that is read: 256 MiB.
pub const MAX_LINE: usize = 256 << 20;

/// The most that is kept of a transcript before its sessions are handed out: 1 GiB of lines.
pub const MAX_TRANSCRIPT: usize = 1 << 30;

/// So many lines may make no sense before the first that does; a file that is something else
/// altogether is not read to its end.
const MAX_STRANGE: usize = 20;

/// A buffer that grew beyond this for one line is given back.
const KEPT_BUFFER: usize = 4 << 20;

const EXPECTED: &str = "expected traces as JSON lines (`{\"messages\": [...]}`), a list of OpenAI \
     or Anthropic messages, or a Claude Code transcript; unpack it first if it is compressed";

/// A line that could not be read. Reading goes on with the next one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadLine {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it and what to do about it.
    pub problem: String,
}

/// Reads recorded runs from any of the formats that [the module](super) lists.
///
/// ```
/// use deadstop_protocol::trace::{Reader, Turn};
///
/// let recorded = br#"{"id": "run 7", "messages": [{"role": "user", "content": "Hello"}]}"#;
/// let traces: Result<Vec<_>, _> = Reader::new(&recorded[..]).collect();
/// let traces = traces?;
/// assert_eq!(traces[0].id, "run 7");
/// assert!(matches!(&traces[0].turns[0], Turn::Prompt { person: true, .. }));
/// # Ok::<(), deadstop_protocol::trace::BadLine>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// The number of the last line that was read.
    line: usize,
    buffer: Vec<u8>,
    ready: VecDeque<Result<Trace, BadLine>>,
    sessions: Sessions,
    phase: Phase,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) line: usize,
    pub(super) transcript: usize,
}

#[derive(Debug)]
enum Phase {
    /// Nothing made sense yet; these lines did not.
    Looking(Vec<BadLine>),
    /// Something did, so that a line that does not is a bad line among good ones.
    Reading,
    /// The end was reached or is as good as reached.
    Done,
}

enum LineRead {
    Read,
    TooLong,
    End,
}

impl<R: BufRead> Reader<R> {
    /// A reader of what is left of `input`, which is not compressed.
    pub fn new(input: R) -> Reader<R> {
        Reader::with_limits(input, Limits { line: MAX_LINE, transcript: MAX_TRANSCRIPT })
    }

    pub(super) fn with_limits(input: R, limits: Limits) -> Reader<R> {
        Reader {
            input,
            line: 0,
            buffer: Vec::new(),
            ready: VecDeque::new(),
            sessions: Sessions::default(),
            phase: Phase::Looking(Vec::new()),
            limits,
        }
    }

    /// Reads one line and makes of it what can be made.
    fn step(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER);
        match self.read_line() {
            Ok(LineRead::Read) => {}
            Ok(LineRead::TooLong) => return self.bad(self.line, self.too_long("this line")),
            Ok(LineRead::End) => return self.end(),
            Err(error) => return self.fail(&error),
        }
        let buffer = std::mem::take(&mut self.buffer);
        let document = self.take_line(&buffer);
        self.buffer = buffer;
        if document {
            self.read_document();
        }
    }

    /// Takes a line; true if it seems to be the beginning of a document over many lines.
    fn take_line(&mut self, line: &[u8]) -> bool {
        let text = match text_of(line) {
            Ok(text) => text,
            Err(problem) => {
                self.bad(self.line, problem);
                return false;
            }
        };
        if text.is_empty() {
            return false;
        }
        match serde_json::from_str(text) {
            Ok(top) => self.accept(top, line.len(), self.line),
            Err(error) if error.is_eof() && self.is_first() => return true,
            Err(error) => self.bad(self.line, problem_of(&error)),
        }
        false
    }

    /// Goes on after a first line that is no JSON by itself. If it begins an object and the next
    /// line is a trace or an event, then it was only cut short; otherwise the file is a document.
    fn read_document(&mut self) {
        let (first, start) = (self.line, self.buffer.len());
        let mut second = start;
        while self.buffer[second..].trim_ascii().is_empty() {
            second = self.buffer.len();
            match self.read_line() {
                Ok(LineRead::Read) => {}
                Ok(LineRead::TooLong) => {
                    self.bad(first, CUT.to_owned());
                    return self.bad(self.line, self.too_long("this line"));
                }
                Ok(LineRead::End) => break,
                Err(error) => return self.fail(&error),
            }
        }
        let buffer = std::mem::take(&mut self.buffer);
        let (head, tail) = buffer.split_at(second);
        let of_lines = text_of(head).is_ok_and(|head| head.starts_with('{'))
            && text_of(tail).is_ok_and(|tail| {
                let Ok(Top::One(record)) = serde_json::from_str(tail) else { return false };
                matches!(record.kind(), Kind::Trace | Kind::Event)
            });
        if of_lines {
            self.bad(first, CUT.to_owned());
            self.take_line(tail);
            self.buffer = buffer;
            return;
        }
        self.buffer = buffer;
        let room = self.limits.line.saturating_sub(self.buffer.len()).saturating_add(1);
        if let Err(error) = self.input.by_ref().take(room as u64).read_to_end(&mut self.buffer) {
            return self.fail(&error);
        }
        if self.buffer.len() > self.limits.line {
            self.bad(first, self.too_long("this JSON document"));
        } else {
            let buffer = std::mem::take(&mut self.buffer);
            self.take_document(&buffer, first);
        }
        self.end();
    }

    /// Takes a document: one JSON value, or several after each other.
    fn take_document(&mut self, document: &[u8], first: usize) {
        let text = match text_of(document) {
            Ok(text) => text,
            Err(problem) => return self.bad(first, problem),
        };
        let mut values = serde_json::Deserializer::from_str(text).into_iter();
        let (mut from, mut line) = (0, first);
        while let Some(value) = values.next() {
            let to = values.byte_offset();
            match value {
                Ok(top) => {
                    let value = &text[from..to];
                    let space = &value[..value.len() - value.trim_ascii_start().len()];
                    self.accept(top, to - from, line + space.matches('\n').count());
                    line += value.matches('\n').count();
                }
                Err(error) => {
                    let line = first + error.line().saturating_sub(1);
                    self.bad(line, problem_of(&error));
                }
            }
            from = to;
        }
    }

    /// Sorts what was read: traces are ready, events and messages are kept for their session.
    fn accept(&mut self, top: Top<'_>, bytes: usize, line: usize) {
        match top {
            Top::One(record) => self.accept_one(*record, bytes, line, || format!("line-{line}")),
            Top::Many(records) => {
                let is_list = !records.is_empty()
                    && records.iter().any(|record| matches!(record.kind(), Kind::Message))
                    && !records.iter().any(|r| matches!(r.kind(), Kind::Trace | Kind::Event));
                if is_list {
                    let list = Record { messages: Some(records), ..Record::default() };
                    return self.accept_one(list, bytes, line, || format!("line-{line}"));
                }
                let share = bytes / records.len().max(1);
                for (number, record) in records.into_iter().enumerate() {
                    let name = || format!("line-{line}-{}", number + 1);
                    self.accept_one(record, share, line, name);
                }
            }
        }
    }

    fn accept_one(
        &mut self,
        record: Record<'_>,
        bytes: usize,
        line: usize,
        name: impl FnOnce() -> String,
    ) {
        match record.kind() {
            Kind::Trace => {
                self.found();
                self.ready.push_back(Ok(assemble::trace(record, name)));
            }
            Kind::Event => {
                self.found();
                self.sessions.add_event(record, bytes, line);
                self.limit_transcript(line);
            }
            Kind::Message => {
                self.found();
                self.sessions.add_message(record, bytes, line);
                self.limit_transcript(line);
            }
            Kind::Strange { typed: true } if matches!(self.phase, Phase::Reading) => {}
            Kind::Strange { .. } => {
                let problem = "no trace, no message and no event of a transcript: remove this line";
                self.bad(line, problem.to_owned());
            }
        }
    }

    fn limit_transcript(&mut self, line: usize) {
        if self.sessions.bytes() <= self.limits.transcript {
            return;
        }
        self.ready.extend(self.sessions.take().map(Ok));
        let problem = format!(
            "the transcript is longer than {} MiB: its sessions are cut here and go on as traces \
             of their own; split the file to keep them whole",
            self.limits.transcript >> 20
        );
        self.bad(line, problem);
    }

    fn is_first(&self) -> bool {
        matches!(&self.phase, Phase::Looking(strange) if strange.is_empty())
    }

    /// Something made sense, so the lines before it that did not are bad lines.
    fn found(&mut self) {
        if let Phase::Looking(strange) = &mut self.phase {
            self.ready.extend(strange.drain(..).map(Err));
            self.phase = Phase::Reading;
        }
    }

    fn bad(&mut self, line: usize, problem: String) {
        let bad = BadLine { line, problem };
        match &mut self.phase {
            Phase::Looking(strange) => {
                strange.push(bad);
                if strange.len() >= MAX_STRANGE {
                    self.end();
                }
            }
            Phase::Reading => self.ready.push_back(Err(bad)),
            Phase::Done => {}
        }
    }

    /// Hands out what is left.
    fn end(&mut self) {
        if let Phase::Looking(strange) = &self.phase
            && let Some(first) = strange.first()
        {
            let problem = format!("no recorded run found: {}; {EXPECTED}", first.problem);
            self.ready.push_back(Err(BadLine { line: first.line, problem }));
        }
        self.ready.extend(self.sessions.take().map(Ok));
        self.phase = Phase::Done;
    }

    fn fail(&mut self, error: &io::Error) {
        self.found();
        self.end();
        let problem = format!("cannot be read: {error}; check the file, or unpack it again");
        self.ready.push_back(Err(BadLine { line: self.line + 1, problem }));
    }

    /// Adds the next line to the buffer, or reads over it if it is too long.
    fn read_line(&mut self) -> io::Result<LineRead> {
        let most = self.limits.line.saturating_add(1) as u64;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut self.buffer)?;
        if read == 0 {
            return Ok(LineRead::End);
        }
        self.line += 1;
        if read <= self.limits.line || self.buffer.ends_with(b"\n") {
            return Ok(LineRead::Read);
        }
        self.buffer.clear();
        self.input.skip_until(b'\n')?;
        Ok(LineRead::TooLong)
    }

    fn too_long(&self, what: &str) -> String {
        format!("{what} is longer than {} MiB: cut its longest texts", self.limits.line >> 20)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Trace, BadLine>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !matches!(self.phase, Phase::Done) {
            self.step();
        }
        self.ready.pop_front()
    }
}

const CUT: &str = "ends in the middle: the recording was cut short here; remove this line";

/// The line as text, without the space around it and the mark that some editors put first.
fn text_of(line: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(line).map_err(|error| {
        format!("not UTF-8 at byte {}: convert it to UTF-8", error.valid_up_to() + 1)
    })?;
    Ok(text.trim_start_matches('\u{feff}').trim_ascii())
}

fn problem_of(error: &serde_json::Error) -> String {
    if error.classify() == Category::Eof {
        return CUT.to_owned();
    }
    let full = error.to_string();
    let what = full.rsplit_once(" at line ").map_or(full.as_str(), |(what, _)| what);
    let column = error.column();
    match error.classify() {
        Category::Data => format!("not as expected at column {column}: {what}; correct it"),
        _ => format!("not JSON at column {column}: {what}; correct or remove this line"),
    }
}
