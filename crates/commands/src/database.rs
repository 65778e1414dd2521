//! The database that a command may work on without a server.

use std::path::PathBuf;

use deadstop_server::{Database, DatabaseError, DatabaseLocation, Secret};

use crate::remote::{Server, filled};
use crate::ui::Hinted;

/// Which database.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Without a server")]
pub(crate) struct Source {
    // Read by hand, as --server is: what is typed counts more than what is set for good.
    /// Work on the database in this folder, whether a server runs or not [env: DEADSTOP_DATA]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Work on this PostgreSQL database; better in the variable, which `ps` does not show [env:
    /// DEADSTOP_DATABASE]
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    database: Option<String>,
}

impl Source {
    /// Where the database is, if the command is to work on it. What is typed counts more than what
    /// the environment says; a server and a database at once is nothing to guess about.
    pub(crate) fn place(&self, server: &Server) -> anyhow::Result<Option<DatabaseLocation>> {
        let typed = place(self.database.clone(), self.data.clone())?;
        let usual =
            || place(filled("DEADSTOP_DATABASE"), filled("DEADSTOP_DATA").map(PathBuf::from));
        match (typed, server.is_typed()) {
            (Some(place), false) => Ok(Some(place)),
            (None, true) => Ok(None),
            (Some(_), true) => {
                let problem = "both a server and a database are named";
                Err(Hinted::error(problem, "leave --server out, or --data and --database"))
            }
            (None, false) => match (usual()?, Server::is_usual()) {
                (Some(_), true) => Err(Hinted::error(
                    "the environment names both a server and a database",
                    "say which: --server URL, --data DIR or --database URL",
                )),
                (place, _) => Ok(place),
            },
        }
    }
}

/// One of the two, the database before the folder, as for `deadstop serve`.
fn place(
    database: Option<String>,
    data: Option<PathBuf>,
) -> anyhow::Result<Option<DatabaseLocation>> {
    match database {
        Some(url) if !is_postgres(&url) => Err(Hinted::error(
            "that is not the address of a database",
            "write it as postgres://user@host/name; a folder is named with --data",
        )),
        Some(url) => Ok(Some(DatabaseLocation::Url(Secret::new(url)))),
        None => Ok(data.map(DatabaseLocation::Folder)),
    }
}

fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// Opens a database; one in a folder is made only where that is said.
pub(crate) async fn open(place: &DatabaseLocation, make: Make) -> anyhow::Result<Database> {
    let opened = match make {
        Make::IfMissing => Database::open_or_make(place).await,
        Make::Never => Database::open(place).await,
    };
    opened.map_err(|error| hinted(&error))
}

/// Whether a database may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    /// If there is none.
    IfMissing,
    /// It has to be there.
    Never,
}

/// The error, and what to do about it.
pub(crate) fn hinted(error: &DatabaseError) -> anyhow::Error {
    let hint = match error {
        DatabaseError::FirstKeyAdmin => "deadstop keys create --role admin --name NAME",
        DatabaseError::Wrong(_) => "--help says what is expected",
        _ => "check --data or --database",
    };
    Hinted::error(error.to_string(), hint)
}
