//! The table of who may do what holds for every route of the document.

use super::*;

#[test]
fn the_table_lists_exactly_what_is_served() {
    let (_, document) = handlers().split_for_parts();
    let document = openapi::complete(&document);
    let mut served = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            served.push((method.to_ascii_uppercase(), path.clone()));
        }
    }
    let mut listed: Vec<_> =
        auth::ROUTES.iter().map(|(m, p, _)| ((*m).to_owned(), (*p).to_owned())).collect();
    served.sort();
    listed.sort();
    assert_eq!(served, listed);
}
