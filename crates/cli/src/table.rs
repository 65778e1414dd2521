//! Tables, and facts one below the other: readable without colour, and by `grep` and `cut`.
//!
//! On a terminal a table keeps to its width; in a pipe a row is a line.

use std::fmt;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, presets};

use crate::ui;

/// A table.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    /// A table with these columns.
    pub(crate) fn new<const N: usize>(columns: [&str; N]) -> Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = ui::width() {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width);
        }
        table.set_header(columns);
        // What stands first is what people copy: it is not broken into pieces.
        if let Some(column) = table.column_mut(0) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        Table(table)
    }

    /// Puts these columns to the right, as numbers stand.
    pub(crate) fn right<const N: usize>(mut self, columns: [usize; N]) -> Table {
        for column in columns {
            if let Some(column) = self.0.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    /// Adds a row. What comes from outside cannot break out of its cell.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells.map(|cell| ui::printable(&cell)));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A cell that ends a line pads it. The padding is cut, so that copied text has none.
        let text = self.0.to_string();
        for (number, line) in text.lines().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            f.write_str(line.trim_end())?;
        }
        Ok(())
    }
}

/// Facts about one thing, a line each; those without a value are left out.
pub(crate) fn facts<const N: usize>(facts: &[(&str, String); N]) -> String {
    let told = || facts.iter().filter(|(_, value)| !value.is_empty());
    let width = told().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    told().map(|(name, value)| format!("  {name:<width$}  {}\n", ui::printable(value))).collect()
}
