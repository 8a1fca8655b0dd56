//! Lifetimes as text: one line a buffer, the columns `id,lower,upper,size` in any order, as MiniMalloc's files have them.
//!
//! In: bytes from anywhere. Out: the ids and the lifetimes in the order of the lines, or the line and column of the
//! first thing that is wrong. O(bytes).

use rustc_hash::FxHashMap;

use super::lifetimes::{Lifetime, LifetimeError, Lifetimes};

/// What is wrong with a file of lifetimes, and where. Lines and columns count from 1, columns in bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{line}:{column}: {problem}")]
pub struct CsvError {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
    /// What is wrong.
    pub problem: CsvProblem,
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CsvProblem {
    /// No header.
    #[error("expected the header id,lower,upper,size; the file is empty")]
    NoHeader,
    /// A header with a name that is none of the four.
    #[error("{0:?} is no column of lifetimes, which are id, lower, upper and size")]
    UnknownColumn(String),
    /// A header that names a column twice.
    #[error("column {0} is named twice")]
    RepeatedColumn(&'static str),
    /// A header without one of the four.
    #[error("column {0} is missing")]
    MissingColumn(&'static str),
    /// More or fewer fields than the header names.
    #[error("expected 4 fields, found {0}")]
    FieldCount(usize),
    /// Bytes that are no UTF-8.
    #[error("the text is not UTF-8")]
    NotUtf8,
    /// A field that is no whole number in range.
    #[error("{column} must be a whole number {range}, found {found:?}")]
    Number {
        /// The field's column.
        column: &'static str,
        /// What it may be.
        range: &'static str,
        /// What it is, cut short.
        found: String,
    },
    /// An id that an earlier line has.
    #[error("id {id:?} is taken by line {line}")]
    RepeatedId {
        /// The id, cut short.
        id: String,
        /// The line that has it.
        line: usize,
    },
    /// A lifetime or a list that cannot be placed.
    #[error("{0}")]
    Lifetime(LifetimeError),
}

/// Names of the columns, in the order in which this file keeps them.
const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

/// Lifetimes and the ids by which their file calls them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NamedLifetimes {
    /// Id of each, in the order of the lines.
    pub ids: Vec<String>,
    /// The lifetimes, in the same order.
    pub lifetimes: Lifetimes,
}

/// Reads lifetimes. Empty lines are skipped, spaces around fields too.
///
/// ```
/// let csv = b"id,lower,upper,size\nx,0,2,64\ny,2,4,64\n";
/// let read = phonograph_plan::memory::from_csv(csv)?;
/// assert_eq!((read.ids.len(), read.lifetimes.lower_bound()), (2, 64));
/// let error = phonograph_plan::memory::from_csv(b"id,lower,upper,size\nx,0,two,64\n").unwrap_err();
/// assert_eq!((error.line, error.column), (2, 5));
/// # Ok::<(), phonograph_plan::memory::CsvError>(())
/// ```
///
/// # Errors
/// [`CsvError`] tells line and column.
pub fn from_csv(bytes: &[u8]) -> Result<NamedLifetimes, CsvError> {
    // Spreadsheets begin with the mark of UTF-8.
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut lines = (1..).zip(bytes.split(|&byte| byte == b'\n'));
    let mut columns = None;
    let mut ids: Vec<String> = Vec::new();
    let mut list = Vec::new();
    let mut line_of: FxHashMap<&str, usize> = FxHashMap::default();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (line, bytes) in &mut lines {
        let at = |column, problem| CsvError { line, column, problem };
        let text = std::str::from_utf8(bytes)
            .map_err(|error| at(error.valid_up_to() + 1, CsvProblem::NotUtf8))?;
        if text.trim().is_empty() {
            continue;
        }
        let Some(order) = columns else {
            columns = Some(header(line, text)?);
            continue;
        };
        let fields = fields(line, text)?;
        let field = |column: usize| -> (usize, &str) {
            let place: usize = order_of(order, column);
            fields[place]
        };
        let (id_column, id) = field(0);
        if let Some(&line) = line_of.get(id) {
            return Err(at(id_column, CsvProblem::RepeatedId { id: short(id), line }));
        }
        let number = |column: usize, range| {
            let (place, text) = field(column);
            let found = short(text);
            (place, text, CsvProblem::Number { column: COLUMNS[column], range, found })
        };
        let time = |column| {
            let (place, text, problem) = number(column, "of 64 bits");
            text.parse::<i64>().map_err(|_| at(place, problem))
        };
        let (lower, upper) = (time(1)?, time(2)?);
        let (place, text, problem) = number(3, "from 0 on, of 64 bits");
        let bytes = text.parse::<u64>().map_err(|_| at(place, problem))?;
        line_of.insert(id, line);
        ids.push(id.to_owned());
        places.push((line, id_column));
        list.push(Lifetime { lower, upper, bytes });
        if list.len() > Lifetimes::MAX_COUNT {
            let (count, limit) = (list.len(), Lifetimes::MAX_COUNT);
            let error = LifetimeError::TooMany { count, limit };
            return Err(at(1, CsvProblem::Lifetime(error)));
        }
    }
    if columns.is_none() {
        return Err(CsvError { line: 1, column: 1, problem: CsvProblem::NoHeader });
    }
    let lifetimes = Lifetimes::new(list).map_err(|error| {
        let (line, column) = match error {
            LifetimeError::Empty { id, .. } | LifetimeError::TooLarge { id, .. } => {
                places[id.index()]
            }
            LifetimeError::TooMany { .. } => (1, 1),
        };
        CsvError { line, column, problem: CsvProblem::Lifetime(error) }
    })?;
    Ok(NamedLifetimes { ids, lifetimes })
}

/// Which of [`COLUMNS`] each field is.
type Header = [usize; 4];

fn order_of(header: Header, column: usize) -> usize {
    header.iter().position(|&c| c == column).unwrap_or(column)
}

fn header(line: usize, text: &str) -> Result<Header, CsvError> {
    let mut header = Vec::new();
    let mut end = 1;
    for (column, name) in split(text) {
        end = column + name.len();
        let at = |problem| CsvError { line, column, problem };
        let known = COLUMNS.iter().position(|&known| known == name);
        let known = known.ok_or_else(|| at(CsvProblem::UnknownColumn(short(name))))?;
        if header.contains(&known) {
            return Err(at(CsvProblem::RepeatedColumn(COLUMNS[known])));
        }
        header.push(known);
    }
    let missing = (0..COLUMNS.len()).find(|column| !header.contains(column));
    match (header.try_into(), missing) {
        (Ok(header), None) => Ok(header),
        (_, missing) => {
            let problem = CsvProblem::MissingColumn(COLUMNS[missing.unwrap_or(0)]);
            Err(CsvError { line, column: end, problem })
        }
    }
}

/// The fields of a line with their columns.
fn fields(line: usize, text: &str) -> Result<[(usize, &str); 4], CsvError> {
    let found: Vec<(usize, &str)> = split(text).collect();
    let count = found.len();
    found.try_into().map_err(|found: Vec<_>| {
        let column = found.get(COLUMNS.len()).map_or(text.trim_end().len() + 1, |&(at, _)| at);
        CsvError { line, column, problem: CsvProblem::FieldCount(count) }
    })
}

/// What lies between commas, without the spaces around, and the column where it starts.
fn split(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 1;
    text.split(',').map(move |field| {
        let column = at + field.len() - field.trim_start().len();
        at += field.len() + 1;
        (column, field.trim())
    })
}

/// A field for an error message.
fn short(field: &str) -> String {
    const MOST: usize = 40;
    match field.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}…", &field[..cut]),
        None => field.to_owned(),
    }
}
