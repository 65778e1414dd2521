//! Tables, and facts one below the other.
//!
//! On a terminal a table keeps to its width. It never breaks a word: the last column, which holds
//! sentences, is wrapped between words, and columns that do not fit are left out and named below. A long
//! name is cut in its middle where the columns beside it, such as the state, would be left out for it.
//! In a pipe a row is a line and cells are separated by tabs, for `cut`, `sort` and `awk`.

use std::fmt;

use crate::ui;

/// The narrowest that a column of sentences gets before other columns are left out.
const SENTENCE: usize = 28;
/// The narrowest that it gets before the second and the third column are left out.
const NARROW: usize = 20;
/// The widths to which names are cut, one after the other, until the first columns fit beside them.
const CUTS: [usize; 6] = [40, 32, 24, 20, 16, 12];
/// The columns that say what a row is about: names are cut rather than leaving these out.
const FIRST: usize = 4;
/// Lines that a sentence may take in a list; `deadstop explain` has the whole of it.
const LINES: usize = 3;
const GAP: usize = 2;

/// A table.
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    inside: bool,
    width: Option<usize>,
    colour: bool,
}

struct Column {
    name: String,
    right: bool,
    /// Whether it holds names or ids, which are known by their beginning and their end.
    names: bool,
}

impl Table {
    /// A table with these columns, the more important ones first, and sentences last.
    pub(crate) fn new<const N: usize>(columns: [&str; N]) -> Table {
        let column = |name: &str| Column { name: name.to_owned(), right: false, names: false };
        Table {
            columns: columns.iter().map(|name| column(name)).collect(),
            rows: Vec::new(),
            inside: false,
            width: ui::width().map(usize::from),
            colour: ui::colour(),
        }
    }

    /// Puts these columns to the right, as numbers stand.
    pub(crate) fn right<const N: usize>(mut self, columns: [usize; N]) -> Table {
        for index in columns {
            if let Some(column) = self.columns.get_mut(index) {
                column.right = true;
            }
        }
        self
    }

    /// Says which columns hold names or ids: long ones are cut in the middle where they would hide others.
    pub(crate) fn names<const N: usize>(mut self, columns: [usize; N]) -> Table {
        for index in columns {
            if let Some(column) = self.columns.get_mut(index) {
                column.names = true;
            }
        }
        self
    }

    /// For a table inside a text: its columns are aligned in a pipe, too, and nothing is left out.
    pub(crate) fn inside(mut self) -> Table {
        self.inside = true;
        self
    }

    /// Adds a row. What comes from outside cannot break out of its cell.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.map(|cell| ui::printable(&cell)).into());
    }

    /// Rows as lines, cells between tabs: the first line names the columns.
    fn tabbed(&self) -> String {
        let names = self.columns.iter().map(|column| column.name.clone()).collect();
        let lines = std::iter::once(&names).chain(&self.rows);
        lines.map(|cells: &Vec<String>| cells.join("\t")).collect::<Vec<_>>().join("\n")
    }

    /// How wide each column would like to be. One without any content is left out.
    fn natural(&self) -> Vec<usize> {
        let wide = |index: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(index));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let name = |column: &Column| column.name.chars().count();
        let wanted = |(index, column)| match wide(index) {
            0 if index > 0 && !self.inside => 0,
            width => width.max(name(column)),
        };
        self.columns.iter().enumerate().map(wanted).collect()
    }

    /// The widths that fit into `most`, and the names of the columns that had to go.
    fn fitted(&self, most: usize) -> (Vec<usize>, Vec<&str>) {
        let first = FIRST.min(self.columns.len().saturating_sub(1));
        let wanted = self.natural();
        let kept = |widths: &[usize]| widths.iter().take(first).filter(|width| **width > 0).count();
        let mut best = self.fitted_with(wanted.clone(), usize::MAX, most);
        // Names are cut no further than brings another of the first columns back.
        for cut in CUTS {
            let fits = self.fitted_with(wanted.clone(), cut, most);
            if kept(&fits.0) > kept(&best.0) {
                best = fits;
            }
        }
        best
    }

    /// The same with names cut to so many columns.
    fn fitted_with(
        &self,
        mut widths: Vec<usize>,
        cut: usize,
        most: usize,
    ) -> (Vec<usize>, Vec<&str>) {
        for (width, _) in widths.iter_mut().zip(&self.columns).filter(|(_, column)| column.names) {
            *width = (*width).min(cut);
        }
        let last = widths.len().saturating_sub(1);
        let mut left_out = Vec::new();
        loop {
            let before: usize = widths[..last].iter().filter(|w| **w > 0).map(|w| w + GAP).sum();
            let sentence = widths.get(last).copied().unwrap_or_default();
            let room = most.saturating_sub(before);
            // A narrow sentence is better than a row that does not say what it is about.
            let next = (1..last).rev().find(|index| widths[*index] > 0);
            let least = if next.is_some_and(|next| next > 2) { SENTENCE } else { NARROW };
            let empty = sentence == 0 && before.saturating_sub(GAP) <= most;
            if (sentence > 0 && sentence <= room) || empty || room >= least {
                if let Some(width) = widths.last_mut() {
                    *width = sentence.min(room);
                }
                return (widths, left_out);
            }
            // The first column names the row: it stays, however long it is.
            let Some(index) = (1..last).rev().find(|index| widths[*index] > 0) else {
                if let Some(width) = widths.last_mut() {
                    *width = sentence.min(room.max(SENTENCE));
                }
                return (widths, left_out);
            };
            widths[index] = 0;
            left_out.insert(0, self.columns[index].name.as_str());
        }
    }

    /// The table for people, in so many columns of a terminal.
    fn aligned(&self, most: usize, lines: usize) -> String {
        let (widths, left_out) = self.fitted(most);
        let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        let mut out = self.line(&names, &widths, &|text, _| self.painted(text, "2"));
        for row in &self.rows {
            let mut row = row.clone();
            let sentence =
                row.last().map(|text| wrapped(text, *widths.last().unwrap_or(&0), lines));
            let mut rest = sentence.unwrap_or_default().into_iter();
            if let (Some(cell), Some(first)) = (row.last_mut(), rest.next()) {
                *cell = first;
            }
            out.push_str(&self.line(&row, &widths, &|text, cell| self.meaning(text, cell)));
            let indent: usize =
                widths[..widths.len() - 1].iter().filter(|w| **w > 0).map(|w| w + GAP).sum();
            for line in rest {
                out.push_str(&format!("{:indent$}{line}\n", ""));
            }
        }
        if !left_out.is_empty() {
            let note = format!("(no room for: {}; --json has all)", left_out.join(", "));
            for line in wrapped(&note, most, usize::MAX) {
                out.push_str(&format!("{}\n", self.painted(&line, "2")));
            }
        }
        out.trim_end().to_owned()
    }

    /// One line; `paint` gets a cell as it is padded, and as it is.
    fn line(
        &self,
        cells: &[String],
        widths: &[usize],
        paint: &dyn Fn(&str, &str) -> String,
    ) -> String {
        let mut out = String::new();
        let shown =
            cells.iter().zip(widths).zip(&self.columns).filter(|((_, width), _)| **width > 0);
        for ((cell, &width), column) in shown {
            if !out.is_empty() {
                out.push_str("  ");
            }
            let shown = if column.names { cut(cell, width) } else { cell.clone() };
            let padding = " ".repeat(width.saturating_sub(shown.chars().count()));
            match column.right {
                true => out.push_str(&format!("{padding}{}", paint(&shown, cell))),
                false => out.push_str(&format!("{}{padding}", paint(&shown, cell))),
            }
        }
        format!("{}\n", out.trim_end())
    }

    /// A cell in the colour of its meaning: what is stopped is red, what waits for a person yellow.
    fn meaning(&self, text: &str, cell: &str) -> String {
        match cell {
            "killed" | "stopped" | "kill" | "block" | "blocked" | "STOPPED" => {
                self.painted(text, "31;1")
            }
            "paused" | "waiting" | "ask" | "steer" | "warn" | "warning" => self.painted(text, "33"),
            _ => text.to_owned(),
        }
    }

    fn painted(&self, text: &str, code: &str) -> String {
        match self.colour && !text.is_empty() {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&match self.width {
            None if self.inside => self.aligned(usize::MAX, 1),
            None => self.tabbed(),
            Some(width) => self.aligned(width, LINES),
        })
    }
}

/// A name in so many columns: its beginning and its end, which both find it.
fn cut(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= width {
        return name.to_owned();
    }
    let end = width.saturating_sub(1) / 2;
    let begin = width.saturating_sub(1) - end;
    let part = |letters: &[char]| letters.iter().collect::<String>();
    format!("{}…{}", part(&letters[..begin]), part(&letters[letters.len() - end..]))
}

/// A text in lines of this width, broken between words only; what does not fit is cut, visibly.
fn wrapped(text: &str, width: usize, most: usize) -> Vec<String> {
    if text.chars().count() <= width {
        return vec![text.to_owned()];
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { break };
        let long = line.chars().count() + 1 + word.chars().count();
        if line.is_empty() {
            line.push_str(word);
        } else if long <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            while last.chars().count() + 2 > width
                && let Some(space) = last.rfind(' ')
            {
                last.truncate(space);
            }
            last.push_str(" …");
        }
    }
    lines
}

/// Facts about one thing, a line each; those without a value are left out.
pub(crate) fn facts<const N: usize>(facts: &[(&str, String); N]) -> String {
    let told = || facts.iter().filter(|(_, value)| !value.is_empty());
    let width = told().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    told().map(|(name, value)| format!("  {name:<width$}  {}\n", ui::printable(value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incidents(width: Option<usize>) -> Table {
        let mut table = Table::new(["incident", "state", "session", "cost", "seen by", "what"]);
        (table.width, table.colour) = (width, false);
        table = table.right([3]);
        for (id, why) in [
            ("inc-1", "delete_asset on asset_id=fact_sales 3 times in 12 s (limit 3 in 60 s)"),
            ("inc-2", "the session has spent $5.01 of $5.00"),
        ] {
            let session = "researcher/2026-11-15-overnight".to_owned();
            let cells =
                [id.into(), "killed".into(), session, "$5.01".into(), "".into(), why.into()];
            table.row(cells);
        }
        table
    }

    #[test]
    fn a_wide_terminal_has_room_for_all() {
        let shown = incidents(Some(160)).to_string();
        let expected = "\
incident  state   session                           cost  what
inc-1     killed  researcher/2026-11-15-overnight  $5.01  delete_asset on asset_id=fact_sales 3 times in 12 s (limit 3 in 60 s)
inc-2     killed  researcher/2026-11-15-overnight  $5.01  the session has spent $5.01 of $5.00";
        assert_eq!(shown, expected, "an empty column is left out");
    }

    #[test]
    fn words_stay_whole_at_80_and_120_columns() {
        let at_120 = incidents(Some(120)).to_string();
        assert_eq!(at_120.lines().count(), 4, "{at_120}");
        let at_80 = incidents(Some(80)).to_string();
        let expected = "\
incident  state   session                          what
inc-1     killed  researcher/2026-11-15-overnight  delete_asset on
                                                   asset_id=fact_sales 3 times
                                                   in 12 s (limit 3 in 60 s)
inc-2     killed  researcher/2026-11-15-overnight  the session has spent $5.01
                                                   of $5.00
(no room for: cost; --json has all)";
        assert_eq!(at_80, expected);
        for shown in [at_120, at_80] {
            assert!(shown.contains("asset_id=fact_sales"), "{shown}");
        }
    }

    #[test]
    fn columns_go_before_names_are_cut() {
        let shown = incidents(Some(50)).to_string();
        assert!(
            shown.starts_with("incident  state   what\ninc-1     killed  delete_asset"),
            "{shown}"
        );
        assert!(shown.ends_with("(no room for: session, cost; --json has all)"), "{shown}");
    }

    /// Found on a walk: with one long name in it, a list at 80 columns had no states.
    #[test]
    fn a_long_name_is_cut_rather_than_hiding_the_state() {
        let mut table = Table::new(["session", "state", "model", "cost", "why"]).names([0]);
        (table.width, table.colour) = (Some(80), false);
        let long = format!("release-notes-writer/conversation-{}-end", "0123456789".repeat(6));
        for name in [long, "coder/issue-2093".to_owned()] {
            table.row([name, "running".into(), "gpt-4o".into(), "$0.0042".into(), "".into()]);
        }
        let expected = "\
session                                   state    model   cost
release-notes-writer…567890123456789-end  running  gpt-4o  $0.0042
coder/issue-2093                          running  gpt-4o  $0.0042";
        assert_eq!(table.to_string(), expected);
        table.width = None;
        assert!(table.to_string().contains("conversation-0123456789"), "a pipe has all of it");
    }

    /// Found on a walk: a list without sentences was wider than its terminal.
    #[test]
    fn a_list_without_sentences_keeps_to_its_width() {
        let mut table = Table::new(["agent", "switch", "last used", "tags"]).names([0]);
        (table.width, table.colour) = (Some(40), false);
        table.row(["coder".into(), "on".into(), "2026-11-19 04:48:28 (96s ago)".into(), "".into()]);
        let expected = "agent  switch\ncoder  on\n(no room for: last used; --json has all)";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn a_pipe_gets_a_line_a_row_and_tabs() {
        let shown = incidents(None).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0], "incident\tstate\tsession\tcost\tseen by\twhat");
        assert_eq!(lines[2].split('\t').nth(5), Some("the session has spent $5.01 of $5.00"));
    }

    #[test]
    fn what_is_stopped_is_red() {
        let mut table = incidents(Some(160));
        table.colour = true;
        let shown = table.to_string();
        assert!(shown.contains("\u{1b}[31;1mkilled\u{1b}[0m"), "{shown:?}");
    }
}
