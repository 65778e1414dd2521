//! `deadstop sign-in`: a link that signs the operator's browser in, once.

use std::process::ExitCode;

use serde_json::json;

use crate::remote::Server;
use crate::{operator, ui};

pub(crate) fn run(server: &Server) -> anyhow::Result<ExitCode> {
    let link = operator::token()?.sign_in_link(&server.url())?;
    match server.json {
        true => ui::print(&json!({ "link": link }).to_string())?,
        false => {
            ui::print(&link)?;
            eprintln!("Open it in your browser. It works once, within 12 hours.");
        }
    }
    Ok(ExitCode::SUCCESS)
}
