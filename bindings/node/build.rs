//! Tells the linker that Node brings its own symbols, where it wants to be told.

fn main() {
    napi_build::setup();
}
