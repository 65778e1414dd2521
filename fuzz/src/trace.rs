//! Recorded runs: the same traces from any file, however it is read.

use std::io::BufReader;

use deadstop_protocol::trace::{BadLine, Reader, Trace};

/// A file of recorded runs.
pub fn check(data: &[u8]) {
    let whole: Vec<Result<Trace, BadLine>> = Reader::new(data).collect();
    let [slowly, _] = crate::ways(data);
    if slowly {
        let slow: Vec<Result<Trace, BadLine>> =
            Reader::new(BufReader::with_capacity(3, data)).collect();
        assert_eq!(format!("{whole:?}"), format!("{slow:?}"), "read in small parts");
    }
    let lines = data.split(|byte| *byte == b'\n').count();
    for bad in whole.iter().filter_map(|found| found.as_ref().err()) {
        assert!(bad.line <= lines, "line {} of {lines}", bad.line);
    }
}
