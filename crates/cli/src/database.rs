//! The database that a command may work on without a server.

use std::path::PathBuf;

use deadstop_server::{Database, DatabaseError, Place, Secret};

use crate::remote::Server;
use crate::ui::Hinted;

/// Which database.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Without a server")]
pub(crate) struct Source {
    /// Work on the database in this folder, whether a server runs or not
    #[arg(long, env = "DEADSTOP_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Work on this PostgreSQL database; the variable does not show in `ps`
    #[arg(long, env = "DEADSTOP_DATABASE", value_name = "URL", hide_env_values = true)]
    database: Option<String>,
}

impl Source {
    /// Where the database is, if the command is to work on it. A server and a database at once is
    /// nothing to guess about.
    pub(crate) fn place(&self, server: &Server) -> anyhow::Result<Option<Place>> {
        let place = match (&self.database, &self.data) {
            (None, None) => return Ok(None),
            (Some(url), _) if !is_postgres(url) => {
                return Err(Hinted::error(
                    "that is no address of a database",
                    "write it as postgres://user@host/name; a folder is named with --data",
                ));
            }
            // As for `deadstop serve`.
            (Some(url), _) => Place::Url(Secret::new(url)),
            (None, Some(folder)) => Place::Folder(folder.clone()),
        };
        if server.is_named() {
            return Err(Hinted::error(
                "both a server and a database are named",
                "leave one out: --server (DEADSTOP_SERVER), or --data and --database \
                 (DEADSTOP_DATA, DEADSTOP_DATABASE)",
            ));
        }
        Ok(Some(place))
    }
}

fn is_postgres(url: &str) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme))
}

/// Opens a database; one in a folder is made only where that is said.
pub(crate) async fn open(place: &Place, make: Make) -> anyhow::Result<Database> {
    let opened = match make {
        Make::IfMissing => Database::open_or_make(place).await,
        Make::Never => Database::open(place).await,
    };
    opened.map_err(hinted)
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
pub(crate) fn hinted(error: DatabaseError) -> anyhow::Error {
    let hint = match &error {
        DatabaseError::FirstKeyAdmin => "deadstop keys create --role admin --name NAME",
        DatabaseError::Wrong(_) => "--help says what is expected",
        _ => "check --data or --database",
    };
    Hinted::error(error.to_string(), hint)
}
