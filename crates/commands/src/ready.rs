//! `deadstop ready`: whether a server can do its work, for health checks where there is no curl.

use std::process::ExitCode;

use crate::remote::Server;
use crate::ui;

/// Exits with 0 if the server can do its work, and says what is wrong if it cannot.
pub(crate) fn run(server: &Server) -> anyhow::Result<ExitCode> {
    let client = server.client()?;
    let found = ui::runtime()?.block_on(client.get("/readyz"))?;
    if server.json {
        ui::print(&found.to_string())?;
    } else {
        eprintln!("ready: {}", server.url());
    }
    Ok(ExitCode::SUCCESS)
}
