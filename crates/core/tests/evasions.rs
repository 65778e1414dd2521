//! The ways round the guards that are known, and where each of them ends.

#[cfg(test)]
mod support;

#[cfg(test)]
mod evasions {
    use deadstop_core::*;

    use crate::support::*;

    const PATH: &str = "acme/coder/s1";

    /// Plays steps under `strict` until the session is ended: at which call, by which guard, and why.
    /// The agent takes no advice and asks again for what is refused.
    fn check(
        steps: impl IntoIterator<Item = (Call, Outcome, Time)>,
        expected: Option<(usize, GuardId, &str, &str)>,
    ) {
        let mut world = World::of(Preset::Strict.policies());
        let mut stopped = None;
        for (n, (call, outcome, now)) in steps.into_iter().enumerate() {
            let trips = world.run(PATH, &call, &outcome, now);
            if let Some(trip) = trips.into_iter().find(|trip| trip.verdict == Verdict::Kill) {
                stopped = Some((n + 1, trip.guard, trip.reason.clone(), trip.explain()));
                break;
            }
        }
        let expected = expected.map(|(n, guard, reason, sentence)| {
            (n, guard, reason.to_owned(), format!("stopped: {sentence}"))
        });
        assert_eq!(stopped, expected);
    }

    fn word(n: usize) -> String {
        let letters = (0..3).map(|place| char::from(b'a' + (n / 26usize.pow(place) % 26) as u8));
        letters.collect()
    }

    #[test]
    fn a_nonce_in_the_arguments() {
        let fails = (0..20).map(|n| {
            let call = tool("http_get", &format!("url=/report?nonce={n}&t=17000000{n:02}"));
            (call, result(Status::Error, "404 not found"), at(n))
        });
        check(
            fails,
            Some((
                8,
                GuardId::Loop,
                "retry_without_progress",
                "http_get tried 8 times and failed the same way each time (limit 8)",
            )),
        );
        let succeeds = (0..20).map(|n| {
            let call = harmless(Effect::Reads, "http_get", &format!("url=/report id=3f2a9c{n:02}"));
            let page = "the report is empty, there were no sales in this period and no returns, \
                        please choose another period or another shop";
            (call, result(Status::Ok, page), at(n))
        });
        check(
            succeeds,
            Some((
                16,
                GuardId::Loop,
                "repetition",
                "http_get 16 times with arguments that differ only in numbers or ids, and the same \
                 result (limit 16)",
            )),
        );
        // Of calls that change something it is a batch.
        let batch = (0..200).map(|n| {
            (tool("set_cell", &format!("row={n} value=0")), result(Status::Ok, "ok"), at(n))
        });
        check(batch, None);
    }

    /// A job may be getting on; it is not believed for ever.
    #[test]
    fn numbers_in_the_results() {
        let steps = (0..20).map(|n| {
            let call = harmless(Effect::Reads, "job_status", "id=a");
            (call, result(Status::Ok, &format!("running, {n}% done")), at(n))
        });
        check(
            steps,
            Some((
                13,
                GuardId::Loop,
                "no_progress",
                "the last 8 calls, up to job_status, returned nothing new (limit 8)",
            )),
        );
    }

    /// What the model thinks between its calls does not count; what the calls bring does.
    #[test]
    fn a_reworded_thought() {
        let steps = (0..40).map(|n| {
            let thought =
                format!("let me try it {} this time, {} should help", word(n), word(n + 7));
            match n % 2 {
                0 => (says("", false), answer(&thought), at(n as u64)),
                _ => (tool("build", "all"), result(Status::Error, "no space left"), at(n as u64)),
            }
        });
        // The eighth build is the sixteenth call.
        check(
            steps,
            Some((
                16,
                GuardId::Loop,
                "retry_without_progress",
                "build tried 8 times and failed the same way each time (limit 8)",
            )),
        );
        let tool_thoughts = (0..40).map(|n| match n % 2 {
            0 => {
                let thought = harmless(Effect::Inert, "think", &word(n));
                (thought, result(Status::Ok, ""), at(n as u64))
            }
            _ => (tool("build", "all"), result(Status::Error, "no space left"), at(n as u64)),
        });
        check(
            tool_thoughts,
            Some((
                18,
                GuardId::Loop,
                "no_progress",
                "the last 8 calls, up to build, returned nothing new (limit 8)",
            )),
        );
    }

    #[test]
    fn twice_the_same_and_then_nothing() {
        let steps = (0..40).map(|n| match n % 3 {
            2 => (harmless(Effect::Inert, "noop", ""), result(Status::Ok, "ok"), at(n)),
            _ => (tool("sync", "all"), result(Status::Ok, "nothing to do"), at(n)),
        });
        check(
            steps,
            Some((
                10,
                GuardId::Loop,
                "no_progress",
                "the last 8 calls, up to sync, returned nothing new (limit 8)",
            )),
        );
    }

    #[test]
    fn rounds_of_three() {
        let steps = (0..40).map(|n| {
            let (name, brings) = [("list", "a b"), ("open", "empty"), ("close", "done")][n % 3];
            (tool(name, "x"), result(Status::Ok, brings), at(n as u64))
        });
        check(
            steps,
            Some((
                11,
                GuardId::Loop,
                "no_progress",
                "the last 8 calls, up to open, returned nothing new (limit 8)",
            )),
        );
    }

    #[test]
    fn timestamps_and_request_ids_in_errors() {
        let steps = (0..40).map(|n| {
            let error = format!(
                "2024-01-15T10:30:{n:02}.{n}23Z ERROR request 550e8400-e29b-41d4-a716-4466554400{n:02} \
                 timed out after {}.5 s, see /tmp/trace-{n}.log",
                n + 30
            );
            (tool("deploy", "prod"), result(Status::Error, &error), at(n))
        });
        check(
            steps,
            Some((
                8,
                GuardId::Loop,
                "retry_without_progress",
                "deploy tried 8 times and failed the same way each time (limit 8)",
            )),
        );
    }

    /// The window of the destructive guard is 60 seconds; the loop guard counts calls.
    #[test]
    fn a_delete_loop_slower_than_the_window() {
        let steps = (0..20).map(|n| {
            let call = delete("delete_asset", "asset_id=fact_sales");
            (call, result(Status::Ok, "asset still exists"), at(61 * n))
        });
        check(
            steps,
            Some((
                8,
                GuardId::Loop,
                "repetition",
                "delete_asset with the same arguments and result 8 times (limit 8)",
            )),
        );
        // One a day, or one an hour, is a schedule and no loop.
        for pause in [86_400, 3600] {
            let scheduled =
                (0..40).map(|n| (tool("report", ""), result(Status::Ok, "no data"), at(pause * n)));
            check(scheduled, None);
        }
    }

    #[test]
    fn saying_continue_does_not_start_over() {
        let steps = (0..40).map(|n| match n % 2 {
            0 => (says("continue", true), Outcome::default(), at(n)),
            _ => (tool("build", "all"), result(Status::Ok, "up to date"), at(n)),
        });
        check(
            steps,
            Some((
                16,
                GuardId::Loop,
                "repetition",
                "build with the same arguments and result 8 times (limit 8)",
            )),
        );
    }

    /// Not an evasion but its opposite: many people who say the same to one agent are no loop.
    #[test]
    fn many_users_who_say_hi() {
        let mut session = Policy::strict();
        session.similarity = SimilaritySettings::tight();
        let agent = Preset::Strict.policies().agent;
        let users: [&'static str; 30] = [
            "u01", "u02", "u03", "u04", "u05", "u06", "u07", "u08", "u09", "u10", "u11", "u12",
            "u13", "u14", "u15", "u16", "u17", "u18", "u19", "u20", "u21", "u22", "u23", "u24",
            "u25", "u26", "u27", "u28", "u29", "u30",
        ];
        let mut world = World::default().with(ScopeKind::Agent, "helpdesk", agent);
        for user in users {
            world = world.with(ScopeKind::Session, user, session.clone());
        }
        let question = "hello, I have forgotten my password, what can I do about it now please";
        let reply = "hello, please press the link below the form to have a new one sent to you";
        for (n, user) in users.into_iter().enumerate() {
            let path = format!("helpdesk/{user}");
            for (prompt, text) in [("hi", "hi"), (question, reply), ("", ""), ("yes", "ok")] {
                let trips = world.run(&path, &says(prompt, true), &answer(text), at(n as u64));
                assert_eq!(trips, [], "{user} says {prompt:?}");
            }
        }
        // One user who says "hi" all day is no loop either.
        for n in 0..200 {
            assert_eq!(world.run("helpdesk/u01", &says("hi", true), &answer("hi"), at(n)), []);
        }
    }

    /// A clock that goes backwards opens no window.
    #[test]
    fn a_clock_that_goes_backwards() {
        let steps = [100, 90, 80].map(|second| {
            let call = delete("delete_asset", "asset_id=fact_sales");
            (call, result(Status::Ok, "asset still exists"), at(second))
        });
        check(
            steps,
            Some((
                3,
                GuardId::Destructive,
                "destructive_target",
                "delete_asset on asset_id=fact_sales 3 times in 0 s (limit 3 in 60 s)",
            )),
        );
    }
}
