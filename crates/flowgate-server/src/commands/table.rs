//! A table of text, its columns aligned, and each row on its line, whatever a cell has in it.

use crate::terminal::plain;

/// Rows below a heading; the last column may be as long as it likes.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        Table { rows: vec![heading.iter().map(|&text| text.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// The table; or that there is none of what it would list.
    pub(crate) fn text_or(&self, none: &str) -> String {
        if self.rows.len() == 1 { format!("{none}\n") } else { self.text() }
    }

    /// The table, each line ended and without spaces at its end.
    pub(crate) fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}  "));
            format!("{}\n", cells.collect::<String>().trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}
