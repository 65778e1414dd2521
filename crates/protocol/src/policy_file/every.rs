//! All mistakes of a policy at once. What was found wrong is passed over and the rest is read again,
//! until nothing is wrong any more.

use deadstop_core::PolicySet;

use super::fault::Fault;
use super::tree::{Node, Spot, Value};

/// Mistakes that are named at most; with more the file is another one than was meant.
const MOST: usize = 50;

/// The policies, or everything that is wrong.
pub(super) fn resolve(tree: &mut Node) -> Result<PolicySet, Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    // Sections in which something was passed over.
    let mut touched: Vec<Spot> = Vec::new();
    loop {
        let fault = match super::resolve(tree) {
            Ok(policies) if faults.is_empty() => return Ok(policies),
            Ok(_) => return Err(faults),
            Err(fault) => fault,
        };
        let Some(spot) = fault.spot() else {
            faults.push(fault);
            return Err(faults);
        };
        let section = section_of(tree, spot);
        let again = section.is_some_and(|section| touched.contains(&section));
        let follows = lacks(tree, spot) || (again && !stands_alone(tree, spot, &fault));
        let holds = !fault.is_setting() || !follows;
        touched.extend(section);
        if holds {
            faults.push(fault);
        }
        if !pass_over(tree, spot) || faults.len() >= MOST {
            return Err(faults);
        }
    }
}

/// Whether a setting is wrong by itself. One that is wrong only beside a default, which took the place
/// of a setting that was passed over, is no mistake of the file.
fn stands_alone(tree: &mut Node, spot: Spot, fault: &Fault) -> bool {
    let Some(section) = find(tree, &mut |node| has(node, spot)) else { return true };
    let Value::Section(entries) = &mut section.value else { return true };
    let is_it = |key: Spot, node: &Node| key == spot || node.spot == spot;
    let mut others = Vec::new();
    for (key, node) in entries.iter_mut().filter(|(key, node)| !is_it(key.spot, node)) {
        others.push((key.spot, std::mem::replace(&mut node.value, Value::Gone)));
    }
    let same = super::resolve(tree).is_err_and(|alone| alone.problem() == fault.problem());
    if let Some(section) = find(tree, &mut |node| has(node, spot))
        && let Value::Section(entries) = &mut section.value
    {
        for (place, value) in others {
            let entry = entries.iter_mut().find(|(key, _)| key.spot == place);
            if let Some((_, node)) = entry {
                node.value = value;
            }
        }
    }
    same
}

/// Whether something was passed over inside what stands there: then it is wrong because of that.
fn lacks(tree: &mut Node, spot: Spot) -> bool {
    let Some(holder) = find(tree, &mut |node| has(node, spot)) else { return false };
    let mut gone = |node: &Node| node.is_gone();
    match &holder.value {
        Value::Section(entries) => entries.iter().any(|(key, node)| {
            (key.spot == spot || node.spot == spot) && holds_one(node, &mut gone)
        }),
        Value::List(items) => {
            items.iter().any(|item| item.spot == spot && holds_one(item, &mut gone))
        }
        _ => false,
    }
}

/// Whether this node holds what stands there: an entry by its key or its value, or an item.
fn has(node: &Node, spot: Spot) -> bool {
    match &node.value {
        Value::Section(entries) => entries
            .iter()
            .any(|(key, inner)| !inner.is_gone() && (key.spot == spot || inner.spot == spot)),
        Value::List(items) => items.iter().any(|item| !item.is_gone() && item.spot == spot),
        _ => false,
    }
}

/// The innermost node that fits.
fn find<'n>(node: &'n mut Node, fits: &mut dyn FnMut(&Node) -> bool) -> Option<&'n mut Node> {
    let inner = match &node.value {
        Value::Section(entries) => entries.iter().position(|(_, inner)| holds_one(inner, fits)),
        Value::List(items) => items.iter().position(|item| holds_one(item, fits)),
        _ => None,
    };
    let Some(at) = inner else { return fits(node).then_some(node) };
    match &mut node.value {
        Value::Section(entries) => entries.get_mut(at).and_then(|(_, inner)| find(inner, fits)),
        Value::List(items) => items.get_mut(at).and_then(|item| find(item, fits)),
        _ => None,
    }
}

/// Whether this node, or one inside it, fits.
fn holds_one(node: &Node, fits: &mut dyn FnMut(&Node) -> bool) -> bool {
    fits(node)
        || match &node.value {
            Value::Section(entries) => entries.iter().any(|(_, inner)| holds_one(inner, fits)),
            Value::List(items) => items.iter().any(|item| holds_one(item, fits)),
            _ => false,
        }
}

/// Where the section begins that holds what stands there.
fn section_of(tree: &mut Node, spot: Spot) -> Option<Spot> {
    find(tree, &mut |node| has(node, spot)).map(|node| node.spot)
}

/// Passes over what stands there; false if nothing does.
fn pass_over(tree: &mut Node, spot: Spot) -> bool {
    let Some(holder) = find(tree, &mut |node| has(node, spot)) else { return false };
    let gone = |node: &mut Node| node.value = Value::Gone;
    match &mut holder.value {
        Value::Section(entries) => {
            let found = entries
                .iter_mut()
                .find(|(key, node)| !node.is_gone() && (key.spot == spot || node.spot == spot));
            found.map(|(_, node)| gone(node)).is_some()
        }
        Value::List(items) => {
            let found = items.iter_mut().find(|item| !item.is_gone() && item.spot == spot);
            found.map(gone).is_some()
        }
        _ => false,
    }
}
