//! The words of a DOT file.
//!
//! In: the text. Out: one token at a time with its byte offset. O(text), allocates only for quoted strings that
//! hold an escape. The lexical grammar is that of Graphviz, without HTML-like labels.

use std::borrow::Cow;

/// What is wrong, and at which byte.
#[derive(Debug)]
pub(super) struct Fault {
    pub at: usize,
    pub problem: String,
}

impl Fault {
    pub fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into() }
    }
}

/// A token.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'a> {
    OpenBrace,
    CloseBrace,
    OpenBracket,
    CloseBracket,
    Equals,
    Semicolon,
    Comma,
    Colon,
    Arrow,
    /// `--`, the edge of an undirected graph.
    Line,
    /// A bare word or number: may be a keyword.
    Word(&'a str),
    /// A quoted string, unescaped as the lexer of DOT does: `\"` and line continuations only.
    Quoted(Cow<'a, str>),
    End,
}

impl Token<'_> {
    /// Whether it is this keyword; those are not case-sensitive.
    pub fn is_keyword(&self, keyword: &str) -> bool {
        matches!(self, Token::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    /// How a message names it.
    pub fn describe(&self) -> String {
        let fixed = match self {
            Token::Word(word) => return format!("`{}`", shorten(word)),
            Token::Quoted(text) => return format!("\"{}\"", shorten(text)),
            Token::OpenBrace => "`{`",
            Token::CloseBrace => "`}`",
            Token::OpenBracket => "`[`",
            Token::CloseBracket => "`]`",
            Token::Equals => "`=`",
            Token::Semicolon => "`;`",
            Token::Comma => "`,`",
            Token::Colon => "`:`",
            Token::Arrow => "`->`",
            Token::Line => "`--`",
            Token::End => "the end of the file",
        };
        fixed.to_owned()
    }
}

/// Enough of a text from a file to recognise it in a message, on one line.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(SHOWN).map(visible).collect();
    if text.chars().nth(SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// Splits a text into tokens.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next token and where it starts. After the last one, [`Token::End`] for ever.
    pub fn next(&mut self) -> Result<(Token<'a>, usize), Fault> {
        self.skip_blank()?;
        let at = self.at;
        let bytes = self.text.as_bytes();
        let Some(&first) = bytes.get(at) else { return Ok((Token::End, at)) };
        let simple = match first {
            b'{' => Token::OpenBrace,
            b'}' => Token::CloseBrace,
            b'[' => Token::OpenBracket,
            b']' => Token::CloseBracket,
            b'=' => Token::Equals,
            b';' => Token::Semicolon,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return Ok((Token::Quoted(self.strings()?), at)),
            b'<' => {
                return Err(Fault::new(at, "HTML-like labels are not read; use a quoted string"));
            }
            b'-' if bytes.get(at + 1) == Some(&b'>') => {
                self.at += 2;
                return Ok((Token::Arrow, at));
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => {
                self.at += 2;
                return Ok((Token::Line, at));
            }
            _ => return self.word(),
        };
        self.at += 1;
        Ok((simple, at))
    }

    fn word(&mut self) -> Result<(Token<'a>, usize), Fault> {
        let at = self.at;
        let rest = &self.text[at..];
        let letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c >= '\u{80}';
        let numeric = rest.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        let length = if numeric {
            let sign = usize::from(rest.starts_with('-'));
            let digits = |c: char| c.is_ascii_digit() || c == '.';
            let number = rest[sign..].find(|c| !digits(c)).unwrap_or(rest.len() - sign);
            if number == 0 { 0 } else { sign + number }
        } else {
            rest.find(|c| !letter(c)).unwrap_or(rest.len())
        };
        if length == 0 {
            let stray = rest.chars().next().unwrap_or(' ');
            return Err(Fault::new(at, format!("a stray `{}`", stray.escape_debug())));
        }
        self.at += length;
        Ok((Token::Word(&rest[..length]), at))
    }

    /// One quoted string, or several joined by `+`.
    fn strings(&mut self) -> Result<Cow<'a, str>, Fault> {
        let mut all = self.string()?;
        loop {
            let end = self.at;
            self.skip_blank()?;
            if self.text.as_bytes().get(self.at) != Some(&b'+') {
                self.at = end;
                return Ok(all);
            }
            self.at += 1;
            self.skip_blank()?;
            if self.text.as_bytes().get(self.at) != Some(&b'"') {
                return Err(Fault::new(self.at, "expected a quoted string after `+`"));
            }
            all.to_mut().push_str(&self.string()?);
        }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, Fault> {
        let open = self.at;
        let bytes = self.text.as_bytes();
        let mut text = Cow::Borrowed("");
        let mut from = open + 1;
        let mut at = from;
        // What was kept so far stays borrowed until an escape is dropped.
        let keep = |text: &mut Cow<'a, str>, part: &'a str| {
            if text.is_empty() {
                *text = Cow::Borrowed(part);
            } else if !part.is_empty() {
                text.to_mut().push_str(part);
            }
        };
        loop {
            match bytes.get(at) {
                None => {
                    return Err(Fault::new(open, "the quoted string that starts here never ends"));
                }
                Some(b'"') => {
                    keep(&mut text, &self.text[from..at]);
                    self.at = at + 1;
                    return Ok(text);
                }
                Some(b'\\') if bytes.get(at + 1) == Some(&b'"') => {
                    keep(&mut text, &self.text[from..at]);
                    from = at + 1; // the quote itself is kept
                    at += 2;
                }
                Some(b'\\') if bytes.get(at + 1) == Some(&b'\n') => {
                    keep(&mut text, &self.text[from..at]);
                    from = at + 2;
                    at += 2;
                }
                // Any other escape is the label's; it is kept, and hides what follows.
                Some(b'\\') if at + 1 < bytes.len() => at += 2,
                Some(_) => at += 1,
            }
        }
    }

    fn skip_blank(&mut self) -> Result<(), Fault> {
        let bytes = self.text.as_bytes();
        loop {
            let rest = &bytes[self.at..];
            let line_start = self.at == 0 || bytes[self.at - 1] == b'\n';
            match rest {
                [b' ' | b'\t' | b'\r' | b'\n', ..] => self.at += 1,
                [0xEF, 0xBB, 0xBF, ..] if self.at == 0 => self.at += 3,
                [b'/', b'/', ..] => self.skip_line(),
                [b'#', ..] if line_start => self.skip_line(),
                [b'/', b'*', ..] => match self.text[self.at + 2..].find("*/") {
                    Some(length) => self.at += length + 4,
                    None => return Err(Fault::new(self.at, "this comment never ends")),
                },
                _ => return Ok(()),
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
    }
}
