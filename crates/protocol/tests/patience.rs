//! Patient agents are left alone and looping ones are not, under every preset.
//!
//! Each case is what an agent does, told as it would arrive: tools by name and arguments, results as
//! text. A patient one may not be refused or ended, whatever the preset; a looping one must be told
//! of under `observe`, and steered, then stopped under the others.

#[cfg(test)]
mod patience {
    use deadstop_core::*;
    use deadstop_protocol::facts;
    use serde_json::{Value, json};

    /// One thing that happens, and how many milliseconds after the last one.
    enum Event {
        /// A tool is called in a scope and brings a result; `!` in front is an error.
        Tool(Value, &'static str, Value, String),
        /// A model is asked and answers; the prompt is a user's.
        Said(String, String),
        /// A model is asked with the result of a tool in a user's name, and answers.
        Observed(String, String),
        /// A model streams this.
        Streams(String),
        /// The context is compacted.
        Compacted,
    }

    type Script = Vec<(u64, Event)>;

    fn tool(after: u64, name: &'static str, arguments: Value, result: &str) -> (u64, Event) {
        (after, Event::Tool(Value::Null, name, arguments, result.to_owned()))
    }

    /// What a policy said, strictest first.
    fn play(preset: Preset, script: &Script) -> Option<Verdict> {
        let policies = preset.policies();
        let new = |kind| ScopeState::new(kind, Time(0));
        let (mut agent, mut session) = (new(ScopeKind::Agent), new(ScopeKind::Session));
        let mut nested: Vec<(Value, ScopeState)> = Vec::new();
        let mut now = Time(1_700_000_000_000);
        let mut worst = None;
        for (after, event) in script {
            now = now + Millis(*after);
            let mut own = None;
            if let Event::Tool(place @ (Value::String(_) | Value::Number(_)), ..) = event {
                if place.is_number() {
                    // A number is another session of the same agent.
                    session = new(ScopeKind::Session);
                } else if !nested.iter().any(|(name, _)| name == place) {
                    nested.push((place.clone(), new(ScopeKind::Nested)));
                }
                own = nested.iter_mut().find(|(name, _)| name == place);
            }
            let mut chain = vec![
                Link { name: "a", state: &mut agent, policy: &policies.agent },
                Link { name: "s", state: &mut session, policy: &policies.session },
            ];
            if let Some((_, state)) = own {
                chain.push(Link { name: "n", state, policy: &policies.nested });
            }
            let trips = happens(&mut chain, event, now);
            let said = trips.iter().map(|trip| trip.verdict).max();
            worst = worst.max(said);
            if worst == Some(Verdict::Kill) {
                break;
            }
        }
        worst
    }

    fn happens(chain: &mut [Link<'_>], event: &Event, now: Time) -> Vec<Trip> {
        let (call, outcome, text) = match event {
            Event::Compacted => {
                chain.iter_mut().for_each(|link| link.state.compacted());
                return Vec::new();
            }
            Event::Tool(_, name, arguments, result) => {
                let (status, text) = match result.strip_prefix('!') {
                    Some(error) => (Status::Error, error),
                    None => (Status::Ok, result.as_str()),
                };
                let failed = facts::says_failed(text);
                let status = if failed { Status::Error } else { status };
                let result = Some(facts::result(text));
                let call = Call::Tool(facts::tool_call(name, arguments));
                (call, Outcome { status, result, ..Outcome::default() }, "")
            }
            Event::Said(prompt, answer) => (model(prompt, true), says(answer), answer.as_str()),
            Event::Observed(prompt, answer) => {
                (model(prompt, false), says(answer), answer.as_str())
            }
            Event::Streams(text) => (model("go on then", true), Outcome::default(), text.as_str()),
        };
        let admission = admit(chain, &call, now);
        let mut trips = admission.trips;
        if let Some(mut ticket) = admission.ticket {
            let streamed = Progress { output: Tokens(1), text };
            let cut = progress(chain, &call, &mut ticket, streamed, now);
            trips.extend(cut.trips);
            trips.extend(settle(chain, &call, ticket, &outcome, now).trips);
        }
        trips
    }

    fn model(prompt: &str, from_person: bool) -> Call {
        let prompt = Some(TextFacts::of(prompt));
        Call::Model(ModelCall { prompt, from_person, ..ModelCall::default() })
    }

    fn says(text: &str) -> Outcome {
        let answer = Some(Answer { text: Some(TextFacts::of(text)), calls: None });
        Outcome { answer, ..Outcome::default() }
    }

    fn word(n: usize) -> String {
        (0..4).map(|at| char::from(b'a' + (n * 31 / 7usize.pow(at) % 26) as u8)).collect()
    }

    fn poll(pause: u64, times: usize, status: impl Fn(usize) -> String) -> Script {
        (0..times).map(|n| tool(pause, "get_job", json!({ "id": 7 }), &status(n))).collect()
    }

    #[test]
    fn patient_agents_are_left_alone() {
        let five_files = |at: u64| {
            (0..5).map(move |n| {
                let path = json!({ "path": format!("src/{}.rs", word(n)) });
                tool(at, "read_file", path, &format!("fn {}() {{}}", word(n + 9)))
            })
        };
        let table: String = (0..300u32)
            .map(|n| format!("| {n} | {} | {}.5 |\n", n.wrapping_mul(2_654_435_761) >> 16, n % 97))
            .collect();
        let cases: Vec<(&str, Script)> = vec![
            ("polls \"running\" every 4 s", poll(4000, 100, |_| "running".into())),
            ("polls a status object", poll(5000, 60, |_| r#"{"status":"IN_PROGRESS"}"#.into())),
            ("polls a counter every 4 s", poll(4000, 100, |n| format!("{n}% done"))),
            ("polls a counter without a pause", poll(0, 25, |n| format!("{n} of 100 rows"))),
            ("polls what never changes every minute", poll(60_000, 25, |_| "no new mail".into())),
            ("makes the same call once an hour", poll(3_600_000, 100, |_| "no data".into())),
            (
                "sends the same report once an hour",
                (0..50).map(|_| tool(3_600_000, "send_report", json!({}), "sent")).collect(),
            ),
            (
                "sleeps between two looks",
                (0..40)
                    .flat_map(|_| {
                        let sleep = json!({ "command": "sleep 5" });
                        [
                            tool(1000, "Bash", json!({ "command": "cat out.log" }), "nothing yet"),
                            tool(1000, "Bash", sleep, ""),
                        ]
                    })
                    .collect(),
            ),
            (
                "asks for the status of sixty things",
                (0..60).map(|n| tool(500, "check_status", json!({ "id": n }), "ok")).collect(),
            ),
            (
                "looks for many words and finds none",
                (0..60)
                    .map(|n| tool(500, "search_files", json!({ "query": word(n) }), "no results"))
                    .collect(),
            ),
            (
                "is asked the same six times by a person",
                (0..6)
                    .map(|_| {
                        let asked = "how do I reset the password of my account?";
                        let told =
                            "Press the link below the form and you get a mail with a new one.";
                        (20_000, Event::Said(asked.into(), told.into()))
                    })
                    .collect(),
            ),
            (
                "classifies everything alike",
                (0..100)
                    .map(|n| {
                        let asked =
                            format!("Is this spam? {} {} {}", word(n), word(n + 1), word(n + 2));
                        (
                            50,
                            Event::Said(asked, "This message is certainly not spam at all.".into()),
                        )
                    })
                    .collect(),
            ),
            (
                "reads five files again after a compaction",
                five_files(500).chain([(500, Event::Compacted)]).chain(five_files(500)).collect(),
            ),
            ("writes a table of 300 rows", vec![(0, Event::Streams(table))]),
            (
                "reads the same in ten scopes, and in sixty sessions",
                (0..60)
                    .map(|n| {
                        let place =
                            if n < 20 { json!(format!("scope {}", n % 10)) } else { json!(n) };
                        let path = json!({ "path": "README.md" });
                        (500, Event::Tool(place, "read_file", path, "# Hello".to_owned()))
                    })
                    .collect(),
            ),
            (
                "tests after each edit",
                (0..40)
                    .flat_map(|n| {
                        let edit = json!({ "path": "a.rs", "new": word(n) });
                        [
                            tool(500, "edit_file", edit, "ok"),
                            tool(500, "Bash", json!({ "command": "cargo test" }), "!3 failed"),
                        ]
                    })
                    .collect(),
            ),
        ];
        for (name, script) in &cases {
            for preset in Preset::ALL {
                let said = play(preset, script);
                // The score that `observe` has on takes equal answers for a sign.
                let most = (preset == Preset::Observe).then_some(Verdict::Warn);
                assert!(said <= most, "{} {name}: {said:?}", preset.name());
            }
        }
    }

    #[test]
    fn looping_agents_are_not() {
        let codex = |n: usize| {
            format!(
                "Chunk ID: {:06x}\nWall time: 0.0{n} seconds\nProcess exited with code 1\nOutput:\nno such file",
                0x7c_44eb ^ (n * 77_777)
            )
        };
        let thoughts = [
            "I cannot open the configuration file because permission is denied for this account.",
            "Because permission is denied for this account, I cannot open the configuration file!",
            "The configuration file: I cannot open it, permission is denied for this account.",
        ];
        let cases: Vec<(&str, Script)> = vec![
            (
                "calls what fails again and again",
                (0..30).map(|_| tool(1000, "build", json!({}), "!no space left")).collect(),
            ),
            (
                "writes to sixty rows of a table that is read-only",
                (0..60)
                    .map(|n| tool(500, "update_row", json!({ "id": n }), "!table is read-only"))
                    .collect(),
            ),
            (
                "writes to sixty tables that are read-only",
                (0..60)
                    .map(|n| {
                        let table = json!({ "table": word(n) });
                        tool(500, "update_table", table, "!the database is read-only now")
                    })
                    .collect(),
            ),
            (
                "gets an error with other words in it each time",
                (0..40)
                    .map(|n| {
                        let error = format!(
                            "!deployment {} of the service failed: connection to {} was refused by host",
                            word(n),
                            word(n + 5)
                        );
                        tool(500, "deploy", json!({ "to": "prod" }), &error)
                    })
                    .collect(),
            ),
            (
                "runs a command that fails under Codex",
                (0..40)
                    .map(|n| tool(500, "exec_command", json!({ "cmd": "make x" }), &codex(n)))
                    .collect(),
            ),
            (
                "gets its results as a user's text",
                (0..40)
                    .map(|_| {
                        let seen = "Observation: the page could not be found on this server".into();
                        let said = "Thought: I should open the page.\nAction: open[the page]".into();
                        (500, Event::Observed(seen, said))
                    })
                    .collect(),
            ),
            (
                "says the same in other words without a tool",
                (0..40)
                    .map(|n| (500, Event::Said("continue".into(), thoughts[n % 3].into())))
                    .collect(),
            ),
            ("says one word", (0..3).map(|_| (0, Event::Streams("yes ".repeat(3000)))).collect()),
            (
                "reads the same without a pause",
                (0..30)
                    .map(|_| tool(800, "read_file", json!({ "path": "a" }), "the same old text"))
                    .collect(),
            ),
            (
                "fails the same way in ten scopes",
                (0..60)
                    .map(|n| {
                        let place = json!(format!("scope {}", n % 10));
                        let error = "!table is read-only".to_owned();
                        (500, Event::Tool(place, "update_row", json!({ "id": 3 }), error))
                    })
                    .collect(),
            ),
            ("polls for hours", poll(20_000, 400, |_| "running".into())),
        ];
        // Over sessions only `strict` ends; the default tells the model.
        let sessions: Script = (0..60)
            .map(|n| {
                let error = "!table is read-only".to_owned();
                (500, Event::Tool(json!(n), "update_row", json!({ "id": 3 }), error))
            })
            .collect();
        for (preset, verdict) in
            Preset::ALL.into_iter().zip([Verdict::Warn, Verdict::Steer, Verdict::Kill])
        {
            assert_eq!(play(preset, &sessions), Some(verdict), "{}", preset.name());
        }
        for (name, script) in &cases {
            for preset in Preset::ALL {
                let said = play(preset, script);
                let least = match preset {
                    Preset::Observe => Some(Verdict::Warn),
                    Preset::Balanced | Preset::Strict => Some(Verdict::Kill),
                };
                assert!(said >= least, "{} {name}: {said:?}", preset.name());
                assert!(preset != Preset::Observe || said == least, "observe only reports: {name}");
            }
        }
    }
}
