//! MCP servers that want a sign-in: what a client is told about where to sign in, and what the MCP server
//! and its authorization server get to see of it.

use serde_json::{Value, json};

use super::{call, gate, post, said};
use crate::support::{Ask, Gate, Reply, Seen, Step};

/// An MCP server and its authorization server under one address.
fn server(seen: &Seen, more: &Value) -> Reply {
    let here = format!("http://{}", seen.header("host").unwrap());
    let path = seen.target.split('?').next().unwrap();
    match path {
        "/files/mcp" if seen.header("authorization") == Some("Bearer good") => {
            Reply::json(200, &said(seen, "fine"))
        }
        "/files/mcp" => {
            let demand =
                format!("Bearer error=\"invalid_token\", resource_metadata=\"{here}/own/place\"");
            let headers = [("www-authenticate", demand.as_str()), ("content-length", "0")];
            Reply::head(401, &headers).then(Step::Raw(Vec::new()))
        }
        // Also where a node of a fleet looks that has not heard of the other place.
        "/own/place" | "/.well-known/oauth-protected-resource/files/mcp" => {
            let resource = format!("{here}/files/mcp");
            let metadata = json!({ "resource": resource, "authorization_servers": [format!("{here}/login")],
                "scopes_supported": ["read"], "signed_metadata": "x" });
            Reply::json(200, &metadata)
        }
        "/.well-known/oauth-authorization-server/login" => {
            let mut metadata = json!({
                "issuer": format!("{here}/login"),
                "authorization_endpoint": format!("{here}/login/authorize?tenant=1"),
                "token_endpoint": format!("{here}/login/token"),
                "registration_endpoint": format!("{here}/login/register"),
            });
            metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            Reply::json(200, &metadata)
        }
        "/login/token" => {
            Reply::json(200, &json!({ "access_token": "good", "token_type": "Bearer" }))
        }
        _ => Reply::json(404, &json!({ "error": "not found" })),
    }
}

async fn get(gate: &Gate, url: &str) -> (u16, Value) {
    let path = url.strip_prefix(&format!("http://{}", gate.address)).unwrap_or(url);
    let got = gate.ask(&Ask::get(path)).await;
    (got.status, serde_json::from_str(&got.text()).unwrap_or_default())
}

/// What the client is told that it must read to sign in.
async fn demanded(gate: &Gate) -> String {
    let mut ask = post("files", &call(1, "read", json!({})));
    ask.path = "/agent/a/mcp/files".to_owned();
    let got = gate.ask(&ask).await;
    assert_eq!(got.status, 401);
    let demand = got.header("www-authenticate").unwrap().to_owned();
    demand
        .strip_prefix("Bearer error=\"invalid_token\", resource_metadata=\"")
        .unwrap()
        .trim_end_matches('"')
        .to_owned()
}

#[tokio::test]
async fn a_client_signs_in_for_the_address_that_it_talks_to() {
    let gate = gate(json!({}), |seen| server(seen, &json!({}))).await;
    let (here, there) =
        (format!("http://{}", gate.address), format!("http://{}", gate.upstream.address));
    let place = demanded(&gate).await;
    assert_eq!(place, format!("{here}/.well-known/oauth-protected-resource/agent/a/mcp/files"));
    let (_, resource) = get(&gate, &place).await;
    let issuer = format!("{here}/mcp/files");
    assert_eq!(
        resource,
        json!({ "resource": format!("{here}/agent/a/mcp/files"), "authorization_servers": [issuer],
            "scopes_supported": ["read"] })
    );
    for place in ["oauth-authorization-server", "openid-configuration"] {
        let (_, metadata) = get(&gate, &format!("/.well-known/{place}/mcp/files")).await;
        assert_eq!(metadata["issuer"], issuer);
        assert_eq!(metadata["authorization_endpoint"], format!("{issuer}/oauth/authorize"));
        assert_eq!(metadata["token_endpoint"], format!("{issuer}/oauth/token"));
        assert_eq!(metadata["registration_endpoint"], format!("{there}/login/register"));
    }
    // The browser goes on to where it would have gone, and asks for the MCP server's own address.
    let asked =
        "/mcp/files/oauth/authorize?state=a%20b&resource=http%3A%2F%2Fours&code_challenge=c";
    let got = gate.ask(&Ask::get(asked)).await;
    let theirs = there.replace(':', "%3A").replace('/', "%2F");
    assert_eq!(
        (got.status, got.header("location").unwrap()),
        (302, format!("{there}/login/authorize?tenant=1&state=a+b&resource={theirs}%2Ffiles%2Fmcp&code_challenge=c").as_str())
    );
    // So does the request for a token; a key of Deadstop's stays here.
    for (authorization, passes) in [("Basic aWQ6c2VjcmV0", true), ("Bearer ds_key", false)] {
        let form = "grant_type=authorization_code&code=1&resource=http%3A%2F%2Fours";
        let ask = Ask { body: form.into(), ..Ask::post("/mcp/files/oauth/token", &json!({})) };
        let got = gate.ask(&ask.with("authorization", authorization)).await;
        assert_eq!((got.status, got.json()["access_token"].as_str()), (200, Some("good")));
        let seen = gate.upstream.last();
        assert_eq!(seen.target, "/login/token");
        assert_eq!(
            String::from_utf8(seen.body.clone()).unwrap(),
            format!("grant_type=authorization_code&code=1&resource={theirs}%2Ffiles%2Fmcp")
        );
        assert_eq!(seen.header("authorization"), passes.then_some(authorization));
    }
    // The token passes as it is.
    let ask = post("files", &call(1, "read", json!({}))).with("authorization", "Bearer good");
    assert_eq!(gate.ask(&ask).await.status, 200);
    assert_eq!(gate.upstream.last().header("authorization"), Some("Bearer good"));
}

#[tokio::test]
async fn an_authorization_server_that_says_its_name_stays_itself() {
    let says = json!({ "authorization_response_iss_parameter_supported": true });
    let elsewhere = json!({ "token_endpoint": "http://169.254.169.254/token" });
    for more in [says, elsewhere] {
        let gate = gate(json!({}), move |seen| server(seen, &more)).await;
        let (_, resource) = get(&gate, &demanded(&gate).await).await;
        assert_eq!(resource["resource"], format!("http://{}/agent/a/mcp/files", gate.address));
        let theirs = format!("http://{}/login", gate.upstream.address);
        assert_eq!(resource["authorization_servers"], json!([theirs]));
        for path in
            ["/.well-known/oauth-authorization-server/mcp/files", "/mcp/files/oauth/authorize"]
        {
            assert_eq!(get(&gate, path).await.0, 404, "{path}");
        }
    }
}

#[tokio::test]
async fn a_server_without_a_sign_in_has_no_metadata() {
    let gate = gate(json!({}), |seen| match seen.target.as_str() {
        "/catalogue/mcp" => Reply::json(200, &said(seen, "x")),
        "/.well-known/oauth-protected-resource/files/mcp" => Reply::json(503, &json!({})),
        _ => Reply::json(404, &json!({})),
    })
    .await;
    assert_eq!(get(&gate, "/.well-known/oauth-protected-resource/mcp/catalogue").await.0, 404);
    assert_eq!(get(&gate, "/.well-known/oauth-protected-resource/mcp/unknown").await.0, 404);
    let (status, said) = get(&gate, "/.well-known/oauth-protected-resource/mcp/files").await;
    assert!(status == 502 && said.to_string().contains("answered 503"), "{said}");
}
