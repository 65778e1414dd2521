//! Where a path is: how far a harm to it reaches, and whether what is lost comes back.

use deadstop_core::{Reach, Recovery};

use super::surroundings::{Kept, Sight, Surroundings};

/// Whether everything below a path goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// One file.
    Single,
    /// A directory and all below it.
    Tree,
}

/// What would be lost, or `None` when there is nothing to lose.
pub(super) type Loss = Option<(Reach, Recovery)>;

/// What losing this path would mean. `path` is as the script resolves it: absolute, from home
/// (`~`), from a variable (`$X`), or relative to where the call starts.
pub(super) fn loss(here: &dyn Surroundings, path: &str, depth: Depth) -> Loss {
    let full = absolute(here, path);
    let globbed = full.trim_end_matches('/');
    let (base, is_all) = match globbed.rsplit_once('/') {
        Some((base, last)) if is_everything(last) => (base, true),
        None if is_everything(globbed) => ("", true),
        _ => (globbed, false),
    };
    // `dir/*` is all of `dir`; `*` is all of where the call starts.
    let subject = match (is_all, base) {
        (true, "") if full.starts_with('/') => "/",
        (true, "") => ".",
        (true, base) => base,
        (false, _) if globbed.is_empty() => "/",
        (false, _) => globbed,
    };
    if let Some(reach) = far(here, subject) {
        // Without `-r`, a directory stays.
        let folder = match here.look(subject) {
            Sight::Directory => true,
            Sight::Unknown => subject.matches('/').count() <= 1 || reach == Reach::Home,
            _ => false,
        };
        if folder && depth == Depth::Single && !is_all {
            return None;
        }
        // Files in a system directory are one thing, all of the directory another.
        let temporary =
            is_all && is_temporary(&format!("{subject}/x")) && !climbs(here, path, subject);
        return (!temporary)
            .then_some((reach, Recovery::None))
            .or(Some((Reach::Outside, Recovery::Cache)));
    }
    let product = || subject.split('/').skip(1).any(is_product);
    if subject.starts_with('$') && !is_temporary(subject) && !product() {
        return Some(match depth {
            Depth::Single => (Reach::Item, Recovery::Unknown),
            Depth::Tree => (Reach::Directory, Recovery::None),
        });
    }
    // A workspace in a temporary directory is a workspace.
    let own = here.workspace().map(|root| root.trim_end_matches('/'));
    let shown = own.map_or(subject, |root| inside(root, subject));
    let holds = own.is_some_and(|root| within(root, subject));
    if !holds && is_disposable(shown) && !climbs(here, path, subject) {
        let inside = !shown.starts_with(['/', '~', '$']);
        return Some((if inside { Reach::Directory } else { Reach::Outside }, Recovery::Cache));
    }
    match here.cwd() {
        Some(_) => known(here, subject, is_all, depth),
        None => Some(by_text(subject, is_all, depth)),
    }
}

/// Whether a path leads out of a workspace that lies in a temporary directory. What is beside that
/// workspace is another project's work, and a path that climbs there was not meant as a scratch file.
fn climbs(here: &dyn Surroundings, path: &str, full: &str) -> bool {
    let relative = !path.starts_with(['/', '~', '$', '\\', '%']);
    relative
        && here.workspace().map(|root| root.trim_end_matches('/')).is_some_and(|root| {
            is_temporary(&format!("{root}/x")) && !within(full, root) && full.starts_with('/')
        })
}

/// The reach of places that no session is about: the system, a home directory, the workspace.
fn far(here: &dyn Surroundings, path: &str) -> Option<Reach> {
    if path.is_empty() || path == "/" || is_system(path) {
        return Some(Reach::System);
    }
    if is_home(here, path) {
        return Some(Reach::Home);
    }
    None
}

/// What the text alone says.
fn by_text(path: &str, is_all: bool, depth: Depth) -> (Reach, Recovery) {
    let rooted = path.starts_with(['/', '~', '\\']) || is_drive(path);
    if path == "." || path == ".." || path.starts_with("../") {
        let reach = if path == "." { Reach::Workspace } else { Reach::Outside };
        return (reach, Recovery::None);
    }
    if let Some(git) = git_part(path) {
        return in_git(git);
    }
    match depth {
        Depth::Tree if rooted => (Reach::Outside, Recovery::None),
        Depth::Tree => (Reach::Directory, Recovery::None),
        Depth::Single if is_missed(path) => (Reach::Outside, Recovery::None),
        Depth::Single if is_all => (Reach::Directory, Recovery::None),
        Depth::Single => (Reach::Item, Recovery::Unknown),
    }
}

/// What the machine says.
fn known(here: &dyn Surroundings, path: &str, is_all: bool, depth: Depth) -> Loss {
    let full = here.real(&absolute(here, path));
    if let Some(reach) = far(here, &full).filter(|_| depth == Depth::Tree || is_all) {
        return Some((reach, Recovery::None));
    }
    let workspace = here.workspace().or(here.cwd()).unwrap_or_default();
    if within(workspace, &full) {
        // The workspace itself, or a directory that holds it.
        let reach = if full == workspace { Reach::Workspace } else { Reach::Outside };
        return match depth {
            Depth::Single if !is_all => None,
            _ => Some((reach, Recovery::None)),
        };
    }
    let inside = within(&full, workspace);
    if inside && let Some(git) = git_part(&full) {
        return Some(in_git(git));
    }
    if has_glob(&full) {
        return matched(here, &full, depth);
    }
    let sight = here.look(&full);
    if sight == Sight::Missing {
        // What is not there cannot be lost. Well-known places are judged all the same, and so are
        // whole directories outside the workspace: they may be there when the command runs.
        let judged = is_well_known(here, &full) || (depth == Depth::Tree && !inside);
        return judged.then_some((Reach::Outside, Recovery::None));
    }
    if here.created(&full) {
        return Some((Reach::Item, Recovery::Session));
    }
    if matches!(sight, Sight::Link(_)) {
        return Some((Reach::Item, Recovery::Elsewhere));
    }
    if sight == Sight::Directory && depth == Depth::Single && !is_all {
        // `rm -f directory` fails.
        return None;
    }
    let reach = match (inside, sight == Sight::Directory) {
        (true, true) => Reach::Directory,
        (true, false) => Reach::Item,
        (false, _) => Reach::Outside,
    };
    match here.kept(&full) {
        Kept::Clean => Some((reach, Recovery::VersionControl)),
        _ => Some((reach, Recovery::None)),
    }
}

/// The worst of what a pattern names.
fn matched(here: &dyn Surroundings, pattern: &str, depth: Depth) -> Loss {
    let Some(paths) = here.glob(pattern) else {
        return Some(by_text(pattern, false, depth));
    };
    let losses = paths.iter().filter_map(|path| known(here, path, false, depth));
    losses.max_by_key(|(reach, recovery)| (*recovery, *reach))
}

/// A path from the root, where that can be told.
pub(super) fn absolute(here: &dyn Surroundings, path: &str) -> String {
    let home = here.home().unwrap_or("~");
    for start in ["~", "$HOME", "${HOME}"] {
        if let Some(rest) = path.strip_prefix(start)
            && (rest.is_empty() || rest.starts_with('/'))
        {
            return format!("{home}{rest}");
        }
    }
    if path.starts_with(['/', '~', '$', '\\', '%']) || is_drive(path) {
        return path.to_owned();
    }
    match here.cwd() {
        Some(cwd) if path == "." => cwd.to_owned(),
        Some(cwd) => normal(&format!("{cwd}/{path}")),
        None => path.to_owned(),
    }
}

/// An absolute path without `.` and `..`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Whether a path is a directory, or lies below it.
pub(super) fn within(path: &str, directory: &str) -> bool {
    let directory = directory.trim_end_matches('/');
    path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A last part that stands for everything in its directory.
fn is_everything(part: &str) -> bool {
    matches!(part, "*" | "**" | ".*" | "*.*" | ".[!.]*" | "{*,.*}" | ".??*" | "{,.}*" | "[!.]*")
}

pub(super) fn has_glob(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

fn is_drive(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
}

/// A directory that the system or all of its users need.
fn is_system(path: &str) -> bool {
    if is_drive(path) || path.starts_with(['%', '\\']) {
        let rest = path.get(2..).unwrap_or_default().trim_matches(['\\', '/', '*', '.']);
        let upper = path.to_ascii_uppercase();
        let start = rest.split(['\\', '/']).next().unwrap_or_default();
        let known = ["windows", "users", "program files", "program files (x86)", "programdata"];
        return is_drive(path) && rest.is_empty()
            || known.iter().any(|name| start.eq_ignore_ascii_case(name)) && !rest.contains("Temp")
            || upper.starts_with("%SYSTEMROOT%")
            || upper.starts_with("%WINDIR%")
            || upper.starts_with("\\\\.\\PHYSICALDRIVE");
    }
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    let mut parts = rest.split('/').filter(|part| !part.is_empty());
    let Some(top) = parts.next() else {
        return true;
    };
    let below: Vec<&str> = parts.collect();
    let is_top = if has_glob(top) {
        TOP.iter().any(|name| glob_fits(top, name))
    } else {
        TOP.contains(&top)
    };
    match below.as_slice() {
        [] => is_top,
        _ if matches!(top, "etc" | "boot" | "proc" | "sys" | "bin" | "sbin" | "lib" | "lib64") => {
            true
        }
        [_] if matches!(top, "usr" | "dev" | "System" | "Library" | "Applications") => true,
        ["tmp"] if matches!(top, "var" | "private") => true,
        ["folders" | "tmp", ..] if top == "var" => false,
        [_] if top == "var" => true,
        ["lib", _] if matches!(top, "var" | "usr") => true,
        [_] if matches!(top, "private") => true,
        ["etc" | "var", ..] if top == "private" => below.len() <= 2,
        _ => false,
    }
}

const TOP: &[&str] = &[
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib32",
    "lib64",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "Applications",
    "Library",
    "System",
    "Users",
    "Volumes",
    "private",
    "cores",
    "nix",
    "snap",
    "data",
    "backup",
    "backups",
];

/// Whether a name fits a pattern of one part: `et?`, `[ue]sr`, `h*`.
pub fn glob_fits(pattern: &str, name: &str) -> bool {
    fn fits(pattern: &[u8], name: &[u8], budget: &mut u32) -> bool {
        if *budget == 0 {
            return true;
        }
        *budget -= 1;
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                fits(&pattern[1..], name, budget)
                    || (!name.is_empty() && fits(pattern, &name[1..], budget))
            }
            (Some(b'?'), Some(_)) => fits(&pattern[1..], &name[1..], budget),
            (Some(b'['), Some(c)) => match pattern.iter().position(|b| *b == b']') {
                Some(end) => {
                    let class = &pattern[1..end];
                    let (negated, class) = match class.first() {
                        Some(b'!' | b'^') => (true, &class[1..]),
                        _ => (false, class),
                    };
                    let ranges =
                        class.windows(3).any(|w| w[1] == b'-' && (w[0]..=w[2]).contains(c));
                    (ranges || class.contains(c)) != negated
                        && fits(&pattern[end + 1..], &name[1..], budget)
                }
                None => false,
            },
            (Some(p), Some(c)) => p == c && fits(&pattern[1..], &name[1..], budget),
            _ => false,
        }
    }
    fits(pattern.as_bytes(), name.as_bytes(), &mut 500)
}

/// A home directory, or what makes one.
fn is_home(here: &dyn Surroundings, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    let below = |home: &str| {
        let rest = path.strip_prefix(home)?;
        match rest.strip_prefix('/') {
            None => rest.is_empty().then_some(true),
            Some(part) => Some(TREASURES.contains(&part)),
        }
    };
    if let Some(home) = here.home()
        && below(home.trim_end_matches('/')) == Some(true)
    {
        return true;
    }
    if ["~", "$HOME", "/root", "$env:USERPROFILE", "$env:HOME", "%USERPROFILE%"]
        .iter()
        .any(|home| below(home) == Some(true))
    {
        return true;
    }
    if let Some(user) = path.strip_prefix('~') {
        return !user.contains('/');
    }
    // `/h?me/t*st`.
    let mut parts = path.split('/').skip(1);
    if let (Some(top), Some(_), None) = (parts.next(), parts.next(), parts.next())
        && has_glob(top)
        && ["home", "Users"].iter().any(|name| glob_fits(top, name))
    {
        return true;
    }
    let users = path.strip_prefix("/home/").or(path.strip_prefix("/Users/"));
    users.is_some_and(|rest| match rest.split_once('/') {
        None => !rest.is_empty(),
        Some((_, part)) => TREASURES.contains(&part),
    })
}

/// Directories of a home that hold what a person has made or needs.
const TREASURES: &[&str] = &[
    "Documents",
    "Desktop",
    "Downloads",
    "Pictures",
    "Music",
    "Movies",
    "Videos",
    "Library",
    "Projects",
    "projects",
    "src",
    "code",
    "work",
    "repos",
    "dev",
    ".ssh",
    ".gnupg",
    ".config",
    ".aws",
    ".kube",
    ".local",
    ".docker",
    ".claude",
    ".codex",
    ".local/share",
    ".local/state",
    ".password-store",
    ".mozilla",
];

/// Files of a home that a person would miss.
const PERSONAL: &[&str] = &[
    ".bashrc",
    ".zshrc",
    ".profile",
    ".bash_profile",
    ".bash_history",
    ".zsh_history",
    ".gitconfig",
    ".netrc",
    ".pgpass",
];

/// A file that a person or the system would miss, told by where it is: a key, a shell's history, a log.
fn is_missed(path: &str) -> bool {
    if holds_state(path) {
        return true;
    }
    let below = |start: &str| path.strip_prefix(start);
    let user =
        |start: &str| below(start).and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest);
    let own = below("~/")
        .or_else(|| below("/root/"))
        .or_else(|| user("/home/"))
        .or_else(|| user("/Users/"));
    if let Some(rest) = own {
        let first = rest.split('/').next().unwrap_or_default();
        return PERSONAL.contains(&rest)
            || matches!(first, ".ssh" | ".gnupg" | ".aws" | ".kube" | ".password-store")
            || matches!(first, "Documents" | "Desktop" | "Pictures");
    }
    is_kept_by_system(path)
}

/// Files of a project in which a tool keeps what cannot be worked out again: what Terraform has made, a store of
/// passwords.
fn holds_state(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".tfstate") || name.ends_with(".tfstate.backup") || name.ends_with(".kdbx")
}

/// What services keep: logs, data, spools.
fn is_kept_by_system(path: &str) -> bool {
    ["/var/log/", "/var/lib/", "/var/backups/", "/var/spool/"]
        .iter()
        .any(|start| path.strip_prefix(start).is_some_and(|rest| !rest.is_empty()))
}

/// Places outside the workspace that are judged although nothing is there now.
fn is_well_known(here: &dyn Surroundings, path: &str) -> bool {
    // What lies beside the workspace is another project.
    let parent = |path: &str| path.rsplit_once('/').map(|(parent, _)| parent.to_owned());
    let workspace = here.workspace().map(|root| root.trim_end_matches('/'));
    if workspace.is_some_and(|root| parent(root) == parent(path) && !is_temporary(path)) {
        return true;
    }
    let home = here.home().unwrap_or("/root").trim_end_matches('/');
    let below_treasure = path.strip_prefix(home).and_then(|rest| rest.strip_prefix('/'));
    if let Some(rest) = below_treasure {
        return is_missed(&format!("~/{rest}"));
    }
    if is_kept_by_system(path) {
        return true;
    }
    ["/var/www/", "/srv/", "/opt/", "/data/", "/mnt/"]
        .iter()
        .any(|root| path.strip_prefix(root).is_some_and(|rest| rest.matches('/').count() < 2))
}

/// What stands behind `.git` in a path.
fn git_part(path: &str) -> Option<&str> {
    if path == ".git" {
        return Some("");
    }
    let at =
        path.strip_prefix(".git/").map(|_| 0).or_else(|| path.find("/.git").map(|at| at + 1))?;
    let rest = &path[at + 4..];
    (rest.is_empty() || rest.starts_with('/')).then(|| rest.trim_start_matches('/'))
}

/// What losing a part of a repository's own files means.
fn in_git(part: &str) -> (Reach, Recovery) {
    let first = part.split('/').next().unwrap_or_default();
    let history =
        ["", "refs", "objects", "logs", "packed-refs", "HEAD", "config", "worktrees", "*"];
    match history.contains(&first) {
        true => (Reach::Workspace, Recovery::None),
        // Its index, its hooks, its locks, what other tools keep there.
        false => (Reach::Item, Recovery::Elsewhere),
    }
}

/// Whether this path can be spared on this machine. A workspace or a home in a temporary directory cannot.
pub(super) fn is_spare(here: &dyn Surroundings, path: &str) -> bool {
    let full = absolute(here, path);
    let own = here.workspace().map(|root| root.trim_end_matches('/'));
    if is_home(here, &full) || own.is_some_and(|root| within(root, &full)) {
        return false;
    }
    is_disposable(own.map_or(full.as_str(), |root| inside(root, &full)))
        && !climbs(here, path, &full)
}

/// The part of a path below a directory; the whole path if it is elsewhere.
fn inside<'a>(root: &str, path: &'a str) -> &'a str {
    match path.strip_prefix(root) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => path,
    }
}

/// Whether this path can be spared: temporary, built or cached.
fn is_disposable(path: &str) -> bool {
    // The system's own logs tell who did what.
    if is_kept_by_system(path) {
        return false;
    }
    is_temporary(path) || path.split(['/', '\\']).any(is_product) || is_byproduct(path)
}

pub(super) fn is_temporary(path: &str) -> bool {
    const ROOTS: &[&str] = &[
        "/tmp/",
        "/private/tmp/",
        "/var/tmp/",
        "/private/var/tmp/",
        "/var/folders/",
        "/private/var/folders/",
        "/dev/shm/",
    ];
    if ROOTS.iter().any(|root| path.starts_with(root)) {
        return true;
    }
    // `$TMPDIR`, `$tmp_file`, `$RUNNER_TEMP`; but not `$TEMPLATES`.
    path.strip_prefix('$').is_some_and(|rest| {
        let rest = rest.trim_start_matches('{');
        let rest = rest.strip_prefix("env:").unwrap_or(rest);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        name.contains("tmp")
            || name.split('_').any(|part| matches!(part, "temp" | "tempdir" | "tempfile"))
    })
}

/// Directories that a build, a package manager or a cache makes again.
fn is_product(part: &str) -> bool {
    PRODUCTS.contains(&part)
        || part.ends_with(".egg-info")
        || part.starts_with("cmake-build-")
        || part.starts_with("bazel-")
}

/// Files that tools leave behind.
fn is_byproduct(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.trim_end_matches([')', '"', '\'']);
    BYPRODUCTS.contains(&name)
        || name.rsplit_once('.').is_some_and(|(_, suffix)| SUFFIXES.contains(&suffix))
}

const PRODUCTS: &[&str] = &[
    "node_modules",
    "target",
    "dist",
    "build",
    "out",
    "__pycache__",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".tox",
    ".nox",
    ".venv",
    "venv",
    "coverage",
    "htmlcov",
    ".nyc_output",
    ".next",
    ".nuxt",
    ".svelte-kit",
    ".turbo",
    ".parcel-cache",
    ".cache",
    ".gradle",
    ".eggs",
    ".output",
    ".vite",
    ".angular",
    "tmp",
    "temp",
    ".tmp",
    ".temp",
    "test-results",
    "playwright-report",
    "DerivedData",
    "obj",
    "_build",
    ".dart_tool",
    ".hypothesis",
    "cache",
    "Caches",
    ".ipynb_checkpoints",
    "storybook-static",
    ".serverless",
    ".webpack",
    ".rollup.cache",
    ".eslintcache",
    "zig-cache",
    ".zig-cache",
    "zig-out",
    "Pods",
    "_cacache",
    ".terraform",
    ".stack-work",
    "dist-newstyle",
    "elm-stuff",
    ".expo",
];

const BYPRODUCTS: &[&str] = &[
    ".DS_Store",
    "nohup.out",
    "a.out",
    ".coverage",
    "coverage.out",
    "package-lock.json",
    "pnpm-lock.yaml",
    "bun.lockb",
    "npm-debug.log",
    ".eslintcache",
];

const SUFFIXES: &[&str] = &[
    "o",
    "obj",
    "a",
    "so",
    "pyc",
    "pyo",
    "class",
    "log",
    "tmp",
    "temp",
    "orig",
    "rej",
    "swp",
    "swo",
    "gcda",
    "gcno",
    "profraw",
    "tsbuildinfo",
    "pid",
    "lock",
    "prof",
    "test",
    "sock",
];
