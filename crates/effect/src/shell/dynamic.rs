//! What a program in another language does by a detour: to each file that it lists, under a name that it puts
//! together, or with a text that it decodes.

use deadstop_core::{HarmKind, Reach, Recovery};

use super::Walk;
use super::code::{Bare, Language};
use crate::place::Depth;

/// Calls that delete a tree or a file, as names in a string.
const DELETES: &[&str] = &[
    "rmtree",
    "removedirs",
    "unlink",
    "rmSync",
    "unlinkSync",
    "rmdirSync",
    "rm_rf",
    "rm_r",
    "remove_tree",
];

/// Calls that run a command, as names in a string.
const RUNS: &[&str] = &["system", "popen", "execSync", "spawnSync", "shell_exec", "passthru"];

/// How a program calls what a string names.
const BY_NAME: &[&str] = &["getattr(", "](", "send(", "call_user_func(", "Reflect.", "globals()"];

/// Texts of one program that are looked at.
const MAX_TEXTS: usize = 16;

/// A path that holds a variable, cut where the variable begins: one file of that directory, so that in the end
/// it may be all of it.
pub(super) fn listed(path: &str) -> Option<&str> {
    let at = ["${", "#{", "{", "$"].iter().filter_map(|mark| path.find(mark)).min();
    let (before, _) = path.split_at(at?);
    let (folder, _) = before.rsplit_once('/')?;
    (!folder.is_empty()).then_some(folder)
}

impl Walk<'_> {
    /// `getattr(shutil, "rm" + "tree")("/srv")`: a call whose name is put together.
    pub(super) fn calls_by_name(&mut self, language: Language, bare: &Bare) {
        if !bare.has(BY_NAME) {
            return;
        }
        let named = |names: &[&str]| bare.strings.iter().any(|text| names.contains(&text.as_str()));
        if named(DELETES) {
            let verb = format!("{language:?} delete");
            let paths = bare.strings.iter().filter(|text| text.contains('/') || *text == "~");
            for path in paths.take(MAX_TEXTS) {
                self.lose(&verb, path, Depth::Tree);
            }
        }
        if named(RUNS) {
            for script in bare.strings.iter().filter(|text| text.contains(' ')).take(MAX_TEXTS) {
                self.script(script);
            }
        }
    }

    /// `os.system(b64decode("…"))`: commands that a program decodes and runs.
    pub(super) fn runs_decoded(&mut self, decodes: bool, bare: &Bare) {
        if !decodes {
            return;
        }
        let texts = bare.strings.iter().filter(|text| text.len() >= 8 && !text.contains(' '));
        let plain: Vec<String> =
            texts.filter_map(|text| super::output::plain(text)).take(MAX_TEXTS).collect();
        for script in plain {
            self.script(&script);
        }
    }

    /// Files that a program opens for writing and closes again, or writes nothing into.
    pub(super) fn empties_files(&mut self, language: Language, bare: &Bare) {
        let verb = format!("{language:?} truncate");
        for at in bare.calls(&["open("]) {
            let (given, _) = bare.given(at);
            let [path, mode, ..] = given.as_slice() else { continue };
            let rest = &bare.text[at..];
            let closes = rest.find(')').is_some_and(|end| rest[end + 1..].starts_with(".close("));
            if closes && mode.len() <= 3 && mode.starts_with('w') {
                self.lose(&verb, path, Depth::Single);
            }
        }
        const WRITES: &[&str] = &["writeFileSync(", "File.write(", "file_put_contents("];
        for at in bare.calls(WRITES) {
            if let [path, ""] = bare.given(at).0.as_slice() {
                self.lose(&verb, path, Depth::Single);
            }
        }
        for at in bare.calls(&["truncateSync(", "os.truncate(", "File.truncate("]) {
            if let [path, ..] = bare.given(at).0.as_slice() {
                self.lose(&verb, path, Depth::Single);
            }
        }
    }

    /// Secrets below the home directory whose path is put together: `homedir() + "/.npmrc"`.
    pub(super) fn reads_at_home(&mut self, language: Language, bare: &Bare, homes: &[&str]) {
        let named = bare.calls(homes);
        for at in named.into_iter().take(MAX_TEXTS) {
            let path = bare.below_home(at);
            if crate::secret::is_secret(&path) {
                let kind = HarmKind::ReadsSecret;
                let verb = format!("{language:?} read");
                self.effects.harm(kind, &verb, &path, Reach::Outside, Recovery::None);
            }
        }
    }
}
