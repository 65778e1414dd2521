//! Disks and what lies on them.

/// What a command does to a disk: the deed and the disk.
pub(super) fn destroys(name: &str, arguments: &[String]) -> Option<(String, String)> {
    let has = |words: &[&str]| arguments.iter().any(|word| words.contains(&word.as_str()));
    let goes = match name {
        "sgdisk" => has(&["--zap-all", "-Z", "--zap", "-z", "--clear", "-o"]),
        "parted" => has(&["mklabel", "mktable", "mkpart", "rm", "resizepart"]),
        "grub-install" => arguments.iter().any(|word| is_disk(word)),
        "efibootmgr" => has(&["-B", "--delete-bootnum", "-O", "--delete-bootorder"]),
        "badblocks" => has(&["-w"]),
        "nvram" => has(&["-c"]),
        "dscl" => has(&["-delete", "delete"]),
        "pvremove" | "lvremove" | "vgremove" | "lvreduce" | "vgreduce" => {
            arguments.iter().any(|w| !w.starts_with('-'))
        }
        "lvm" => has(&["lvremove", "vgremove", "pvremove"]),
        "zpool" => has(&["destroy", "labelclear", "offline", "detach", "remove"]),
        "btrfs" => {
            has(&["delete"])
                || (has(&["resize"]) && arguments.iter().any(|word| word.starts_with('-')))
        }
        "cryptsetup" => has(&["luksErase", "erase", "luksFormat"]),
        "mdadm" => has(&[
            "--zero-superblock",
            "--create",
            "-C",
            "--stop",
            "-S",
            "--fail",
            "-f",
            "--remove",
            "-r",
        ]),
        "nvme" => has(&["format", "sanitize"]),
        "hdparm" => has(&[
            "--security-erase",
            "--security-erase-enhanced",
            "--trim-sector-ranges",
            "--make-bad-sector",
        ]),
        "format" => return drive(arguments),
        "dmsetup" => has(&["remove", "remove_all", "wipe_table", "suspend"]),
        "multipath" => has(&["-F", "-f"]),
        "losetup" => has(&["-D", "--detach-all"]),
        "iscsiadm" => has(&["-u", "--logout", "delete"]),
        "nbd-client" => has(&["-d"]),
        "drbdadm" => has(&["wipe-md", "create-md", "down", "invalidate"]),
        "pvmove" | "resize2fs" | "tune2fs" | "xfs_repair" | "fsck" | "e2fsck" | "mkntfs"
        | "nwipe" | "scrub" | "sg_format" | "gdisk" | "debugfs" => {
            let only_looks = ["-n", "-N", "-l", "-P", "--no-action"];
            arguments.iter().any(|word| is_disk(word)) && !has(&only_looks) || has(&["--autonuke"])
        }
        "snapper" => has(&["delete", "rollback", "undochange"]),
        "timeshift" => {
            arguments.iter().any(|word| word.starts_with("--delete") || word == "--restore")
        }
        _ => false,
    };
    let goes = goes && !has(&["--test", "-t", "--longhelp", "--help", "--no-act"]);
    let disk = arguments.iter().rev().find(|word| word.starts_with("/dev/"));
    let disk = disk.or_else(|| arguments.iter().rev().find(|word| !word.starts_with('-')));
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
    // `/dev/sd` and `/dev/nvme0cXn1` name no disk.
    let unfinished = matches!(device, "sd" | "hd" | "vd" | "nvme" | "" | "xvd")
        || device.strip_prefix("nvme").is_some_and(|rest| rest.contains('X'));
    !unfinished
        && !harmless.contains(&device)
        && !device.starts_with("tty")
        && !device.starts_with("cu.")
}
