//! The control API through the port: keys, roles, logins, and the document that describes it.

mod access;
mod approvals;
mod conformance;
mod govern;
mod grants;
mod guards;
mod identity;
mod kept;
mod manners;
mod replayed;
mod switch;
mod table;
