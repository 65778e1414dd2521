//! `deadstop.toml`: where it is looked for, and how it is read. Both `serve` and `run` use it.

use std::path::{Path, PathBuf};

use deadstop_server::RawConfig;

use crate::ui::Hinted;

/// The configuration that was named, or the one that lies here or in the XDG folder, or none.
pub(crate) fn read(named: Option<&Path>) -> anyhow::Result<RawConfig> {
    let usual = || {
        let here = PathBuf::from("deadstop.toml");
        let home = xdg("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("deadstop.toml"));
        [Some(here), home].into_iter().flatten().find(|path| path.is_file())
    };
    let Some(path) = named.map(Path::to_owned).or_else(usual) else {
        return Ok(RawConfig::default());
    };
    let shown = path.display();
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Hinted::error(format!("cannot read {shown}: {error}"), "check --config")
    })?;
    toml::from_str(&text).map_err(|error| {
        let hint = "providers are written as [providers.NAME] with a base_url";
        Hinted::error(format!("{shown}: {}", error.to_string().trim_end()), hint)
    })
}

/// Our folder below one of the XDG folders.
pub(crate) fn xdg(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below_home));
    set.or_else(home).map(|folder| folder.join("deadstop"))
}
