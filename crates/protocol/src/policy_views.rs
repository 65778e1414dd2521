//! Parts of a policy in the shapes that the seed pages give them, and the documents they live in.
//!
//! A policy exists once. `prevention-config` and `kill-switch` are views of it: read from a policy,
//! written into a policy, everything else untouched. What a program sends is checked as a whole, so
//! that one answer names every field that is unknown, missing or wrong.

mod agent;
mod diff;
mod field;
mod kill_switch;
mod prevention;
mod whole;

pub use agent::{AgentDocument, BadDocument, effective};
pub use diff::{Change, diff};
pub use field::{FieldFault, FieldProblem};
pub use kill_switch::KillSwitch;
pub use prevention::{BudgetControls, CircuitBreaker, LoopAction, LoopDetection, PreventionConfig};
pub use whole::{Whose, read_policy, stored_policy, write_policy};

#[cfg(test)]
mod tests;
