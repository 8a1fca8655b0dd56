//! Labels: plain ones as lines, record labels (`{A | {b | c}}`) as trees of fields.
//!
//! In: the text of a `label` attribute. Out: its parts, escapes removed, blanks trimmed. O(label); nesting is
//! bounded, so walking a tree may recurse.

/// How deep groups may nest; the driver's go to seven.
const MAX_DEPTH: usize = 32;

/// A field of a record label.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Field {
    Text(String),
    Group(Vec<Field>),
}

impl Field {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Field::Text(text) => Some(text),
            Field::Group(_) => None,
        }
    }

    /// Every text below, in order.
    pub fn leaves(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.collect(&mut found);
        found
    }

    fn collect<'a>(&'a self, found: &mut Vec<&'a str>) {
        match self {
            Field::Text(text) => found.push(text),
            Field::Group(fields) => fields.iter().for_each(|field| field.collect(found)),
        }
    }
}

/// Reads a record label: the fields of its outermost group.
pub(super) fn record(label: &str) -> Result<Vec<Field>, String> {
    let mut open: Vec<Group> = vec![Group::default()];
    let mut chars = label.chars();
    while let Some(c) = chars.next() {
        let depth = open.len();
        // The list is never empty: it starts with one group, and the last is never taken off here.
        let Some(group) = open.last_mut() else { break };
        match c {
            '{' if depth > MAX_DEPTH => {
                return Err(format!("a record label nested more than {MAX_DEPTH} deep"));
            }
            '{' => {
                group.expect_no_text()?;
                open.push(Group::default());
            }
            '}' if depth == 1 => return Err("a record label with a `}` too many".to_owned()),
            '}' => {
                group.end_field();
                let fields = std::mem::take(&mut group.fields);
                open.pop();
                if let Some(around) = open.last_mut() {
                    around.expect_no_text()?;
                    around.fields.push(Field::Group(fields));
                    around.after_group = true;
                }
            }
            '|' => group.end_field(),
            '\\' => group.push(escaped(chars.next())),
            c => group.push(c),
        }
        if open.last().is_some_and(Group::is_mixed) {
            return Err("a record label with text beside a group; expected `|`".to_owned());
        }
    }
    let Some(mut whole) = open.pop() else { return Ok(Vec::new()) };
    if !open.is_empty() {
        return Err("a record label that lacks a `}`".to_owned());
    }
    whole.end_field();
    match whole.fields.pop() {
        Some(Field::Group(fields)) if whole.fields.is_empty() => Ok(fields),
        _ => Err("a record label that is not one group `{…}`".to_owned()),
    }
}

/// The lines of a plain label; `\n`, `\l` and `\r` end a line as a newline does. Empty lines are left out.
pub(super) fn lines(label: &str) -> Vec<String> {
    let mut text = String::with_capacity(label.len());
    let mut chars = label.chars();
    while let Some(c) = chars.next() {
        text.push(if c == '\\' { escaped(chars.next()) } else { c });
    }
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

const fn escaped(after: Option<char>) -> char {
    match after {
        Some('n' | 'l' | 'r') => '\n',
        Some(c) => c,
        None => '\\',
    }
}

#[derive(Default)]
struct Group {
    fields: Vec<Field>,
    text: String,
    /// The field at hand is a group: only `|` or `}` may follow.
    after_group: bool,
}

impl Group {
    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn end_field(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !self.after_group {
            self.fields.push(Field::Text(text.trim().to_owned()));
        }
        self.after_group = false;
    }

    fn is_mixed(&self) -> bool {
        self.after_group && self.text.ends_with(|c: char| !c.is_whitespace())
    }

    fn expect_no_text(&self) -> Result<(), String> {
        if self.after_group || self.text.contains(|c: char| !c.is_whitespace()) {
            return Err("a record label with text beside a group; expected `|`".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(label: &str, expected: &str) {
        let shown = match record(label) {
            Ok(fields) => format!("{:?}", Field::Group(fields))
                .replace("Group(", "")
                .replace("Text(", "")
                .replace(')', ""),
            Err(problem) => problem,
        };
        assert_eq!(shown, expected, "{label}");
    }

    #[test]
    fn records_become_trees() {
        check("{A}", r#"["A"]"#);
        check("{A\n| {ID | 0 | f\\<\\<\\<2\\>} |}\n", r#"["A", ["ID", "0", "f<<<2>"], ""]"#);
        check("{{a|{b}}|c\\|d}", r#"[["a", ["b"]], "c|d"]"#);
        check("{a {b}}", "a record label with text beside a group; expected `|`");
        check("{{b} a}", "a record label with text beside a group; expected `|`");
        check("{{b}{c}}", "a record label with text beside a group; expected `|`");
        check("{a", "a record label that lacks a `}`");
        check("{a}}", "a record label with a `}` too many");
        check("a|b", "a record label that is not one group `{…}`");
        check(&"{".repeat(99_999), "a record label nested more than 32 deep");
    }
}
