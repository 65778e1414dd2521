//! The control API through the port: keys, roles, logins, and the document that describes it.

mod access;
mod allow;
mod approvals;
mod conformance;
mod endings;
mod govern;
mod grants;
mod guards;
mod identity;
pub(crate) mod kept;
mod manners;
mod outages;
mod replayed;
mod standing;
mod swarms;
mod switch;
mod table;
mod telemetry;
mod workflow;
