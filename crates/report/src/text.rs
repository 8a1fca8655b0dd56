//! Text from outside, made fit to be drawn: escaping, shortening, and how wide it will be.
//!
//! Names may be ten kilobytes of mangled C++, hold markup, line breaks, control characters or marks that turn the
//! writing direction. Everything here is linear in the text.

/// Longest text in a tooltip or a panel; what is beyond is counted, not shown.
pub(crate) const MAX_FULL: usize = 2_000;

/// Characters that XML forbids or that change how the rest of the line is drawn.
fn is_hostile(c: char) -> bool {
    matches!(c,
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Escapes for element content and quoted attributes, in XML and HTML alike.
pub(crate) fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A bare carriage return is normalised away by parsers; say it.
            '\r' => out.push('\u{240d}'),
            c if is_hostile(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// [`escape`] into a new string.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    escape(&mut out, text);
    out
}

/// Columns of a fixed-width font that a character takes: two for East Asian wide ones and pictographs.
fn columns_of(c: char) -> usize {
    match c as u32 {
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Columns that a text takes in a fixed-width font.
///
/// ```
/// assert_eq!(phonograph_report::text::columns("核 a"), 4);
/// ```
pub fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// One line of at most `limit` columns: line breaks become spaces, the middle of a longer text `…`, since both the
/// beginning (the name) and the end (the template arguments, the launch shape) tell kernels apart.
///
/// ```
/// assert_eq!(phonograph_report::text::elide("gemm_128x64_nn", 10), "gemm_1…_nn");
/// ```
pub fn elide(text: &str, limit: usize) -> String {
    let flat = |c: char| {
        if matches!(c, '\n' | '\r' | '\t') { ' ' } else { c }
    };
    // A text with more characters than this is too long whatever its characters are; no need to look at all of it.
    let fits = text.chars().take(limit + 1).count() <= limit && columns(text) <= limit;
    if fits {
        return text.chars().map(flat).collect();
    }
    let (mut head, mut left) = (String::new(), (limit.saturating_sub(1)) * 2 / 3);
    for c in text.chars() {
        let w = columns_of(c);
        if w > left {
            break;
        }
        left -= w;
        head.push(flat(c));
    }
    let mut tail = Vec::new();
    let mut left = limit.saturating_sub(1 + columns(&head));
    for c in text.chars().rev() {
        let w = columns_of(c);
        if w > left {
            break;
        }
        left -= w;
        tail.push(flat(c));
    }
    head.push('…');
    head.extend(tail.into_iter().rev());
    head
}

/// A C++ name without the namespaces, for people: its base, and its template arguments if it ends with some.
/// Other texts stay as they are.
pub(crate) fn brief(name: &str) -> (String, String) {
    const ANONYMOUS: &str = "(anonymous namespace)";
    let mut out = String::with_capacity(name.len());
    // Where the name being read begins in `out`: all of it goes when `::` follows.
    let mut begin = 0;
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("::") {
            // What follows template arguments is told by them: `f<int>::type` keeps its head.
            if out.ends_with('>') {
                out.push_str("::");
                begin = out.len();
            } else {
                out.truncate(begin);
            }
            rest = after;
        } else if let Some(after) = rest.strip_prefix(ANONYMOUS) {
            out.push_str(ANONYMOUS);
            rest = after;
        } else {
            out.push(c);
            if !(c.is_alphanumeric() || c == '_') {
                begin = out.len();
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    let base = out.strip_prefix("void ").unwrap_or(&out);
    match base.find('<') {
        Some(at) if at > 0 && base.trim_end().ends_with('>') => {
            (base[..at].to_owned(), base[at..].to_owned())
        }
        _ => (base.to_owned(), String::new()),
    }
}

/// The text up to [`MAX_FULL`] characters; a longer one says how much is missing.
pub(crate) fn capped(text: &str) -> String {
    match text.char_indices().nth(MAX_FULL) {
        None => text.to_owned(),
        Some((at, _)) => {
            let more = text[at..].chars().count();
            format!("{} … ({more} more characters)", &text[..at])
        }
    }
}

/// A coordinate: one decimal at most, no trailing zero.
pub(crate) fn num(x: f64) -> String {
    let tenths = (x * 10.0).round();
    if tenths == 0.0 {
        return "0".into();
    }
    if tenths % 10.0 == 0.0 {
        format!("{}", tenths / 10.0)
    } else {
        format!("{:.1}", tenths / 10.0)
    }
}

/// The text with nothing in it that steers how the rest is drawn; line breaks stay.
pub(crate) fn plain(text: &str) -> String {
    let tame = |c: char| match c {
        '\r' => '\u{240d}',
        c if is_hostile(c) => '\u{fffd}',
        c => c,
    };
    text.chars().map(tame).collect()
}

/// A number of bytes in its largest unit, to a tenth.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let unit = (n.ilog2() / 10) as usize;
    let value = n as f64 / (1u64 << (10 * unit)) as f64;
    format!("{} {}", num(value), UNITS[unit - 1])
}

/// A number with commas between its thousands.
///
/// ```
/// assert_eq!(phonograph_report::text::thousands(1_234_567), "1,234,567");
/// ```
pub fn thousands(n: impl ToString) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun, in the plural where it needs one.
///
/// ```
/// assert_eq!(phonograph_report::text::count(2_000, "node"), "2,000 nodes");
/// ```
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{} {noun}s", thousands(n)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortening_keeps_both_ends_and_the_limit() {
        for (text, limit, want) in [
            ("short", 10, "short"),
            ("exactly_10", 10, "exactly_10"),
            ("abcdefghijk", 7, "abcd…jk"),
            ("two\nlines", 20, "two lines"),
            ("", 5, ""),
            ("核心核心核心", 7, "核心…心"),
        ] {
            let got = elide(text, limit);
            assert_eq!(got, want, "{text:?} at {limit}");
            assert!(columns(&got) <= limit);
        }
    }

    #[test]
    fn escaping_leaves_no_markup_and_no_control() {
        let text = "<script>\u{0}\u{1b}[31m\u{202e}\"'&\r\u{ffff}</script>";
        assert_eq!(
            escaped(text),
            "&lt;script&gt;\u{fffd}\u{fffd}[31m\u{fffd}&quot;&#39;&amp;\u{240d}\u{fffd}&lt;/script&gt;"
        );
    }

    #[test]
    fn names_lose_their_namespaces() {
        for (name, base, arguments) in [
            ("axpy", "axpy", ""),
            ("a::b::axpy<float, c::d>", "axpy", "<float, d>"),
            ("void at::native::(anonymous namespace)::norm<float>", "norm", "<float>"),
            ("f<int>::type", "f<int>::type", ""),
            ("a < b", "a < b", ""),
            ("::", "", ""),
            ("<script>", "<script>", ""),
            ("host callback 3", "host callback 3", ""),
            ("ns::核心<ns::x>", "核心", "<x>"),
        ] {
            assert_eq!(brief(name), (base.to_owned(), arguments.to_owned()), "{name}");
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        for (n, want) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(n), want);
        }
    }

    #[test]
    fn bytes_are_short() {
        for (n, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (5 << 20, "5 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(n), want);
        }
    }

    #[test]
    fn a_cap_says_what_is_missing() {
        let text = "x".repeat(MAX_FULL + 17);
        assert!(capped(&text).ends_with("… (17 more characters)"));
        assert_eq!(capped("x"), "x");
    }

    #[test]
    fn coordinates_are_short() {
        for (x, want) in
            [(0.0, "0"), (-0.04, "0"), (1.0, "1"), (1.25, "1.3"), (-2.5, "-2.5"), (1e6, "1000000")]
        {
            assert_eq!(num(x), want);
        }
    }
}
