//! A report as text, like a compiler's messages: the lines of the script that matter, with what each has to do with it.

use std::fmt::Write as _;

use super::finding::{Finding, Report, Severity, Span};
use crate::model::CallIndex;

/// Consequences that are printed one by one; the rest are counted.
const CONSEQUENCES: usize = 4;

struct Paint {
    error: &'static str,
    warning: &'static str,
    gutter: &'static str,
    help: &'static str,
    off: &'static str,
}

const PLAIN: Paint = Paint { error: "", warning: "", gutter: "", help: "", off: "" };
const COLOURED: Paint = Paint {
    error: "\x1b[1;31m",
    warning: "\x1b[1;33m",
    gutter: "\x1b[34m",
    help: "\x1b[32m",
    off: "\x1b[0m",
};

/// A script's text.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What places are given in, such as the name of its file; if it is empty, they are given by line alone.
    pub name: &'a str,
    /// The text that was parsed.
    pub text: &'a str,
}

/// What is shown of where calls come from.
struct Shown<'a> {
    name: &'a str,
    lines: Vec<&'a str>,
    site: &'a dyn Fn(CallIndex) -> Vec<String>,
}

impl Report {
    /// The report against the text of its script; without one, against the calls in words.
    pub fn render(&self, source: Option<Source<'_>>, colour: bool) -> String {
        let lines = source.map_or(Vec::new(), |source| source.text.lines().collect());
        let name = source.map_or("", |source| source.name);
        self.write(&Shown { name, lines, site: &|_| Vec::new() }, colour)
    }

    /// The report against the calls in words, each with the lines that `site` has for where it was made, the most telling first.
    pub fn render_sites(&self, site: &dyn Fn(CallIndex) -> Vec<String>, colour: bool) -> String {
        self.write(&Shown { name: "", lines: Vec::new(), site }, colour)
    }

    fn write(&self, shown: &Shown<'_>, colour: bool) -> String {
        let paint = if colour { &COLOURED } else { &PLAIN };
        let mut out = String::new();
        for finding in &self.findings {
            finding.render(shown, paint, &mut out);
            out.push('\n');
        }
        let plural = |n: usize, one: &str| format!("{n} {one}{}", if n == 1 { "" } else { "s" });
        let counts = [
            plural(self.errors(), "error"),
            plural(self.warnings(), "warning"),
            format!("{} captured", plural(self.graphs.len(), "graph")),
        ];
        line(&mut out, format_args!("{}", counts.join(", ")));
        out
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a String takes everything");
    out.push('\n');
}

impl Finding {
    fn render(&self, shown: &Shown<'_>, paint: &Paint, out: &mut String) {
        let Shown { name, lines, site } = shown;
        let Paint { gutter, help, off, .. } = paint;
        let (colour, word, mark) = match self.severity {
            Severity::Error => (paint.error, "error", '^'),
            Severity::Warning => (paint.warning, "warning", '^'),
        };
        line(out, format_args!("{colour}{word}[{}]{off}: {}", self.code, self.title));
        let mut spans: Vec<(&Span, char)> = self.chain.iter().map(|span| (span, '-')).collect();
        spans.push((&self.at, mark));
        spans.sort_by_key(|(span, _)| span.call);
        let width = spans.iter().map(|(span, _)| number(span).to_string().len()).max().unwrap_or(1);
        let blank = " ".repeat(width);
        if let Some(place) = self.at.place.filter(|_| !name.is_empty()) {
            line(out, format_args!("{blank}{gutter}-->{off} {name}:{place}"));
        }
        if let Some(place) = site(self.at.call).first() {
            line(out, format_args!("{blank}{gutter}-->{off} {place}"));
        }
        line(out, format_args!("{blank} {gutter}|{off}"));
        let mut before: Option<&Span> = None;
        for (span, mark) in spans {
            if before.is_none_or(|before| before.call != span.call) {
                if before.is_some_and(|before| number(before) + 1 < number(span)) {
                    line(out, format_args!("{gutter}{:>width$}{off}", "⋮"));
                }
                let source =
                    span.place.and_then(|place| lines.get(place.line as usize - 1).copied());
                line(
                    out,
                    format_args!(
                        "{gutter}{:>width$} |{off} {}",
                        number(span),
                        // A column is a character, so what is below stays in line.
                        source.unwrap_or(&span.words).trim_end().replace('\t', " ")
                    ),
                );
            }
            let (column, length) = match span.place {
                Some(place) if !lines.is_empty() => {
                    (place.column as usize - 1, place.length as usize)
                }
                _ => (0, span.words.chars().count()),
            };
            let (indent, underline) = (" ".repeat(column), mark.to_string().repeat(length));
            let tone = if mark == '^' { colour } else { gutter };
            line(
                out,
                format_args!(
                    "{blank} {gutter}|{off} {indent}{tone}{underline} {}{off}",
                    span.label
                ),
            );
            // Where the earlier calls were made is told in one line each.
            let places = if mark == '^' { usize::MAX } else { 1 };
            for place in site(span.call).into_iter().take(places) {
                line(out, format_args!("{blank} {gutter}|{off}     {place}"));
            }
            before = Some(span);
        }
        line(out, format_args!("{blank} {gutter}|{off}"));
        for note in &self.notes {
            line(out, format_args!("{blank} {gutter}={off} {note}"));
        }
        for consequence in self.consequences.iter().take(CONSEQUENCES) {
            let (place, words, label) =
                (consequence.whereabouts(), &consequence.words, &consequence.label);
            line(
                out,
                format_args!("{blank} {gutter}={off} in consequence, {place} `{words}` {label}"),
            );
        }
        if self.consequences.len() > CONSEQUENCES {
            let more = self.consequences.len() - CONSEQUENCES;
            line(
                out,
                format_args!("{blank} {gutter}={off} in consequence, {more} more calls fail"),
            );
        }
        for remedy in &self.help {
            line(out, format_args!("{blank} {gutter}={off} {help}help{off}: {remedy}"));
        }
    }
}

/// The number in front of a line: the line's own, or the call's position.
fn number(span: &Span) -> u32 {
    span.place.map_or(span.call.0, |place| place.line)
}
