//! Recorded workloads: CSV with a heading, or a line of JSON for each.
//!
//! Owns the names and units of the columns, and the words for a line that cannot be read. Columns that are not known are left
//! alone: a log has more to say than a simulation asks for.

use std::{
    collections::HashMap,
    io::{self, BufRead, Write},
};

use serde_json::Value;

use super::workload::{Arrival, MOST_ARRIVALS, Recorded, Workload};

/// The longest line.
const MOST_OF_A_LINE: usize = 64 * 1024;
/// Virtual time is counted in nanoseconds, and has to reach beyond the last arrival: a hundred years, in milliseconds.
const WIDEST: f64 = 100.0 * LONGEST;
/// The longest time, in milliseconds: 366 days.
const LONGEST: f64 = 366.0 * 24.0 * 60.0 * 60.0 * 1000.0;
const COLUMNS: [&str; 4] = ["at_ms", "duration_ms", "key", "weight"];

/// Why a trace cannot be read, and where.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum TraceError {
    #[error("line {line}: column `{column}` is {value:?}; accepted: {accepted}")]
    Value { line: usize, column: &'static str, value: String, accepted: &'static str },
    #[error("line {line}: column `{column}` is missing")]
    Missing { line: usize, column: &'static str },
    #[error(
        "line 1: the heading has no column `{column}`; it needs at_ms and duration_ms, and may have key and weight"
    )]
    Heading { column: &'static str },
    #[error("line {line} is not a JSON object: {why}")]
    Json { line: usize, why: String },
    #[error("line {line} is longer than {MOST_OF_A_LINE} bytes")]
    Long { line: usize },
    #[error(
        "its last arrival comes {days:.0} days after its first; accepted: at most 36600 days; is `at_ms` in milliseconds?"
    )]
    Wide { days: f64 },
    #[error("it has more than {MOST_ARRIVALS} arrivals; accepted: at most so many for one run")]
    Many,
    #[error(
        "it has no arrivals; accepted: a heading `at_ms,duration_ms,key,weight` and a line for each, or JSON lines \
            with these names"
    )]
    Empty,
    #[error("cannot be read: {0}")]
    Io(String),
}

/// A line of the trace, as text.
struct Row {
    line: usize,
    cells: [Option<String>; 4],
}

/// Reads a whole trace; who came first is at zero.
pub(super) fn read(reader: impl BufRead) -> Result<Recorded, TraceError> {
    let mut recorded = Recorded::default();
    let mut known: HashMap<String, u32> = HashMap::new();
    let mut moments: Vec<f64> = Vec::new();
    let mut heading: Option<Vec<Option<usize>>> = None;
    for (line, text) in lines(reader) {
        let text = text?;
        if text.trim().is_empty() {
            continue;
        }
        let cells = if text.trim_start().starts_with('{') {
            json_cells(line, &text)?
        } else if let Some(places) = &heading {
            csv_cells(places, &text)
        } else {
            heading = Some(read_heading(&text)?);
            continue;
        };
        if moments.len() == MOST_ARRIVALS {
            return Err(TraceError::Many);
        }
        let row = Row { line, cells };
        moments.push(row.number(0, -1e15..1e15, "a number of milliseconds since any origin")?);
        let duration = row.number(1, 0.0..LONGEST, "a number of milliseconds from 0 to 366 days")?;
        let weight = row.weight()?;
        let key = row.cells[2].clone().unwrap_or_default();
        let number = known.len() as u32;
        let key = *known.entry(key).or_insert_with_key(|key| {
            recorded.keys.push(key.clone());
            number
        });
        recorded.arrivals.push(Arrival { at: 0, duration: nanos(duration).max(1), key, weight });
    }
    let first = moments.iter().copied().reduce(f64::min).ok_or(TraceError::Empty)?;
    let last = moments.iter().copied().fold(first, f64::max);
    if last - first > WIDEST {
        return Err(TraceError::Wide { days: (last - first) / 86_400_000.0 });
    }
    for (arrival, moment) in recorded.arrivals.iter_mut().zip(moments) {
        arrival.at = nanos(moment - first);
    }
    recorded.arrivals.sort_by_key(|arrival| arrival.at);
    Ok(recorded)
}

/// Writes a workload so that [`read`] gives it back.
pub(super) fn write(workload: &Workload, writer: &mut impl Write) -> io::Result<()> {
    writeln!(writer, "{}", COLUMNS.join(","))?;
    let millis = |nanos: u64| format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
    for arrival in workload.arrivals() {
        let key = quoted(&workload.key(arrival.key));
        let (at, duration) = (millis(arrival.at), millis(arrival.duration));
        writeln!(writer, "{at},{duration},{key},{}", arrival.weight)?;
    }
    Ok(())
}

impl Row {
    fn number(
        &self,
        column: usize,
        range: std::ops::Range<f64>,
        accepted: &'static str,
    ) -> Result<f64, TraceError> {
        let (line, name) = (self.line, COLUMNS[column]);
        let text = self.cells[column].as_deref().ok_or(TraceError::Missing { line, column: name })?;
        let number = text.trim().parse().ok().filter(|number: &f64| range.contains(number));
        number.ok_or_else(|| TraceError::Value { line, column: name, value: text.to_owned(), accepted })
    }

    fn weight(&self) -> Result<u32, TraceError> {
        let Some(text) = self.cells[3].as_deref().filter(|text| !text.trim().is_empty()) else {
            return Ok(1);
        };
        let weight = text.trim().parse().ok().filter(|weight| (1..=1_000_000).contains(weight));
        weight.ok_or_else(|| TraceError::Value {
            line: self.line,
            column: COLUMNS[3],
            value: text.to_owned(),
            accepted: "a whole number from 1 to 1000000",
        })
    }
}

fn nanos(millis: f64) -> u64 {
    (millis * 1e6).round() as u64
}

/// Lines with their numbers, none longer than it may be.
fn lines(mut reader: impl BufRead) -> impl Iterator<Item = (usize, Result<String, TraceError>)> {
    let mut line = 0;
    std::iter::from_fn(move || {
        line += 1;
        let mut bytes = Vec::new();
        let read = io::Read::take(&mut reader, MOST_OF_A_LINE as u64 + 1).read_until(b'\n', &mut bytes);
        let text = match read {
            Ok(0) => return None,
            Ok(read) if read > MOST_OF_A_LINE => Err(TraceError::Long { line }),
            Ok(_) => Ok(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned()),
            Err(error) => Err(TraceError::Io(error.to_string())),
        };
        Some((line, text))
    })
}

/// Where in a line each column is.
fn read_heading(text: &str) -> Result<Vec<Option<usize>>, TraceError> {
    let names: Vec<String> = split(text).into_iter().map(|name| name.trim().to_lowercase()).collect();
    let places: Vec<_> = COLUMNS.iter().map(|column| names.iter().position(|name| name == column)).collect();
    match places.iter().take(2).position(Option::is_none) {
        Some(missing) => Err(TraceError::Heading { column: COLUMNS[missing] }),
        None => Ok(places),
    }
}

fn csv_cells(places: &[Option<usize>], text: &str) -> [Option<String>; 4] {
    let cells = split(text);
    std::array::from_fn(|column| cells.get(places[column]?).cloned())
}

/// The cells of a line; those in double quotes may have commas, and quotes twice.
fn split(text: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut is_quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(cell) = cells.last_mut() else { break };
        match character {
            '"' if is_quoted && characters.peek() == Some(&'"') => {
                characters.next();
                cell.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => cells.push(String::new()),
            other => cell.push(other),
        }
    }
    cells
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn json_cells(line: usize, text: &str) -> Result<[Option<String>; 4], TraceError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| TraceError::Json { line, why: error.to_string() })?;
    Ok(COLUMNS.map(|column| match value.get(column)? {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(text: &str) -> Vec<(u64, u64, String, u32)> {
        let recorded = read(text.as_bytes()).expect("a trace");
        let row = |arrival: &Arrival| {
            (arrival.at, arrival.duration, recorded.keys[arrival.key as usize].clone(), arrival.weight)
        };
        recorded.arrivals.iter().map(row).collect()
    }

    #[test]
    fn csv_and_json_lines_say_the_same() {
        let csv = "at_ms,status,duration_ms,key\n2000.5,200,10,\"a, b\"\n1000,200,0.25,\"say \"\"x\"\"\"\n\n";
        let json = "{\"at_ms\":2000.5,\"duration_ms\":10,\"key\":\"a, \
            b\",\"more\":[1]}\n{\"at_ms\":\"1000\",\"duration_ms\":0.25,\"key\":\"say \\\"x\\\"\"}\n";
        let want =
            vec![(0, 250_000, "say \"x\"".to_owned(), 1), (1_000_500_000, 10_000_000, "a, b".to_owned(), 1)];
        assert_eq!(arrivals(csv), want);
        assert_eq!(arrivals(json), want);
        assert_eq!(arrivals("at_ms,duration_ms\r\n5,7\r\n"), [(0, 7_000_000, String::new(), 1)]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place_and_what_is_accepted() {
        let table = [
            ("", "it has no arrivals"),
            ("at_ms,duration\n1,2\n", "line 1: the heading has no column `duration_ms`"),
            (
                "at_ms,duration_ms\n1,2\nx,2\n",
                "line 3: column `at_ms` is \"x\"; accepted: a number of milliseconds",
            ),
            ("at_ms,duration_ms\n1,-2\n", "line 2: column `duration_ms` is \"-2\""),
            ("at_ms,duration_ms\n1\n", "line 2: column `duration_ms` is missing"),
            ("at_ms,duration_ms,weight\n1,2,0\n", "line 2: column `weight` is \"0\""),
            ("{\"at_ms\":1,\n", "line 1 is not a JSON object"),
            ("{\"at_ms\":1}\n", "line 1: column `duration_ms` is missing"),
            ("at_ms,duration_ms\nNaN,2\n", "line 2: column `at_ms` is \"NaN\""),
            // One that came after the end of time was left out, and the answer was about another workload.
            ("at_ms,duration_ms\n-9e14,2\n9e14,2\n", "its last arrival comes 20833333 days after its first"),
        ];
        for (text, told) in table {
            let error = read(text.as_bytes()).expect_err(text).to_string();
            assert!(error.starts_with(told), "{text:?}: {error}");
        }
        let long = format!("at_ms,duration_ms,key\n1,2,{}\n", "k".repeat(MOST_OF_A_LINE));
        assert_eq!(read(long.as_bytes()).expect_err("too long"), TraceError::Long { line: 2 });
    }

    #[test]
    fn what_is_written_is_read_back_to_the_nanosecond() {
        let recorded = read("at_ms,duration_ms,key,weight\n0,1.000001,\"a,b\",3\n7.5,2,c,1\n".as_bytes())
            .expect("a trace");
        let mut text = Vec::new();
        let workload = Workload::Recorded(std::sync::Arc::new(recorded.clone()));
        write(&workload, &mut text).expect("memory");
        let again = read(text.as_slice()).expect("a trace");
        assert_eq!((again.arrivals, again.keys), (recorded.arrivals, recorded.keys));
    }
}
