//! What is known about the machine that a command would run on.
//!
//! This crate does no I/O. Where Deadstop runs next to the files (hooks, `deadstop check`), the
//! caller passes in something that looks at them, and it is only asked about paths that a command
//! would harm. Elsewhere [`Nowhere`] knows nothing, and the text alone decides.

/// Looks at the machine. Every path is absolute.
pub trait Surroundings {
    /// The working directory, if it is known.
    fn cwd(&self) -> Option<&str>;
    /// The home directory, if it is known.
    fn home(&self) -> Option<&str>;
    /// The root of the workspace: the top of the git repository, or the working directory.
    fn workspace(&self) -> Option<&str>;
    /// The path with the symbolic links of its directories followed.
    fn real(&self, path: &str) -> String;
    /// What is at a path.
    fn look(&self, path: &str) -> Sight;
    /// The paths that a pattern names; `None` when there are too many or it is not known.
    fn glob(&self, pattern: &str) -> Option<Vec<String>>;
    /// What git knows about a path and everything below it.
    fn kept(&self, path: &str) -> Kept;
    /// Whether this session created the path.
    fn created(&self, path: &str) -> bool;
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// It is not known.
    Unknown,
    /// Nothing is there.
    Missing,
    /// A file, or anything else that is not a directory.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, and where it leads.
    Link(String),
}

/// What git knows about a path and everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// It is not known, or there is no git repository.
    Unknown,
    /// All of it is committed and unchanged.
    Clean,
    /// Besides that, there are files that git ignores.
    Ignored,
    /// Besides that, there are files that git does not know.
    Untracked,
    /// Files that git knows are changed.
    Changed,
}

/// Knows nothing.
pub struct Nowhere;

impl Surroundings for Nowhere {
    fn cwd(&self) -> Option<&str> {
        None
    }

    fn home(&self) -> Option<&str> {
        None
    }

    fn workspace(&self) -> Option<&str> {
        None
    }

    fn real(&self, path: &str) -> String {
        path.to_owned()
    }

    fn look(&self, _: &str) -> Sight {
        Sight::Unknown
    }

    fn glob(&self, _: &str) -> Option<Vec<String>> {
        None
    }

    fn kept(&self, _: &str) -> Kept {
        Kept::Unknown
    }

    fn created(&self, _: &str) -> bool {
        false
    }
}
