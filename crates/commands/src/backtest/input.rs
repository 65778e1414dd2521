//! Where traces come from: files and standard input, compressed or not.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use deadstop_protocol::trace::{BadLine, Reader, Trace};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;

use super::otlp;
use crate::ui::Hinted;

/// What a source holds, one run after the other.
pub(crate) type Traces = Box<dyn Iterator<Item = Result<Trace, BadLine>>>;

/// One place to read from.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file and its size.
    File(PathBuf, u64),
    /// Standard input.
    Stdin,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path, _) => path.display().fmt(f),
            Source::Stdin => f.write_str("standard input"),
        }
    }
}

/// The sources that were named; every file is looked at before the first one is read.
pub(crate) fn sources(files: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    if files.is_empty() {
        use std::io::IsTerminal;
        if io::stdin().is_terminal() {
            return Err(Hinted::error(
                "no traces to replay",
                "name files, such as `deadstop backtest runs.jsonl`, or pipe them in",
            ));
        }
        return Ok(vec![Source::Stdin]);
    }
    files
        .iter()
        .map(|path| {
            if path.as_os_str() == "-" {
                return Ok(Source::Stdin);
            }
            let found = std::fs::metadata(path).map_err(|error| {
                Hinted::error(
                    format!("cannot read {}: {error}", path.display()),
                    "name a file of traces, or `-` for standard input",
                )
            })?;
            if found.is_dir() {
                return Err(Hinted::error(
                    format!("{} is a folder", path.display()),
                    format!("name the files in it, such as {}/*.jsonl", path.display()),
                ));
            }
            Ok(Source::File(path.clone(), found.len()))
        })
        .collect()
}

impl Source {
    /// How much there is to read, if that is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Source::File(_, bytes) => Some(*bytes),
            Source::Stdin => None,
        }
    }

    /// Opens it for reading; gzip is recognised by its first bytes.
    pub(crate) fn open(&self, bar: &ProgressBar) -> anyhow::Result<Traces> {
        let raw: Box<dyn Read> = match self {
            Source::File(path, _) => Box::new(File::open(path).map_err(|error| {
                Hinted::error(
                    format!("cannot open {}: {error}", path.display()),
                    "check that the file is there and may be read",
                )
            })?),
            Source::Stdin => Box::new(io::stdin()),
        };
        let mut raw = BufReader::with_capacity(1 << 16, bar.wrap_read(raw));
        let gzip = raw.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let mut plain: Box<dyn BufRead> = if gzip {
            Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(raw)))
        } else {
            Box::new(raw)
        };
        if deadstop_otlp::signal(plain.fill_buf()?).is_some() {
            return Ok(Box::new(otlp::read(plain).into_iter()));
        }
        Ok(Box::new(Reader::new(plain)))
    }
}
