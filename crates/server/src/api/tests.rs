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

#[test]
fn every_operation_has_an_id_of_its_own() {
    let (_, document) = handlers().split_for_parts();
    let document = openapi::complete(&document);
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.values().flat_map(|item| item.as_object().unwrap().values());
    let ids: Vec<_> = operations.map(|operation| operation["operationId"].as_str()).collect();
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len(), "{ids:?}");
    assert!(!different.contains(&None));
}
