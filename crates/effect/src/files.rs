//! Tools that work on files without a shell: what they read, write and delete.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};
use serde_json::{Map, Value};

use super::name::Words;
use super::place::{self, Depth};
use super::surroundings::{Sight, Surroundings};
use super::{Effects, secret, shell};

/// Patches longer than this are read up to here.
const MAX_PATCH: usize = 256 * 1024;

/// Adds what a tool does to files that its arguments name.
pub(super) fn tool(
    effects: &mut Effects,
    words: &Words,
    arguments: &Map<String, Value>,
    here: &dyn Surroundings,
) {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let paths = ["file_path", "path", "filename", "notebook_path", "absolute_path", "file", "uri"];
    let path = paths.iter().find_map(|key| text(key));
    let patch = ["patch", "input", "diff"].iter().find_map(|key| text(key));
    if let Some(patch) = patch.filter(|text| text.contains("*** Begin Patch")) {
        return of_patch(effects, patch, here);
    }
    if words.reads_files() || text("command") == Some("view") {
        let mut named = path.into_iter().chain(text("pattern")).chain(text("glob"));
        if let Some(path) = named.find(|path| secret::is_secret(path)) {
            effects.harm(HarmKind::ReadsSecret, "read", path, Reach::Outside, Recovery::None);
        } else if let Some(folder) = path.filter(|path| secret::is_hidden_folder(path)) {
            effects.harm(HarmKind::ReadsSecret, "search", folder, Reach::Outside, Recovery::None);
        }
        return;
    }
    let Some(path) = path.filter(|_| words.writes_files()) else {
        return;
    };
    effects.raise(Effect::Changes);
    let full = place::absolute(here, path);
    let changes: Vec<&str> =
        ["old_string", "new_string", "old_str", "new_str"].iter().filter_map(|k| text(k)).collect();
    let content = text("content").or_else(|| text("file_text")).unwrap_or_default();
    let whole = changes.is_empty() && (replaces(here, &full) || mentions(content));
    if shell::protects(&full) && (whole || changes.iter().any(|text| mentions(text))) {
        let verb = if changes.is_empty() { "write" } else { "edit" };
        effects.harm(HarmKind::DisablesDeadstop, verb, path, Reach::System, Recovery::None);
    }
    let system = ["/etc/", "/usr/", "/boot/", "/bin/", "/sbin/", "/lib/", "/System/"];
    let own = full.contains("/.ssh/") || is_git_hook(&full);
    if own || system.iter().any(|start| full.starts_with(start)) {
        let (reach, recovery) = (Reach::System, Recovery::Elsewhere);
        effects.harm(HarmKind::Destroys, "write", path, reach, recovery);
    }
    if runs_at_start(&full) {
        // What stands in such a file is run later, by the shell that starts.
        let added = text("new_string").or_else(|| text("new_str")).unwrap_or(content);
        let later = shell::of_script(added, shell::Shell::of(false), here);
        effects.harms.extend(later.harms);
        effects.harms.truncate(super::MAX_HARMS);
    }
    if changes.is_empty() {
        effects.make(full);
    }
}

fn is_git_hook(path: &str) -> bool {
    path.contains("/.git/hooks/") || path.starts_with(".git/hooks/")
}

/// Files that a shell, git or a scheduler runs by itself.
pub(super) fn runs_at_start(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let shells = [
        ".bashrc",
        ".bash_profile",
        ".bash_login",
        ".bash_logout",
        ".profile",
        ".zshrc",
        ".zshenv",
        ".zprofile",
        "config.fish",
        ".envrc",
    ];
    shells.contains(&name)
        || is_git_hook(path)
        || path.contains("/cron.")
        || path.contains("/crontabs/")
}

/// Whether an edit is about what starts Deadstop.
fn mentions(text: &str) -> bool {
    ["deadstop", "disableAllHooks", "_BASE_URL"].iter().any(|word| text.contains(word))
}

/// Whether a file is written over that may hold a hook of ours.
fn replaces(here: &dyn Surroundings, path: &str) -> bool {
    match here.look(path) {
        Sight::Missing => false,
        Sight::Unknown => !place::is_temporary(path),
        _ => true,
    }
}

/// Codex's patches: files are added, updated and deleted by name.
pub(super) fn of_patch(effects: &mut Effects, patch: &str, here: &dyn Surroundings) {
    effects.raise(Effect::Changes);
    let patch = &patch[..patch.floor_char_boundary(MAX_PATCH)];
    for line in patch.lines() {
        if let Some(path) = line.strip_prefix("*** Delete File: ") {
            if let Some((reach, recovery)) = place::loss(here, path.trim(), Depth::Single) {
                effects.harm(HarmKind::Destroys, "delete", path.trim(), reach, recovery);
            }
        } else if let Some(path) = line.strip_prefix("*** Add File: ") {
            effects.make(place::absolute(here, path.trim()));
        }
        let changed = ["*** Delete File: ", "*** Update File: ", "*** Add File: "];
        let path = changed.iter().find_map(|start| line.strip_prefix(start));
        if let Some(path) = path.filter(|path| shell::protects(&place::absolute(here, path.trim())))
        {
            let kind = HarmKind::DisablesDeadstop;
            effects.harm(kind, "apply_patch", path.trim(), Reach::System, Recovery::None);
        }
    }
}
