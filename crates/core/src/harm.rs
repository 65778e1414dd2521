//! Harm: what a tool call would do to the world, and how bad that is.
//!
//! `effect` reads a call and says what it would do: the kind of harm, its target, how far it
//! reaches and whether it comes back. This file holds the one table that turns those four into a
//! [`Severity`]. Guards, records and `deadstop check` all use this table.

mod safer;
mod words;

use serde::{Deserialize, Serialize};

use crate::call::ToolCall;

/// One thing that a call would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Harm {
    /// What sort of harm.
    pub kind: HarmKind,
    /// What is done, in a word or two: `delete_asset`, `rm -rf`, `DROP TABLE`.
    pub verb: String,
    /// What it is done to, with the argument's name where that helps: `asset_id=fact_sales`.
    /// Empty when the call does not say.
    pub target: String,
    /// How far it reaches.
    pub reach: Reach,
    /// Whether what is lost comes back.
    pub recovery: Recovery,
}

/// Sorts of harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HarmKind {
    /// Deletes or overwrites.
    Destroys,
    /// Throws away work that was never committed.
    DiscardsWork,
    /// Rewrites or removes history, above all history that others use.
    RewritesHistory,
    /// Stops services or processes, or locks people out.
    Stops,
    /// Reads a secret: a private key, a password file, a token.
    ReadsSecret,
    /// Sends a secret, or an unknown collection of files, to another machine.
    SendsSecret,
    /// Runs code that was fetched a moment before.
    RunsDownload,
    /// Opens access: permissions, firewalls, public buckets.
    OpensAccess,
    /// Takes Deadstop out of the way.
    DisablesDeadstop,
    /// Cannot be read, and contains words that destroy.
    Unreadable,
}

/// How far a harm reaches, from near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// One file, row or record.
    Item,
    /// One directory of the workspace.
    Directory,
    /// The whole workspace.
    Workspace,
    /// Files of this machine outside the workspace.
    Outside,
    /// Something on another machine or service.
    Remote,
    /// The home directory.
    Home,
    /// The system: its directories, disks, services.
    System,
    /// Production, or something named like it: a main branch, a production database.
    Production,
}

/// Whether what is lost comes back, from surely to never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// This session created it.
    Session,
    /// A cache or a build product: the next build makes it again.
    Cache,
    /// Version control has it, unchanged.
    VersionControl,
    /// It can be had again elsewhere: a registry, a reflog, a restart.
    Elsewhere,
    /// The call does not tell.
    Unknown,
    /// It does not come back.
    None,
}

/// How bad a harm is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is lost.
    #[default]
    None,
    /// Little is lost, or it comes back with little work.
    Minor,
    /// Something is lost that a person would want to be asked about.
    Serious,
    /// More is lost than a session was ever about.
    Catastrophic,
}

/// The table: every kind, reach and recovery, and how bad they are together.
fn severity(kind: HarmKind, reach: Reach, recovery: Recovery) -> Severity {
    use HarmKind as K;
    use Reach as A;
    use Recovery as R;
    use Severity::{Catastrophic, Minor, Serious};
    let far = matches!(reach, A::Home | A::System | A::Production);
    match kind {
        K::Destroys | K::DiscardsWork => match recovery {
            R::Session | R::Cache if far => Minor,
            R::VersionControl if far => Serious,
            R::Session | R::Cache | R::VersionControl => Severity::None,
            R::Elsewhere if far || reach == A::Remote => Serious,
            R::Elsewhere => Minor,
            R::Unknown | R::None if far => Catastrophic,
            R::None if kind == K::Destroys && reach == A::Workspace => Catastrophic,
            R::Unknown if reach == A::Item => Minor,
            R::Unknown | R::None => Serious,
        },
        K::RewritesHistory => match (reach, recovery) {
            (A::Production, _) => Catastrophic,
            (A::Remote, _) => Serious,
            (_, R::None | R::Unknown | R::Elsewhere) => Serious,
            _ => Minor,
        },
        K::Stops => match (reach, recovery) {
            (_, R::Session) => Severity::None,
            (A::Production, _) | (A::System, R::None) => Catastrophic,
            (A::System | A::Remote | A::Home, _) => Serious,
            _ => Minor,
        },
        K::OpensAccess => match reach {
            A::Item | A::Directory => Minor,
            A::System | A::Production => Catastrophic,
            _ => Serious,
        },
        K::SendsSecret | K::RunsDownload => Serious,
        K::ReadsSecret | K::Unreadable => Minor,
        K::DisablesDeadstop => Catastrophic,
    }
}

impl Harm {
    /// Something elsewhere that goes; from here it cannot be told whether it comes back:
    /// what a tool called `delete_asset` does.
    ///
    /// ```
    /// use deadstop_core::{Harm, Severity};
    /// assert_eq!(Harm::destroys("delete_asset", "asset_id=1").severity(), Severity::Serious);
    /// ```
    pub fn destroys(verb: impl Into<String>, target: impl Into<String>) -> Harm {
        Harm {
            kind: HarmKind::Destroys,
            verb: verb.into(),
            target: target.into(),
            reach: Reach::Remote,
            recovery: Recovery::Unknown,
        }
    }

    /// How bad it is.
    pub fn severity(&self) -> Severity {
        severity(self.kind, self.reach, self.recovery)
    }

    /// Whether something is gone afterwards that the destructive guard counts.
    pub fn counts(&self) -> bool {
        self.kind.removes() && self.severity() >= Severity::Serious
    }

    /// The deed and its target: `rm -rf data`.
    pub fn deed(&self) -> String {
        match self.target.as_str() {
            "" => self.verb.clone(),
            target => format!("{} {target}", self.verb),
        }
    }

    /// What would happen and why it matters, in one clause.
    ///
    /// ```
    /// use deadstop_core::{Harm, HarmKind, Reach, Recovery};
    /// let harm = Harm { reach: Reach::Home, recovery: Recovery::None, ..Harm::destroys("rm -rf", "~") };
    /// assert_eq!(
    ///     harm.because(),
    ///     "`rm -rf ~` destroys the home directory, and it does not come back"
    /// );
    /// ```
    pub fn because(&self) -> String {
        let recovery = if self.kind.loses() { self.recovery.words() } else { "" };
        match self.kind {
            HarmKind::Destroys
            | HarmKind::DiscardsWork
            | HarmKind::RewritesHistory
            | HarmKind::Stops
            | HarmKind::OpensAccess => {
                format!("`{}` {}{recovery}", self.deed(), words::clause(self))
            }
            // Its verb only says so once more.
            HarmKind::RunsDownload if !self.target.is_empty() => {
                format!("`{}` {}", self.target, self.kind.does())
            }
            _ => format!("`{}` {}", self.deed(), self.kind.does()),
        }
    }

    /// The safer way.
    ///
    /// ```
    /// use deadstop_core::Harm;
    /// let harm = Harm::destroys("crontab -r", "");
    /// assert!(harm.instead().starts_with("keep a copy with `crontab -l"));
    /// ```
    pub fn instead(&self) -> &'static str {
        safer::way(self)
    }
}

impl ToolCall {
    /// What the call would lose, as far as that is serious.
    pub fn destroys(&self) -> impl Iterator<Item = &Harm> {
        self.harms.iter().filter(|harm| harm.counts())
    }
}

impl HarmKind {
    /// All of them.
    pub const ALL: [HarmKind; 10] = [
        HarmKind::Destroys,
        HarmKind::DiscardsWork,
        HarmKind::RewritesHistory,
        HarmKind::Stops,
        HarmKind::ReadsSecret,
        HarmKind::SendsSecret,
        HarmKind::RunsDownload,
        HarmKind::OpensAccess,
        HarmKind::DisablesDeadstop,
        HarmKind::Unreadable,
    ];

    /// Whether something is gone afterwards.
    pub fn removes(self) -> bool {
        matches!(self, HarmKind::Destroys | HarmKind::DiscardsWork | HarmKind::RewritesHistory)
    }

    /// The verb of a sentence about it.
    fn does(self) -> &'static str {
        match self {
            HarmKind::Destroys => "destroys",
            HarmKind::DiscardsWork => "discards uncommitted work in",
            HarmKind::RewritesHistory => "rewrites the history of",
            HarmKind::Stops => "stops or locks out",
            HarmKind::ReadsSecret => "reads a secret",
            HarmKind::SendsSecret => "sends files that may hold secrets to another machine",
            HarmKind::RunsDownload => "runs code that it has just fetched, unread",
            HarmKind::OpensAccess => "opens access to",
            HarmKind::DisablesDeadstop => "takes Deadstop out of the way",
            HarmKind::Unreadable => "cannot be read in full, and contains words that destroy",
        }
    }

    fn loses(self) -> bool {
        !matches!(self, HarmKind::OpensAccess)
    }
}

impl Reach {
    /// All of them, from near to far.
    pub const ALL: [Reach; 8] = [
        Reach::Item,
        Reach::Directory,
        Reach::Workspace,
        Reach::Outside,
        Reach::Remote,
        Reach::Home,
        Reach::System,
        Reach::Production,
    ];

    /// What is reached, in a sentence about such a harm.
    fn words(self, kind: HarmKind) -> &'static str {
        match self {
            Reach::Item => "one item",
            Reach::Directory => "a directory",
            Reach::Workspace => "the whole workspace",
            Reach::Outside => "files outside the workspace",
            Reach::Remote => "something on another machine or service",
            Reach::Home => "the home directory",
            Reach::System => "the system",
            Reach::Production if kind == HarmKind::RewritesHistory => {
                "a branch that others build on"
            }
            Reach::Production if kind.removes() => "production, or something as large",
            Reach::Production => "production",
        }
    }
}

impl Recovery {
    /// All of them, from surely to never.
    pub const ALL: [Recovery; 6] = [
        Recovery::Session,
        Recovery::Cache,
        Recovery::VersionControl,
        Recovery::Elsewhere,
        Recovery::Unknown,
        Recovery::None,
    ];

    /// Whether it comes back, in a sentence.
    fn words(self) -> &'static str {
        match self {
            Recovery::Session => ", which this session created",
            Recovery::Cache => ", which a build makes again",
            Recovery::VersionControl => ", which version control keeps",
            Recovery::Elsewhere => ", which takes work to bring back",
            Recovery::Unknown => ", and the call does not tell whether it comes back",
            Recovery::None => ", and it does not come back",
        }
    }
}

impl Severity {
    /// The name used in records and messages.
    pub fn name(self) -> &'static str {
        match self {
            Severity::None => "none",
            Severity::Minor => "minor",
            Severity::Serious => "serious",
            Severity::Catastrophic => "catastrophic",
        }
    }
}

#[cfg(test)]
mod tests;
