//! Bodies, parameters and headers that are not as they should be.

use axum::body::Body as Bytes;
use serde_json::json;

use super::*;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Small {
    #[schema(max_length = 5)]
    name: String,
    #[schema(required)]
    limit: Option<u32>,
}

impl Strict for Small {}

async fn send(kind: Option<&str>, body: impl Into<Bytes>) -> Result<Small, Problem> {
    let mut request = Request::builder().method("POST").uri("/");
    if let Some(kind) = kind {
        request = request.header("content-type", kind);
    }
    let request = request.body(body.into()).unwrap();
    Body::<Small>::from_request(request, &()).await.map(|Body(small)| small)
}

#[tokio::test]
async fn bodies_are_json_of_a_bounded_size() {
    let json = Some("application/json");
    let fine = json!({ "name": "a", "limit": null }).to_string();
    for (kind, body, code) in [
        (None, fine.clone(), Code::WrongContentType),
        (Some("text/plain"), fine.clone(), Code::WrongContentType),
        (json, String::new(), Code::BadJson),
        (json, "{".to_owned(), Code::BadJson),
        (json, "{}{}".to_owned(), Code::BadJson),
        (json, r#"{"name":"a","name":"b","limit":1}"#.to_owned(), Code::BadJson),
        (json, "[".repeat(1000), Code::BadJson),
        (json, "[]".to_owned(), Code::InvalidBody),
        (json, "{}".to_owned(), Code::InvalidBody),
        (json, format!("\"{}\"", "x".repeat(MAX_BODY)), Code::TooLarge),
    ] {
        let problem = send(kind, body.clone()).await.unwrap_err();
        assert_eq!(problem.code(), code, "{kind:?} {}", &body[..body.len().min(50)]);
    }
    for kind in ["application/json", "Application/JSON; charset=utf-8"] {
        let small = send(Some(kind), fine.clone()).await.unwrap();
        assert_eq!((small.name.as_str(), small.limit), ("a", None));
    }
}

async fn ask(query: &str) -> Result<Filter, Vec<String>> {
    let request = Request::builder().uri(format!("/?{query}")).body(()).unwrap();
    let (mut parts, ()) = request.into_parts();
    let asked = Asked::<Filter>::from_request_parts(&mut parts, &()).await;
    asked.map(|Asked(filter)| filter).map_err(|problem| {
        assert_eq!(problem.code(), Code::InvalidQuery);
        let body = serde_json::to_value(format!("{problem:?}")).unwrap();
        vec![body.as_str().unwrap().to_owned()]
    })
}

#[tokio::test]
async fn parameters_are_known_and_typed() {
    let filter = ask("limit=7&agent=a%20b&from=5").await.unwrap();
    assert_eq!(
        (filter.paging().limit, filter.agent.as_deref(), filter.from),
        (7, Some("a b"), Some(5))
    );
    assert_eq!(ask("").await.unwrap().paging().limit, PAGE);
    for (query, named) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=x", "limit"),
        ("limit=", "limit"),
        ("limit=1&limit=2", "limit"),
        ("from=-1", "from"),
        ("color=red", "color"),
    ] {
        let told = ask(query).await.unwrap_err();
        assert!(told[0].contains(named), "{query}: {told:?}");
    }
    assert!(ask("guard=unknown").await.unwrap().guard().is_err());
    assert_eq!(ask("guard=text_loop").await.unwrap().guard().unwrap(), Some(GuardId::TextLoop));
}

#[test]
fn versions_are_read_from_etags() {
    for (text, expected) in [
        (None, IfMatch::Unsaid),
        (Some("*"), IfMatch::Any),
        (Some("\"3\""), IfMatch::Version(3)),
        (Some("3"), IfMatch::Version(3)),
        (Some("W/\"3\""), IfMatch::Foreign),
        (Some("\"abc\""), IfMatch::Foreign),
        (Some(""), IfMatch::Foreign),
    ] {
        let mut headers = HeaderMap::new();
        if let Some(text) = text {
            headers.insert(header::IF_MATCH, text.parse().unwrap());
        }
        assert_eq!(if_match(&headers), expected, "{text:?}");
    }
    assert_eq!(IfMatch::Unsaid.expected(Needed::Yes).unwrap_err().code(), Code::IfMatchRequired);
    assert_eq!(IfMatch::Unsaid.expected(Needed::No).unwrap(), None);
    assert_eq!(IfMatch::Foreign.expected(Needed::No).unwrap_err().code(), Code::VersionMismatch);
}
