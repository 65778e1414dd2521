//! What is told.

use deadstop_core::Time;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A scope was ended.
    Kill,
    /// A guard fired without ending anything.
    Trip,
    /// A budget is nearly used up.
    BudgetWarning,
    /// A circuit breaker opened.
    BreakerOpen,
    /// A call waits for a person.
    Approval,
    /// Deadstop itself works with a part missing.
    Degraded,
    /// An operator tests the target.
    Test,
}

impl Kind {
    /// Its name in the API and in webhooks.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Trip => "trip",
            Self::BudgetWarning => "budget_warning",
            Self::BreakerOpen => "breaker_open",
            Self::Approval => "approval",
            Self::Degraded => "degraded",
            Self::Test => "test",
        }
    }
}

/// A message. Also the body of a webhook, where empty fields are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Stays the same when it is tried again, so that a receiver can tell.
    pub id: String,
    /// What happened.
    pub kind: Kind,
    /// Where.
    pub project: String,
    /// Whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// In which session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Which guard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<String>,
    /// Its reason code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence that a person understands.
    pub sentence: String,
    /// The score, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// What it was measured against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// When: for a kill, when the agent was deactivated.
    pub at: Time,
    /// How many like it this message stands for, itself included.
    pub count: u64,
    /// When the first of them was.
    pub first_seen: Time,
    /// When the last of them was.
    pub last_seen: Time,
    /// Where more can be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The head of the project's audit when it was sent, as SEQ:HASH: kept here, it shows later
    /// whether the audit was cut (`deadstop audit verify --since`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_head: Option<String>,
}

impl Message {
    /// A message that stands for one event only.
    ///
    /// ```
    /// use deadstop_alerts::{Kind, Message};
    /// use deadstop_core::Time;
    /// let message = Message::new("m1", Kind::Test, "default", "this is a test", Time(0));
    /// assert_eq!(message.title(), "Deadstop: test");
    /// ```
    pub fn new(id: &str, kind: Kind, project: &str, sentence: &str, at: Time) -> Message {
        Message {
            id: id.to_owned(),
            kind,
            project: project.to_owned(),
            agent: None,
            session: None,
            guard: None,
            reason: None,
            sentence: sentence.to_owned(),
            score: None,
            threshold: None,
            at,
            count: 1,
            first_seen: at,
            last_seen: at,
            link: None,
            audit_head: None,
        }
    }

    /// One line: what happened to whom.
    pub fn title(&self) -> String {
        let what = match self.kind {
            Kind::Kill => "stopped",
            Kind::Trip => "tripped a guard",
            Kind::BudgetWarning => "is close to its budget",
            Kind::BreakerOpen => "circuit breaker open",
            Kind::Approval => "waits for approval",
            Kind::Degraded => "degraded",
            Kind::Test => "test",
        };
        let mut title = match (&self.agent, self.kind) {
            (Some(agent), _) => format!("Deadstop: {agent} {what}"),
            (None, Kind::Degraded | Kind::Test) => format!("Deadstop: {what}"),
            (None, _) => format!("Deadstop: {} {what}", self.project),
        };
        if let Some(guard) = &self.guard {
            title.push_str(&format!(" ({guard})"));
        }
        if self.count > 1 {
            title.push_str(&format!(", and {} more like it", self.count - 1));
        }
        one_line(&title)
    }

    /// What is known about it, as names and values to show.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let mut details = vec![("Project", self.project.clone())];
        let mut add = |name, value: &Option<String>| {
            details.extend(value.as_ref().map(|value| (name, value.clone())));
        };
        add("Agent", &self.agent);
        add("Session", &self.session);
        add("Guard", &self.guard);
        add("Reason", &self.reason);
        match (self.score, self.threshold) {
            (Some(score), Some(threshold)) => {
                details.push(("Score", format!("{score:.1} of {threshold:.1}")));
            }
            (Some(score), None) => details.push(("Score", format!("{score:.1}"))),
            _ => {}
        }
        details.push(("Time", moment(self.at)));
        if self.count > 1 {
            let (first, last) = (moment(self.first_seen), moment(self.last_seen));
            details.push(("Count", format!("{}, from {first} to {last}", self.count)));
        }
        details
    }

    /// All of it as plain text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.sentence.trim());
        for (name, value) in self.details() {
            text.push_str(&format!("{:<9}{}\n", format!("{name}:"), one_line(&value)));
        }
        if let Some(link) = &self.link {
            text.push_str(&format!("\n{}\n", one_line(link)));
        }
        text
    }
}

/// A time as people and programs read it.
pub(crate) fn moment(time: Time) -> String {
    i64::try_from(time.0)
        .ok()
        .and_then(|millis| Timestamp::from_millisecond(millis).ok())
        .map_or_else(|| time.0.to_string(), |moment| moment.to_string())
}

/// Without line ends and other control characters, which have no place in a header or a label.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .collect()
}

/// Not longer than so many characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
