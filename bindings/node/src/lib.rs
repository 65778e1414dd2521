//! The engine for Node: what the TypeScript in `ts/` builds on. Nothing here is for users.
//!
//! Calls in flight are numbers on the other side: an object with a finaliser would cost more than
//! the decision. Texts that are structured cross as JSON, which both sides read faster than
//! property by property. What may wait for a server has a twin that ends in `later`, which works on
//! a thread of its own and gives a promise.

mod convert;
mod engine;
mod model;
mod slab;
mod trips;
