//! Which server a command talks to, as whom, about which project, and in which form it answers.

use std::path::PathBuf;

use hyper::Uri;

use crate::client::{self, Client};
use crate::ui::Hinted;

/// The server that is asked when none is named.
pub(crate) const USUAL: &str = "http://127.0.0.1:4141";

/// Which server, and in which form to answer.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct Server {
    // Read by hand: a variable that is set for good must not conflict with --data.
    /// The server to talk to [env: DEADSTOP_SERVER] [default: http://127.0.0.1:4141]
    #[arg(long, value_name = "URL", global = true)]
    server: Option<String>,
    /// A file with the key to show; DEADSTOP_KEY may hold it as well
    #[arg(long, env = "DEADSTOP_KEY_FILE", value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// The project, where the key does not decide it
    #[arg(long, env = "DEADSTOP_PROJECT", value_name = "NAME", global = true)]
    project: Option<String>,
    /// Answer with JSON, one document a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[arg(skip)]
    keyless: bool,
}

impl Server {
    /// A server that was named in another way than here.
    pub(crate) fn named(url: &str, key_file: Option<PathBuf>, project: Option<String>) -> Server {
        Server { server: Some(url.to_owned()), key_file, project, json: false, keyless: false }
    }

    /// The server that is asked when the command line names none.
    pub(crate) fn usual() -> Server {
        let file = filled("DEADSTOP_KEY_FILE").map(PathBuf::from);
        let project = filled("DEADSTOP_PROJECT");
        Server { server: None, key_file: file, project, json: false, keyless: false }
    }

    /// The same without a key, for a private server, which needs none.
    pub(crate) fn without_key(self) -> Server {
        Server { keyless: true, ..self }
    }

    /// The same at another address: another node of one fleet.
    pub(crate) fn at(&self, url: &str) -> Server {
        let (key_file, project) = (self.key_file.clone(), self.project.clone());
        Server { keyless: self.keyless, ..Server::named(url, key_file, project) }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        let named = self.server.clone().or_else(|| filled("DEADSTOP_SERVER"));
        named.unwrap_or_else(|| USUAL.to_owned())
    }

    /// The address of a place on its page.
    pub(crate) fn page(&self, parts: &[&str]) -> String {
        let path: Vec<String> = parts.iter().map(|part| client::encoded(part)).collect();
        format!("{}/{}", self.url().trim_end_matches('/'), path.join("/"))
    }

    /// Whether the user chose to have no server, by writing `none`.
    pub(crate) fn is_none(&self) -> bool {
        self.url().trim() == "none"
    }

    /// Whether it was named on the command line.
    pub(crate) fn is_typed(&self) -> bool {
        self.server.is_some()
    }

    /// Whether the environment names one.
    pub(crate) fn is_usual() -> bool {
        filled("DEADSTOP_SERVER").is_some()
    }

    /// The project that was named.
    pub(crate) fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// A client for it.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let mut client = Client::new(&self.url())?;
        if let Some(project) = &self.project {
            client = client.with_project(project)?;
        }
        if let Some(key) = self.key()? {
            if self.is_overheard() {
                eprintln!("warning: the key is sent to {} unencrypted; use https://", self.url());
            }
            client = client.with_key(&key)?;
        }
        Ok(client)
    }

    /// The key. Never an argument: those are for everybody on the machine to see.
    pub(crate) fn key(&self) -> anyhow::Result<Option<String>> {
        if self.keyless {
            return Ok(None);
        }
        let Some(file) = &self.key_file else {
            return Ok(filled("DEADSTOP_KEY"));
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            let problem = format!("cannot read the key in {}: {error}", file.display());
            Hinted::error(problem, "check --key-file")
        })?;
        Ok(Some(text.trim().to_owned()))
    }

    /// Whether others on the way could read along.
    fn is_overheard(&self) -> bool {
        let uri: Uri = self.url().parse().unwrap_or_default();
        uri.scheme_str() == Some("http") && !client::is_near(&uri)
    }
}

/// Who gives an order, for the record.
pub(crate) fn operator() -> Option<String> {
    filled("USER")
}

/// A variable of the environment that says something.
pub(crate) fn filled(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}
