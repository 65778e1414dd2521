//! Bytes to events and back, without I/O.
