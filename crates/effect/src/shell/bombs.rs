//! Fork bombs: functions that start themselves again, and loops that start jobs without end.

use brush_parser::ast;
use deadstop_core::{HarmKind, Reach, Recovery};

use super::Walk;

impl Walk<'_> {
    fn explodes(&mut self, what: &str) {
        let kind = HarmKind::Stops;
        self.effects.harm(kind, "fork bomb", what, Reach::System, Recovery::None);
    }

    /// A function that runs itself in the background or in a pipe.
    pub(super) fn bomb(&mut self, function: &ast::FunctionDefinition) {
        let name = function.fname.value.as_str();
        let lists: Vec<&ast::CompoundList> = match &function.body.0 {
            ast::CompoundCommand::BraceGroup(group) => vec![&group.list],
            ast::CompoundCommand::Subshell(subshell) => vec![&subshell.list],
            _ => return,
        };
        let calls = |command: &ast::Command| match command {
            ast::Command::Simple(simple) => {
                simple.word_or_name.as_ref().is_some_and(|word| word.value == name)
            }
            _ => false,
        };
        let multiplies = lists.iter().flat_map(|list| &list.0).any(|item| {
            let ast::CompoundListItem(and_or, separator) = item;
            let background = matches!(separator, ast::SeparatorOperator::Async);
            and_or.into_iter().any(|(_, pipeline)| {
                let own = pipeline.seq.iter().filter(|command| calls(command)).count();
                own > 1 || (own == 1 && (background || pipeline.seq.len() > 1))
            })
        });
        if multiplies {
            self.explodes(name);
        }
    }

    /// The same two in a text that the parser gave up on.
    pub(super) fn bomb_in_text(&mut self, text: &str) {
        let bare: String = text.chars().filter(|c| !c.is_whitespace()).take(4096).collect();
        let forever = bare.split("for((").skip(1).any(|rest| {
            let head = rest.split("))").next().unwrap_or(rest);
            let condition = head.split(';').nth(1);
            condition == Some("") && rest.contains("&done") && !rest.contains("wait")
        });
        if forever || bare.contains(":(){:|:&};:") {
            self.explodes("loop");
        }
    }

    /// `for ((;;)); do job & done`.
    pub(super) fn endless(&mut self, clause: &ast::ArithmeticForClauseCommand) {
        let bounded = clause.condition.as_ref().is_some_and(|c| !c.value.trim().is_empty());
        if !bounded && piles_up(&clause.body.list) {
            self.explodes("for");
        }
    }

    /// `while true; do job & done`.
    pub(super) fn endless_loop(&mut self, is_while: bool, clause: &ast::WhileOrUntilClauseCommand) {
        let forever = match is_while {
            true => ["true", ":", "/bin/true", "/usr/bin/true"],
            false => ["false", "/bin/false", "/usr/bin/false", "!"],
        };
        let [ast::CompoundListItem(and_or, _)] = clause.0.0.as_slice() else { return };
        let mut pipelines = and_or.into_iter();
        let (Some((_, pipeline)), None) = (pipelines.next(), pipelines.next()) else { return };
        let [ast::Command::Simple(simple)] = pipeline.seq.as_slice() else { return };
        let word = simple.word_or_name.as_ref().map_or("", |word| word.value.as_str());
        if forever.contains(&word) && simple.suffix.is_none() && piles_up(&clause.1.list) {
            self.explodes("loop");
        }
    }
}

/// Whether a loop's body starts jobs and does not wait for them.
fn piles_up(list: &ast::CompoundList) -> bool {
    let first = |and_or: &ast::AndOrList| match and_or.first.seq.first() {
        Some(ast::Command::Simple(simple)) => {
            simple.word_or_name.as_ref().map(|word| word.value.clone()).unwrap_or_default()
        }
        _ => String::new(),
    };
    let mut jobs = false;
    let (mut waits, mut lets_go) = (false, false);
    for ast::CompoundListItem(and_or, separator) in &list.0 {
        jobs |= matches!(separator, ast::SeparatorOperator::Async);
        match first(and_or).as_str() {
            "wait" | "break" | "exit" | "return" => waits = true,
            "disown" => lets_go = true,
            _ => {}
        }
    }
    jobs && (!waits || lets_go)
}
