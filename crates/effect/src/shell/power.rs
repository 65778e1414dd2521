//! Commands that stop things, lock people out or open doors: services, processes, permissions,
//! firewalls, accounts, logs.

use deadstop_core::{Effect, HarmKind, Reach, Recovery};

use super::Walk;
use super::command::value_of;
use crate::place::{self, Depth};
use crate::target;

impl Walk<'_> {
    /// Runs a command about services, permissions or accounts; false when it is not one.
    pub(super) fn power(&mut self, name: &str, arguments: &[String]) -> bool {
        let words: Vec<&str> =
            arguments.iter().map(String::as_str).filter(|word| !word.starts_with('-')).collect();
        let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
        let what = target::join(&words);
        match name {
            "shutdown" if has(&["-c", "--help", "-k", "--show"]) => return false,
            "shutdown" | "reboot" | "halt" | "poweroff" => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "init" | "telinit" if matches!(words.first(), Some(&("0" | "6"))) => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "systemctl" if has(&["--user"]) => return false,
            "useradd" | "adduser" if has(&["-o", "--non-unique"]) => {
                self.opens(name, &what, Reach::System);
            }
            "systemctl" | "service" | "rc-service" | "launchctl" | "initctl" | "supervisorctl" => {
                return self.service(name, &words, &what);
            }
            "kill" | "killall" | "pkill" | "skill" | "killall5" => {
                self.kills(name, arguments, &words);
            }
            "chmod" | "chown" | "chgrp" | "setfacl" | "chattr" | "chflags" => {
                self.permits(name, arguments);
            }
            "iptables" | "ip6tables" | "nft" | "ufw" | "pfctl" | "firewall-cmd" | "ipfw" => {
                return self.firewall(name, arguments, &words);
            }
            "userdel" | "deluser" | "groupdel" | "delgroup" => {
                let kind = HarmKind::Destroys;
                self.effects.harm(kind, name, &what, Reach::System, Recovery::None);
            }
            "usermod" | "passwd" | "chage" | "gpasswd" | "adduser" | "addgroup" => {
                let locks = has(&["-L", "--lock", "-l", "-d", "--delete", "-e", "--expiredate"]);
                let raises = arguments.iter().any(|word| {
                    word.split(',').any(|g| matches!(g, "sudo" | "wheel" | "root" | "docker"))
                });
                if raises && !matches!(name, "passwd" | "chage") {
                    self.opens(name, &what, Reach::System);
                } else if locks && !words.is_empty() {
                    self.stops(name, &what, Reach::System, Recovery::Elsewhere);
                } else {
                    return false;
                }
            }
            "chpasswd" | "newusers" => self.opens(name, &what, Reach::System),
            "mount" if words.last() == Some(&"/") && what.contains("remount") => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "setenforce" if what == "0" => self.opens(name, "0", Reach::System),
            "csrutil" | "spctl" if has(&["disable", "--master-disable"]) || what == "disable" => {
                self.opens(name, &what, Reach::System);
            }
            "visudo" => self.opens(name, &what, Reach::System),
            "sysctl" if has(&["-w"]) => self.opens(name, &what, Reach::Outside),
            "hg" | "svn" | "jj" | "p4" if self.discards_elsewhere(name, arguments, &words) => {}
            "history" if arguments.iter().any(|w| w.starts_with('-') && w.contains('c')) => {
                self.loses_log("history -c", "");
            }
            "journalctl" if arguments.iter().any(|word| word.starts_with("--vacuum")) => {
                self.loses_log("journalctl --vacuum", "");
            }
            "auditctl" if has(&["-D"]) => self.loses_log("auditctl -D", ""),
            "wevtutil" if matches!(words.first(), Some(&("cl" | "clear-log"))) => {
                self.loses_log("wevtutil cl", &target::join(&words[1..]));
            }
            "vssadmin" | "wbadmin" | "wmic" | "bcdedit"
                if words.contains(&"delete")
                    || words.iter().any(|w| w.starts_with("/set") || w.starts_with("/delete")) =>
            {
                self.system_loss(name, &what);
            }
            "net" | "schtasks" | "sc" | "wsl"
                if has(&["/del", "/delete", "/DELETE", "--unregister"])
                    || words.first() == Some(&"delete") =>
            {
                self.system_loss(name, &what);
            }
            name if name.ends_with("uninstall.sh") => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "tmutil" if matches!(words.first(), Some(&("delete" | "deletelocalsnapshots"))) => {
                self.system_loss(name, &what);
            }
            "swapoff" | "umount" if has(&["-a", "-f", "-l"]) => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "insmod" | "rmmod" | "modprobe" => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "nmcli" if words.contains(&"off") || words.contains(&"down") => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "ip" | "ifconfig"
                if words
                    .iter()
                    .any(|word| matches!(*word, "down" | "flush" | "delete" | "del")) =>
            {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "hostnamectl" | "timedatectl" | "localectl"
                if words.first().is_some_and(|word| word.starts_with("set-"))
                    || matches!(words.as_slice(), ["hostname", _, ..]) =>
            {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            // All processes that use a file system.
            "fuser" if arguments.iter().any(|word| is_mounted_kill(word)) => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "haproxy" if has(&["-st"]) => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "nix-collect-garbage" if has(&["-d", "--delete-old"]) => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "emerge" if has(&["--unmerge", "-C", "--depclean", "-c"]) => {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "pkg" | "pkg_delete" | "flatpak" | "port"
                if matches!(words.first(), Some(&("delete" | "remove" | "uninstall"))) =>
            {
                self.stops(name, &what, Reach::System, Recovery::Elsewhere);
            }
            "dmesg" if has(&["-C", "-c", "--clear"]) => self.loses_log("dmesg -C", ""),
            "apt" | "apt-get" | "yum" | "dnf" | "pacman" | "zypper" | "apk" | "brew" | "snap"
            | "dpkg" | "rpm" | "choco" | "winget" => {
                return self.packages(name, arguments, &words);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn stops(&mut self, verb: &str, what: &str, reach: Reach, recovery: Recovery) {
        self.effects.harm(HarmKind::Stops, verb, what, reach, recovery);
    }

    fn opens(&mut self, verb: &str, what: &str, reach: Reach) {
        self.effects.harm(HarmKind::OpensAccess, verb, what, reach, Recovery::Elsewhere);
    }

    fn loses_log(&mut self, verb: &str, what: &str) {
        self.effects.harm(HarmKind::Destroys, verb, what, Reach::Outside, Recovery::None);
    }

    fn system_loss(&mut self, verb: &str, what: &str) {
        self.effects.harm(HarmKind::Destroys, verb, what, Reach::System, Recovery::None);
    }

    /// Uncommitted work in repositories of other kinds than git's.
    fn discards_elsewhere(&mut self, name: &str, arguments: &[String], words: &[&str]) -> bool {
        let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
        let discards = match (name, words.first().copied().unwrap_or_default()) {
            ("hg", "update" | "up" | "checkout" | "co") => has(&["--clean", "-C"]),
            ("hg", "revert") => has(&["--all", "-a", "--no-backup"]),
            ("hg", "purge" | "strip") | ("jj", "abandon") => true,
            ("p4", "revert") => !has(&["-n", "-a"]),
            ("svn", "revert") => has(&["-R", "--recursive", "--depth"]),
            ("svn", "cleanup") => has(&["--remove-unversioned", "--remove-ignored"]),
            _ => false,
        };
        if discards {
            let kind = HarmKind::DiscardsWork;
            let what = target::join(words.get(1..).unwrap_or(&[]));
            let verb = format!("{name} {}", words[0]);
            self.effects.harm(kind, &verb, &what, Reach::Workspace, Recovery::None);
        }
        discards
    }

    fn service(&mut self, name: &str, words: &[&str], what: &str) -> bool {
        const STOPS: &[&str] = &[
            "stop",
            "disable",
            "mask",
            "kill",
            "isolate",
            "poweroff",
            "reboot",
            "halt",
            "rescue",
            "emergency",
            "unload",
            "bootout",
            "remove",
            "shutdown",
            "suspend",
            "hibernate",
        ];
        if !words.iter().take(3).any(|word| STOPS.contains(word)) {
            return false;
        }
        self.stops(name, what, Reach::System, Recovery::Elsewhere);
        true
    }

    /// Ending processes is a day's work, ending all of them is not.
    fn kills(&mut self, name: &str, arguments: &[String], words: &[&str]) {
        self.effects.raise(Effect::Changes);
        let everything = match name {
            "killall5" => true,
            "kill" => {
                words.iter().any(|word| *word == "1" || *word == "-1")
                    || arguments.iter().rev().take(1).any(|word| word == "-1")
                        && arguments.len() > 1
            }
            "pkill" => {
                let user = value_of(arguments, &["-u", "-U", "--euid"]);
                // Without a pattern, all processes of the user.
                user.is_some_and(|user| user == "root" || *words == [user.as_str()])
                    || words.contains(&".")
                    || words.contains(&".*")
                    || words.iter().any(|word| is_vital(word))
            }
            _ => words.iter().any(|word| is_vital(word)) || arguments.iter().any(|w| w == "-u"),
        };
        if everything {
            self.stops(name, &target::join(arguments), Reach::System, Recovery::None);
        }
    }

    fn permits(&mut self, name: &str, arguments: &[String]) {
        self.effects.raise(Effect::Changes);
        // `--help` as a value of another option is no call for help.
        if arguments.first().is_some_and(|word| word == "--help") {
            return;
        }
        let recursive = arguments.iter().any(|word| {
            word.starts_with("--rec")
                || (word.starts_with('-') && !word.starts_with("--") && word.contains('R'))
        });
        let reference = arguments.iter().any(|word| word.starts_with("--ref"));
        let mut operands: Vec<&String> =
            arguments.iter().filter(|word| !word.starts_with('-')).collect();
        // `setfacl -b` names files only.
        let bare = name == "setfacl"
            && arguments.iter().any(|word| matches!(word.as_str(), "-b" | "-k" | "--remove-all"));
        let mode = match (reference || bare, operands.is_empty()) {
            (false, false) => operands.remove(0).as_str(),
            _ => "",
        };
        let open = name == "chmod" && opens_all(mode);
        let special = name == "chmod" && (mode.contains("+s") || is_setuid(mode));
        let shows = name == "chmod" && shows_others(mode);
        for path in operands {
            let resolved = self.resolve(path);
            if shows && crate::secret::is_secret(path) && !path.contains(".env") {
                let reach = match self.is_system_file(path) {
                    true => Reach::System,
                    false => Reach::Outside,
                };
                self.opens(&format!("{name} {mode}"), &resolved, reach);
                continue;
            }
            let subject = place::loss(self.here, &resolved, Depth::Tree);
            let reach = subject.map_or(Reach::Item, |(reach, _)| reach);
            // `setfacl -b` takes all rights away that were given one by one.
            if name == "setfacl" && recursive && reach >= Reach::Outside {
                self.stops(name, &resolved, Reach::System, Recovery::Elsewhere);
                continue;
            }
            let far = matches!(reach, Reach::System | Reach::Home);
            if (matches!(name, "chattr" | "chown" | "chgrp")
                || matches!(mode, "000" | "0" | "0000" | "a-rwx"))
                && !recursive
                && self.is_system_file(path)
            {
                self.stops(
                    &format!("{name} {mode}"),
                    &resolved,
                    Reach::System,
                    Recovery::Elsewhere,
                );
                continue;
            }
            let whole = resolved == "." || reach == Reach::Workspace;
            if far && (recursive || open || (special && reach == Reach::System)) {
                self.opens(&format!("{name} {mode}"), &resolved, Reach::System);
            } else if special {
                self.opens(&format!("{name} {mode}"), &resolved, Reach::Outside);
            } else if open && recursive {
                self.opens(&format!("{name} {mode}"), &resolved, Reach::Workspace);
            } else if open && path.starts_with(['/', '~', '$']) && !place::is_temporary(path) {
                self.opens(&format!("{name} {mode}"), &resolved, Reach::Outside);
            } else if recursive && mode == "000" {
                self.stops(name, &resolved, Reach::System, Recovery::Elsewhere);
            } else if whole && recursive && name == "chown" {
                self.opens(name, &resolved, Reach::Directory);
            }
        }
    }

    fn firewall(&mut self, name: &str, arguments: &[String], words: &[&str]) -> bool {
        let has = |flags: &[&str]| arguments.iter().any(|word| flags.contains(&word.as_str()));
        let opens = match name {
            "iptables" | "ip6tables" => {
                has(&["-F", "--flush", "-X", "-D", "--delete", "-Z"])
                    // All that comes in, from any sender.
                    || has(&["INPUT", "OUTPUT"])
                        && has(&["DROP", "REJECT"])
                        && !has(&["-s", "-d", "-p", "--source", "--dport", "-i", "-m"])
                    || has(&["-P", "--policy"]) && (has(&["ACCEPT"]) || has(&["DROP"]))
            }
            "nft" => words.contains(&"flush") || words.contains(&"delete"),
            "ufw" => {
                ["disable", "reset", "delete"].iter().any(|word| words.contains(word))
                    || (words.first() == Some(&"default") && words.contains(&"allow"))
            }
            "pfctl" => has(&["-d", "-F"]),
            "firewall-cmd" => arguments
                .iter()
                .any(|word| word.starts_with("--remove") || word.starts_with("--panic")),
            _ => words.contains(&"flush"),
        };
        if opens {
            self.opens(name, &target::join(arguments), Reach::System);
        }
        opens
    }

    fn packages(&mut self, name: &str, arguments: &[String], words: &[&str]) -> bool {
        let system = name != "brew";
        let removes = match name {
            "pacman" => arguments.iter().any(|word| word.starts_with("-R")),
            "apk" => words.first() == Some(&"del"),
            "dpkg" => {
                arguments.iter().any(|w| matches!(w.as_str(), "-r" | "-P" | "--remove" | "--purge"))
            }
            "rpm" => arguments.iter().any(|w| w == "--erase" || w.starts_with("-e")),
            _ => words.iter().take(2).any(|word| {
                matches!(*word, "remove" | "purge" | "autoremove" | "erase" | "uninstall")
                    || (name == "zypper" && *word == "rm")
            }),
        };
        // With `--zap`, settings and data go as well; a list of all that is installed is no one package.
        let whole = !system
            && removes
            && arguments.iter().any(|word| word == "--zap" || word.starts_with("$("));
        if removes && (system || whole) {
            self.stops(name, &target::join(words), Reach::System, Recovery::Elsewhere);
        }
        removes && (system || whole)
    }
}

/// `fuser -km /mnt`.
fn is_mounted_kill(word: &str) -> bool {
    word.strip_prefix('-').is_some_and(|letters| {
        !letters.starts_with('-') && letters.contains('k') && letters.contains(['m', 'M', 'c'])
    })
}

/// Processes without which a machine does not work.
fn is_vital(word: &str) -> bool {
    matches!(
        word,
        "init"
            | "systemd"
            | "sshd"
            | "launchd"
            | "dockerd"
            | "kubelet"
            | "Xorg"
            | "gnome-shell"
            | "loginwindow"
            | "WindowServer"
            | "postgres"
            | "mysqld"
            | "mariadbd"
            | "mongod"
            | "redis-server"
            | "containerd"
            | "NetworkManager"
            | "rsyslogd"
            | "auditd"
    )
}

/// A mode that lets everybody write.
fn opens_all(mode: &str) -> bool {
    let digits = mode.trim_start_matches('0');
    let octal = mode.len() >= 3 && mode.bytes().all(|b| b.is_ascii_digit());
    let world =
        octal && mode.bytes().last().is_some_and(|b| matches!(b, b'7' | b'6' | b'2' | b'3'));
    (world && digits.len() >= 3)
        || mode.split(',').any(|part| {
            let Some((who, what)) = part.split_once(['+', '=']) else { return false };
            what.contains('w') && (who.contains('a') || who.contains('o'))
        })
}

pub(super) fn is_setuid(mode: &str) -> bool {
    mode.len() == 4
        && mode.bytes().all(|b| b.is_ascii_digit())
        && matches!(mode.as_bytes()[0], b'4' | b'6')
}

/// Whether a mode lets others than the owner read: `644`, `o+r`.
fn shows_others(mode: &str) -> bool {
    let digits = mode.len() >= 3 && mode.bytes().all(|b| b.is_ascii_digit());
    if digits {
        return mode.bytes().next_back().is_some_and(|b| (b - b'0') & 4 != 0);
    }
    mode.split(',').any(|part| {
        let (who, what) = part.split_once(['+', '=']).unwrap_or(("u", ""));
        what.contains('r') && (who.is_empty() || who.contains(['o', 'a']))
    })
}
