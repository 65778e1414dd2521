//! Who is calling, case by case.

use deadstop_core::Digest;

use super::*;

fn check(headers: &[(&str, &str)], hints: &BodyHints, session: Option<&str>, source: Source) {
    let who = identify(None, headers, hints);
    assert_eq!((who.session.as_deref(), who.source), (session, source), "{headers:?} {hints:?}");
}

fn all_hints() -> BodyHints {
    BodyHints {
        metadata_user_id: Some("user_ab12_account__session_c0ffee-1".into()),
        session: Some("conv_1".into()),
        prompt_cache_key: Some("0198f2a4-77aa-7000-8000-0123456789ab".into()),
        previous_response_id: Some("resp_1".into()),
        safety_identifier: Some("ada".into()),
        conversation: Some(Digest(255)),
    }
}

#[test]
fn the_first_that_is_there_names_the_session() {
    let trace = "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let order = [
        ("x-deadstop-session", "own", "own", Source::Deadstop),
        ("x-litellm-trace-id", "lt", "lt", Source::LiteLlm),
        ("X-LiteLLM-Session-Id", "ls", "ls", Source::LiteLlm),
        ("X-Claude-Code-Session-Id", "cc", "cc", Source::ClaudeCode),
        ("session-id", "cx", "cx", Source::Codex),
        ("X-Session-Id", "1", "1", Source::SessionHeader),
        ("session_id", "si", "si", Source::SessionHeader),
        ("conversation_id", "ci", "ci", Source::SessionHeader),
        ("Helicone-Session-Id", "he", "he", Source::SessionHeader),
        ("x-foo-session-id", "abcd_123-Z", "abcd_123-Z", Source::SessionHeader),
    ];
    for first in 0..order.len() {
        let headers: Vec<_> = order[first..].iter().rev().map(|o| (o.0, o.1)).collect();
        check(&headers, &all_hints(), Some(order[first].2), order[first].3);
    }
    let rest = [("traceparent", trace)];
    let mut hints = all_hints();
    check(&rest, &hints, Some("conv_1"), Source::Body);
    hints.session = None;
    check(&rest, &hints, Some("c0ffee-1"), Source::Metadata);
    hints.metadata_user_id = None;
    check(&rest, &hints, Some("resp_1"), Source::PreviousResponse);
    hints.previous_response_id = None;
    let key = "0198f2a4-77aa-7000-8000-0123456789ab";
    check(&rest, &hints, Some(key), Source::PromptCacheKey);
    // All users of a program share such a key: it names no conversation.
    hints.prompt_cache_key = Some("support-bot-system-prompt-v2".into());
    check(&rest, &hints, Some("ada"), Source::SafetyIdentifier);
    hints.safety_identifier = None;
    hints.prompt_cache_key = None;
    check(&[("baggage", "a=1, session.id=s9;p=1"), rest[0]], &hints, Some("s9"), Source::Trace);
    // A trace is no session, but better than nothing.
    check(&rest, &hints, Some("c-00000000000000ff"), Source::Conversation);
    hints.conversation = None;
    check(&rest, &hints, Some("0af7651916cd43dd8448eb211c80319c"), Source::Trace);
    check(&[], &BodyHints::default(), None, Source::Unnamed);
}

#[test]
fn names_that_will_not_do_are_passed_over() {
    let long = "x".repeat(201);
    let none = BodyHints::default();
    for bad in ["", "  ", "a\nb", "a\u{0}", "a\u{202e}b", long.as_str()] {
        check(&[("x-deadstop-session", bad)], &none, None, Source::Unnamed);
        let both = [("x-deadstop-session", bad), ("x-litellm-trace-id", "t")];
        check(&both, &none, Some("t"), Source::LiteLlm);
        assert_eq!(identify(Some(bad), &[], &none).agent, None);
    }
    let most = "é".repeat(100);
    check(&[("x-deadstop-session", &most)], &none, Some(&most), Source::Deadstop);
    for (header, value) in [
        ("x-foo-session-id", "short"),
        ("x-foo-session-id", "has blank in it"),
        ("foo-session-id", "abcd_123-Z"),
        ("traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01"),
        ("traceparent", "00-xyz-1-01"),
        ("traceparent", ""),
        ("baggage", "session.id, x"),
    ] {
        check(&[(header, value)], &none, None, Source::Unnamed);
    }
    let two = [("x-b-session-id", "bbbbbbbb"), ("x-a-session-id", "aaaaaaaa")];
    check(&two, &none, Some("aaaaaaaa"), Source::SessionHeader);
}

#[test]
fn metadata_comes_in_three_forms() {
    for (user_id, expected) in [
        ("user_1_account_2_session_3f", Some("3f")),
        (r#"{"device_id":"d","account_uuid":"","session_id":"s-7"}"#, Some("s-7")),
        ("ada", Some("ada")),
        (r#"{"device_id":"d"}"#, None),
        ("{broken", None),
    ] {
        let hints = BodyHints { metadata_user_id: Some(user_id.into()), ..BodyHints::default() };
        let source = if expected.is_some() { Source::Metadata } else { Source::Unnamed };
        check(&[], &hints, expected, source);
    }
}

#[test]
fn sub_agents_are_nested_scopes() {
    let claude = ("x-claude-code-session-id", "s");
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a [&'a str]);
    let cases: [Case<'_>; 9] = [
        (&[claude], "s", &[]),
        (&[claude, ("x-claude-code-agent-id", "a")], "s", &["a"]),
        (
            &[claude, ("x-claude-code-agent-id", "b"), ("x-claude-code-parent-agent-id", "a")],
            "s",
            &["a", "b"],
        ),
        (
            &[
                ("x-deadstop-session", "run"),
                claude,
                ("x-claude-code-agent-id", "a"),
                ("x-deadstop-scope", "plan//step 1/"),
            ],
            "run",
            &["plan", "step 1", "a"],
        ),
        (&[("session-id", "t1"), ("thread-id", "t1")], "t1", &[]),
        (&[("thread-id", "t1")], "t1", &[]),
        (
            &[("session-id", "t1"), ("thread-id", "t2"), ("x-codex-parent-thread-id", "t1")],
            "t1",
            &["t2"],
        ),
        (
            &[("session-id", "t2"), ("thread-id", "t2"), ("x-codex-parent-thread-id", "t1")],
            "t1",
            &["t2"],
        ),
        (
            &[("session-id", "t1"), ("thread-id", "t3"), ("x-codex-parent-thread-id", "t2")],
            "t1",
            &["t2", "t3"],
        ),
    ];
    for (headers, session, nested) in cases {
        let who = identify(None, headers, &BodyHints::default());
        assert_eq!(who.session.as_deref(), Some(session), "{headers:?}");
        assert_eq!(who.nested, nested, "{headers:?}");
    }
    let deep = [("x-deadstop-scope", "1/2/3/4/5/6/7/8/9/10")];
    assert_eq!(identify(None, &deep, &BodyHints::default()).nested.len(), DEEPEST);
}

#[test]
fn the_agent_is_named_by_header_or_url() {
    let none = BodyHints::default();
    let header = [("X-Deadstop-Agent", "coder")];
    assert_eq!(identify(Some("url"), &header, &none).agent.as_deref(), Some("url"));
    assert_eq!(identify(Some("url"), &[], &none).agent.as_deref(), Some("url"));
    assert_eq!(identify(None, &[], &none).agent, None);
}
