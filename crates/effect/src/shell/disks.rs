//! Disks and what lies on them.

/// What a command does to a disk: the deed and the disk.
pub(super) fn destroys(name: &str, arguments: &[String]) -> Option<(String, String)> {
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
    let goes = match name {
        "sgdisk" => has(&["--zap-all", "-Z", "--zap", "-z", "--clear", "-o"]),
        "parted" => has(&["mklabel", "mktable", "rm"]),
        "pvremove" => true,
        "cryptsetup" => has(&["luksErase", "erase", "luksFormat"]),
        "mdadm" => has(&["--zero-superblock"]),
        "nvme" => has(&["format", "sanitize"]),
        "hdparm" => has(&["--security-erase", "--security-erase-enhanced"]),
        "format" => return drive(arguments),
        _ => false,
    };
    let disk = arguments.iter().rev().find(|word| word.starts_with("/dev/"));
    goes.then(|| (name.to_owned(), disk.cloned().unwrap_or_default()))
}

/// `format d:` is about a drive; most programs called `format` are about text.
fn drive(arguments: &[String]) -> Option<(String, String)> {
    let is_drive = |word: &&String| {
        let bytes = word.as_bytes();
        bytes.len() == 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':'
    };
    let drive = arguments.iter().find(is_drive)?;
    Some(("format".to_owned(), drive.clone()))
}

/// A device that holds data; `/dev/null` and its like do not.
pub(super) fn is_disk(path: &str) -> bool {
    let Some(device) = path.strip_prefix("/dev/") else {
        return false;
    };
    let harmless = [
        "null", "zero", "full", "stdin", "stdout", "stderr", "tty", "fd", "shm", "tcp", "udp",
        "pts", "console", "random", "urandom", "log", "kmsg", "ptmx",
    ];
    let device = device.split('/').next().unwrap_or(device);
    !harmless.contains(&device) && !device.starts_with("tty") && !device.starts_with("cu.")
}
