//! How results reach people and machines.
//!
//! One value, three forms: a table of at most 80 columns, JSON or YAML. Data goes to standard output and
//! nothing else does; a closed pipe ends the program quietly.

use std::io::{ErrorKind, Write};

use anyhow::Context as _;
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};
use serde::Serialize;

use crate::cli::Format;

/// Widest table, in columns of a terminal.
const WIDTH: u16 = 80;

/// Rows of text under a heading.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    heading: Vec<&'static str>,
    right: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            ..Self::default()
        }
    }

    /// Marks columns of numbers, aligned to the right.
    pub(crate) fn numbers(mut self, columns: &[usize]) -> Self {
        self.right = columns.to_vec();
        self
    }

    pub(crate) fn row<I: IntoIterator<Item = S>, S: Into<String>>(&mut self, cells: I) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as text that ends with a line break; long cells are wrapped.
    pub(crate) fn render(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH);
        table.set_header(self.heading.iter().map(|h| h.to_uppercase()));
        for row in &self.rows {
            table.add_row(row);
        }
        let last = self.heading.len().saturating_sub(1);
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if i == last { 0 } else { 2 }));
            if self.right.contains(&i) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(4)));
            }
        }
        let mut text = String::new();
        for line in table.to_string().lines() {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints a value in the form asked for.
pub(crate) fn print<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce(&T) -> Table,
) -> anyhow::Result<()> {
    let text = match format {
        Format::Table => table(value).render(),
        Format::Json => json_document(value)?,
        Format::Yaml => serde_yaml::to_string(value).context("write the result as YAML")?,
    };
    write(text.as_bytes())
}

/// Tells machines that a change is made; people have been told on standard error.
pub(crate) fn print_done<T: Serialize>(format: Format, value: &T) -> anyhow::Result<()> {
    match format {
        Format::Table => Ok(()),
        _ => print(format, value, |_| Table::default()),
    }
}

/// Prints one line of JSON, whatever the form asked for.
pub(crate) fn print_line<T: Serialize>(value: &T) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(value).context("write the result as JSON")?;
    text.push(b'\n');
    write(&text)
}

/// Writes bytes to standard output; a reader that went away is no error.
pub(crate) fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("write to standard output"),
    }
}

fn json_document<T: Serialize>(value: &T) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(value).context("write the result as JSON")?;
    text.push('\n');
    Ok(text)
}

/// Permission bits as people write them.
pub(crate) fn permission(bits: i32) -> String {
    match bits & 6 {
        6 => "RW".into(),
        4 => "R".into(),
        2 => "W".into(),
        _ => "-".into(),
    }
}

/// Milliseconds since 1970 as UTC text to the second; `-` for 0 and below.
pub(crate) fn time(millis: i64) -> String {
    if millis <= 0 {
        return "-".into();
    }
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(at) => at.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => millis.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_stay_within_80_columns_and_align_numbers() {
        let mut table = Table::new(&["topic", "note", "queues"]).numbers(&[2]);
        table.row(["T".repeat(60), "words ".repeat(20), "7".to_owned()]);
        table.row(["short".to_owned(), "x".to_owned(), "1234".to_owned()]);
        let text = table.render();
        for line in text.lines() {
            assert!(
                line.chars().count() <= 80,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        assert!(text.starts_with("TOPIC"), "{text}");
        assert!(text.lines().any(|l| l.ends_with("1234")), "{text}");
    }

    #[test]
    fn an_empty_table_is_its_heading() {
        assert_eq!(Table::new(&["a", "b"]).render(), "A  B\n");
    }

    #[test]
    fn permissions_and_times_read_well() {
        assert_eq!(permission(6), "RW");
        assert_eq!(permission(7), "RW");
        assert_eq!(permission(0), "-");
        assert_eq!(time(0), "-");
        assert_eq!(time(1_640_995_200_123), "2022-01-01 00:00:00");
    }
}
