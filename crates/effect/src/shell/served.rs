//! File servers: a directory that every machine on the network can read from then on.

use deadstop_core::{HarmKind, Reach, Recovery};

use super::Walk;
use super::command::value_of;
use crate::place::{self, Depth};
use crate::secret;

impl Walk<'_> {
    /// `python3 -m http.server`, `php -S`, `npx serve`: secrets or a whole home directory handed out.
    pub(super) fn serves(&mut self, name: &str, arguments: &[String]) {
        let Some(folder) = served(name, arguments) else { return };
        let local = |word: &String| {
            ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| word.contains(host))
        };
        if arguments.iter().any(local) {
            return;
        }
        let folder = self.resolve(&folder);
        let whole = || {
            let loss = place::loss(self.here, &folder, Depth::Tree);
            matches!(loss, Some((Reach::Home | Reach::System, Recovery::None)))
        };
        if secret::is_hidden_folder(&folder) || whole() {
            let kind = HarmKind::SendsSecret;
            let verb = format!("{name} serve");
            self.effects.harm(kind, &verb, &folder, Reach::Remote, Recovery::None);
        }
    }
}

/// The directory that a command serves, if it serves one.
fn served(name: &str, arguments: &[String]) -> Option<String> {
    let here = || ".".to_owned();
    let first = || arguments.iter().find(|word| !word.starts_with('-')).cloned();
    let after = |marks: &[&str]| {
        let at = arguments.iter().position(|word| marks.contains(&word.as_str()))?;
        Some(arguments[at + 1..].iter().find(|word| !word.starts_with('-')).cloned())
    };
    Some(match name {
        "python" | "python2" | "python3" => {
            let module = value_of(arguments, &["-m"])?;
            if !matches!(module.as_str(), "http.server" | "SimpleHTTPServer" | "uploadserver") {
                return None;
            }
            value_of(arguments, &["-d", "--directory"]).unwrap_or_else(here)
        }
        "php" if arguments.iter().any(|word| word == "-S") => {
            value_of(arguments, &["-t", "--docroot"]).unwrap_or_else(here)
        }
        "ruby" => after(&["-ehttpd", "httpd"])?.unwrap_or_else(here),
        "httpd" if arguments.iter().any(|word| word == "-h") => value_of(arguments, &["-h"])?,
        "serve" | "http-server" | "live-server" | "miniserve" | "darkhttpd" => {
            first().unwrap_or_else(here)
        }
        "updog" => value_of(arguments, &["-d", "--directory"]).unwrap_or_else(here),
        "caddy" => {
            after(&["file-server"])?;
            value_of(arguments, &["--root", "-r"]).unwrap_or_else(here)
        }
        "rclone" => {
            after(&["serve"])?;
            arguments.iter().filter(|word| !word.starts_with('-')).nth(2).cloned()?
        }
        _ => return None,
    })
}
