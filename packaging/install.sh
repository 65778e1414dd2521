#!/bin/sh
# Installs Deadstop for this user, without root: downloads the program for this system, checks its checksum, and
# copies it to ~/.local/bin.
#
#   sh install.sh                              the version that this script belongs to
#   DEADSTOP_PREFIX=DIR sh install.sh          to DIR/bin in place of ~/.local/bin
#   DEADSTOP_BASE_URL=URL sh install.sh        from another address; file:///DIR for files on this machine
#
# It writes to DIR/bin, DIR/share/man and DIR/share/bash-completion only, and changes no file of your shell.
set -eu

version='@VERSION@'
base=${DEADSTOP_BASE_URL:-'@BASE_URL@'}
prefix=${DEADSTOP_PREFIX:-"${HOME:?HOME is not set}/.local"}

fail() {
    echo "error: $1" >&2
    [ -z "${2:-}" ] || echo "hint: $2" >&2
    exit 1
}

target() {
    case "$(uname -s)" in
        Linux)
            libc=gnu
            # musl's dynamic linker tells which C library this system has.
            for linker in /lib/ld-musl-*; do [ -e "$linker" ] && libc=musl; done
            system=unknown-linux-$libc ;;
        Darwin) system=apple-darwin ;;
        *) fail "there is no Deadstop for $(uname -s)" "Linux and macOS have one; on Windows use WSL" ;;
    esac
    case "$(uname -m)" in
        x86_64 | amd64) echo "x86_64-$system" ;;
        aarch64 | arm64) echo "aarch64-$system" ;;
        *) fail "there is no Deadstop for $(uname -m)" "build it from source: make build" ;;
    esac
}

fetch() { # URL FILE
    case "$1" in
        file://*) cp "${1#file://}" "$2" 2>/dev/null || return 1 ;;
        https://*)
            if command -v curl >/dev/null; then curl --proto '=https' --tlsv1.2 -fsSL -o "$2" "$1"
            elif command -v wget >/dev/null; then wget -q --https-only -O "$2" "$1"
            else fail "neither curl nor wget is here" "install one of them"
            fi ;;
        *) fail "$1 is neither https:// nor file://" "set DEADSTOP_BASE_URL" ;;
    esac
}

digest() { # FILE
    if command -v sha256sum >/dev/null; then sha256sum "$1" | cut -d ' ' -f 1
    elif command -v shasum >/dev/null; then shasum -a 256 "$1" | cut -d ' ' -f 1
    else fail "neither sha256sum nor shasum is here" "install coreutils"
    fi
}

main() {
    name="deadstop-$version-$(target)"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    fetch "$base/SHA256SUMS" "$folder/SHA256SUMS" || fail "cannot fetch $base/SHA256SUMS" "is the address right?"
    wanted=$(awk -v name="$name.tar.gz" '$2 == name || $2 == "*" name { print $1 }' "$folder/SHA256SUMS")
    [ -n "$wanted" ] || fail "$name.tar.gz is not in SHA256SUMS" "this version has no program for this system: build it from source"
    fetch "$base/$name.tar.gz" "$folder/archive" || fail "cannot fetch $base/$name.tar.gz"
    found=$(digest "$folder/archive")
    [ "$found" = "$wanted" ] || fail "the checksum of $name.tar.gz is wrong: $found, not $wanted" "nothing was installed; try again, and tell us if it stays so"
    tar -xzf "$folder/archive" -C "$folder"
    mkdir -p "$prefix/bin" "$prefix/share/man/man1" "$prefix/share/bash-completion/completions"
    # Replaced in one step, so that a hook that runs meanwhile finds the old program or the new one.
    cp "$folder/$name/deadstop" "$prefix/bin/.deadstop.new"
    chmod 755 "$prefix/bin/.deadstop.new"
    mv -f "$prefix/bin/.deadstop.new" "$prefix/bin/deadstop"
    cp "$folder/$name/man/"*.1 "$prefix/share/man/man1/"
    cp "$folder/$name/completions/deadstop.bash" "$prefix/share/bash-completion/completions/deadstop"
    "$prefix/bin/deadstop" --version
    case ":$PATH:" in
        *":$prefix/bin:"*) ;;
        *) echo "note: $prefix/bin is not in PATH; add it: export PATH=\"$prefix/bin:\$PATH\"" ;;
    esac
    echo "next: deadstop demo"
}

main
