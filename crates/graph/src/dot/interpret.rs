//! What the label of a node means.
//!
//! In: label and shape as the CUDA driver writes them, under any of its flags (rows are looked for, flags are not
//! guessed), or as [`to_dot`](super::to_dot) does. Out: the operation with what the label tells of it; what it does
//! not tell stays `None` or unknown. O(label).

use super::copy;
use super::record::{Field, lines, record};
use super::token::shorten;
use crate::{
    ConditionalKind, Dim3, Extent, KernelConfig, MemcpyNode, MemsetNode, Pitched, Space, Target,
};

/// An operation, as far as its label tells.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Described {
    Kernel {
        function: String,
        config: KernelConfig,
    },
    Memcpy {
        node: MemcpyNode,
        /// The memory at both ends in the file's words, such as `DEVICE to HOST PINNED`; may be empty.
        memory: String,
    },
    Memset(MemsetNode),
    Host {
        function: String,
        /// The pointer passed to it, as told.
        user_data: Option<String>,
    },
    Empty,
    EventRecord(Option<String>),
    EventWait(Option<String>),
    Alloc {
        bytes: Option<u64>,
        address: Option<String>,
        space: Space,
    },
    Free {
        address: Option<String>,
    },
    Child(String),
    Conditional {
        kind: ConditionalKind,
        handle: Option<u64>,
        bodies: Vec<String>,
    },
}

/// Reads a label. The error says what was expected; the caller knows the place.
pub(super) fn describe(label: &str, shape: Option<&str>) -> Result<Described, String> {
    if label.trim_start().starts_with('{') {
        let rows = record(label)?;
        let kind = rows.first().and_then(Field::text).unwrap_or_default();
        let rows = rows.get(1..).unwrap_or_default();
        return match kind {
            "KERNEL" => kernel_record(rows),
            "MEMSET" => memset_record(rows),
            "MEMCPY" => copy::from_record(rows),
            "MEM_ALLOC" => alloc_record(rows),
            "MEM_FREE" => Ok(Described::Free { address: value(rows, "dptr").map(first_word) }),
            "CONDITIONAL" => conditional_record(rows),
            other => Err(unknown_kind(other)),
        };
    }
    let lines = lines(label);
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let Some((_, [kind, rest @ ..])) = lines.split_first() else {
        return Err("expected a label that tells the node's kind".to_owned());
    };
    if shape == Some("octagon") {
        return kernel_lines(kind, rest);
    }
    let told = |key: &str| {
        let line = rest.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    };
    match *kind {
        "MEMSET" => memset_lines(rest),
        "MEMCPY" => copy::from_lines(rest),
        "HOST" => Ok(Described::Host {
            function: told("fn").unwrap_or_default(),
            user_data: told("userData"),
        }),
        "EMPTY" => Ok(Described::Empty),
        "EVENT_RECORD" => Ok(Described::EventRecord(told("event"))),
        "EVENT_WAIT" => Ok(Described::EventWait(told("event"))),
        "MEM_ALLOC" => Ok(Described::Alloc { bytes: None, address: None, space: Space::Unknown }),
        "MEM_FREE" => Ok(Described::Free { address: None }),
        graph if graph.starts_with("graph_") => Ok(Described::Child(first_word(graph))),
        other => Err(unknown_kind(other)),
    }
}

fn unknown_kind(kind: &str) -> String {
    // Kinds that the driver has and the representation has not deserve their own words.
    if kind.starts_with("EXT_SEMAS") || kind.starts_with("BATCH_MEM_OP") {
        return format!("nodes of kind {} cannot be represented", shorten(kind));
    }
    format!("expected a node kind such as KERNEL or MEMCPY, found `{}`", shorten(kind))
}

fn first_word(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}

/// The columns of a table row, headings above values: `{heads… | {a | b} | {1 | 2}}`.
pub(super) fn table(row: &Field) -> Option<Vec<(&str, &str)>> {
    let Field::Group(fields) = row else { return None };
    let [.., heads @ Field::Group(_), values @ Field::Group(_)] = fields.as_slice() else {
        return None;
    };
    let (heads, values) = (heads.leaves(), values.leaves());
    (heads.len() == values.len()).then(|| heads.into_iter().zip(values).collect())
}

/// The two fields of a row `{key | value}`.
pub(super) fn pair(row: &Field) -> Option<(&str, &str)> {
    match row {
        Field::Group(fields) => match fields.as_slice() {
            [Field::Text(key), Field::Text(value)] => Some((key, value)),
            _ => None,
        },
        Field::Text(_) => None,
    }
}

/// The value of `key`, in a pair or a table.
pub(super) fn value<'a>(rows: &'a [Field], key: &str) -> Option<&'a str> {
    rows.iter().find_map(|row| {
        let columns = pair(row).map(|pair| vec![pair]).or_else(|| table(row))?;
        columns.into_iter().find_map(|(head, value)| (head == key).then_some(value))
    })
}

/// A number, decimal or `0x…`.
pub(super) fn number(text: &str, what: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("expected a number as {what}, found `{}`", shorten(text)))
}

pub(super) fn small(text: &str, what: &str) -> Result<u32, String> {
    let number = number(text, what)?;
    u32::try_from(number).map_err(|_| format!("{what} {number} does not fit 32 bits"))
}

/// Where a pointer points: a raw address, or (as this crate writes them) a buffer that the file does not declare.
pub(super) fn target(text: &str) -> Result<Target, String> {
    if text == "-" || text.starts_with('b') {
        return Ok(Target::Unspecified);
    }
    match number(text, "an address")? {
        0 => Ok(Target::Unspecified),
        address => Ok(Target::Address(address)),
    }
}

// --- kernels ----------------------------------------------------------------------------------------

fn kernel_record(rows: &[Field]) -> Result<Described, String> {
    let named = rows.iter().find_map(|row| match row.leaves().as_slice() {
        ["ID", _, name @ ..] if !name.is_empty() => Some(name.join("|")),
        _ => None,
    });
    let named = named.ok_or("expected a row `{ID | … | name}` in the label of a kernel")?;
    let (function, mut config) = launch(&named)?;
    if let Some(cooperative) = value(rows, "cooperative") {
        config.cooperative = number(cooperative, "`cooperative`")? != 0;
    }
    if let Some(priority) = value(rows, "priority") {
        config.priority = priority.parse().map_err(|_| {
            format!("expected a number as `priority`, found `{}`", shorten(priority))
        })?;
    }
    if let Some(cluster) = value(rows, "cluster") {
        config.cluster = dim3(cluster)?;
    }
    Ok(Described::Kernel { function: function.to_owned(), config })
}

fn kernel_lines(function: &str, rest: &[&str]) -> Result<Described, String> {
    let (function, mut config) = launch(function)?;
    if let Some(line) = rest.iter().find(|line| line.starts_with("<<<")) {
        config = launch(line)?.1;
    }
    Ok(Described::Kernel { function: function.to_owned(), config })
}

/// Splits `name<<<grid,block,shared>>>`; without the launch it is unknown.
fn launch(text: &str) -> Result<(&str, KernelConfig), String> {
    let Some((name, rest)) = text.rsplit_once("<<<") else {
        return Ok((text, KernelConfig::unknown()));
    };
    let expected = || format!("expected `<<<grid,block,shared>>>`, found `<<<{}`", shorten(rest));
    let inside = rest.trim().strip_suffix(">>>").ok_or_else(expected)?;
    let mut parts: Vec<&str> = Vec::new();
    let (mut from, mut depth) = (0, 0i32);
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[from..]);
    let [grid, block, shared] = parts.as_slice() else { return Err(expected()) };
    let shared = small(shared.trim(), "shared memory")?;
    Ok((name.trim(), KernelConfig::new(dim3(grid)?, dim3(block)?, shared)))
}

/// `8`, `{8,8}` or `{8,8,4}`.
fn dim3(text: &str) -> Result<Dim3, String> {
    let text = text.trim();
    let inside = text.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text);
    let mut all = [1; 3];
    let parts: Vec<&str> = inside.split(',').collect();
    if parts.len() > 3 {
        return Err(format!("expected up to three extents, found `{}`", shorten(text)));
    }
    for (extent, part) in all.iter_mut().zip(parts) {
        *extent = small(part.trim(), "an extent of a launch")?;
    }
    Ok((all[0], all[1], all[2]))
}

// --- fills, allocations, conditionals ---------------------------------------------------------------

fn memset_record(rows: &[Field]) -> Result<Described, String> {
    let told = |key: &str| {
        let text = value(rows, key);
        text.ok_or_else(|| format!("expected a column `{key}` in the label of a MEMSET"))
    };
    let element_size = number(told("elementSize")?, "`elementSize`")?;
    let element_size = u8::try_from(element_size)
        .map_err(|_| format!("expected an element size of 1, 2 or 4, found {element_size}"))?;
    // The driver counts elements of a row, the representation bytes.
    let width = number(told("width")?, "`width`")?.saturating_mul(u64::from(element_size));
    let height = number(told("height")?, "`height`")?;
    let depth = value(rows, "depth").map_or(Ok(1), |depth| number(depth, "`depth`"))?;
    let dst = Pitched {
        target: target(told("dptr")?)?,
        offset: value(rows, "offset").map_or(Ok(0), |offset| number(offset, "`offset`"))?,
        pitch: number(told("pitch")?, "`pitch`")?,
        slice_rows: value(rows, "rows").map_or(Ok(0), |rows| number(rows, "`rows`"))?,
    };
    let value = small(told("value")?, "`value`")?;
    let extent = Extent { width, height, depth };
    Ok(Described::Memset(MemsetNode { dst, value, element_size, extent }))
}

fn memset_lines(rest: &[&str]) -> Result<Described, String> {
    let [value, bytes] = parenthesised(rest, "(value,bytes)")?;
    Ok(Described::Memset(MemsetNode {
        dst: Pitched::linear(Target::Unspecified, 0),
        value: small(value, "the value")?,
        element_size: 0,
        extent: Extent::linear(number(bytes, "the bytes")?),
    }))
}

/// The two values of a line `(a,b)`.
pub(super) fn parenthesised<'a>(rest: &[&'a str], form: &str) -> Result<[&'a str; 2], String> {
    let inside = rest.iter().find_map(|line| line.strip_prefix('(')?.strip_suffix(')'));
    let parts = inside.and_then(|inside| inside.split_once(','));
    let (a, b) = parts.ok_or_else(|| format!("expected a line `{form}`"))?;
    Ok([a.trim(), b.trim()])
}

fn alloc_record(rows: &[Field]) -> Result<Described, String> {
    let bytes = value(rows, "bytesize").map(|text| number(text, "`bytesize`")).transpose()?;
    let location = rows.iter().map(Field::leaves).find(|row| row.first() == Some(&"poolProps"));
    let space = match location.as_deref() {
        Some([.., "DEVICE", id]) => Space::Device(small(id, "the device")?),
        Some([.., kind, _]) if kind.starts_with("HOST") => Space::Host { pageable: false },
        _ => Space::Unknown,
    };
    Ok(Described::Alloc { bytes, address: value(rows, "dptr").map(first_word), space })
}

fn conditional_record(rows: &[Field]) -> Result<Described, String> {
    let kind = match value(rows, "Conditional Type") {
        Some("IF") => ConditionalKind::If,
        Some("WHILE") => ConditionalKind::While,
        Some("SWITCH") => ConditionalKind::Switch,
        Some(other) => {
            let found = shorten(other);
            return Err(format!(
                "expected the conditional type IF, WHILE or SWITCH, found `{found}`"
            ));
        }
        None => return Err("expected a row `{Conditional Type | …}`".to_owned()),
    };
    let handle = value(rows, "Conditional Handle");
    let handle = handle.map(|text| number(text, "the conditional handle")).transpose()?;
    let mut bodies = Vec::new();
    for (key, graph) in rows.iter().filter_map(pair) {
        let numbered = !key.is_empty() && key.chars().all(|c| c.is_ascii_digit());
        if !numbered && !matches!(key, "True" | "False") {
            continue;
        }
        let expected = match (kind, bodies.len()) {
            (ConditionalKind::Switch, number) => number.to_string(),
            (_, 0) => "True".to_owned(),
            (_, _) => "False".to_owned(),
        };
        if key != expected {
            let found = shorten(key);
            return Err(format!(
                "expected the body `{expected}` of a conditional, found `{found}`"
            ));
        }
        bodies.push(first_word(graph));
    }
    Ok(Described::Conditional { kind, handle, bodies })
}
