//! Names of kernels, which profilers and graphs print differently.

/// A kernel's name without what demanglers print differently: the return type, parameters, suffixes of literals.
pub(super) fn plain(name: &str) -> String {
    let name = name.strip_prefix("void ").unwrap_or(name).trim_end();
    let name = without_parameters(name);
    let mut out = String::with_capacity(name.len());
    let mut chars = name.chars().peekable();
    // Whether the last characters are a number that is no part of a word.
    let (mut number, mut word) = (false, false);
    while let Some(c) = chars.next() {
        if number && matches!(c, 'u' | 'U' | 'l' | 'L') {
            let mut suffix = String::from(c);
            while let Some(&next) = chars.peek().filter(|c| matches!(c, 'u' | 'U' | 'l' | 'L')) {
                suffix.push(next);
                chars.next();
            }
            let ends = !chars.peek().is_some_and(|c| c.is_alphanumeric() || *c == '_');
            if !ends {
                out.push_str(&suffix);
            }
            (number, word) = (false, !ends);
            continue;
        }
        number = c.is_ascii_digit() && (number || !word);
        word = c.is_alphanumeric() || c == '_';
        out.push(c);
    }
    // Between closing brackets some print a space.
    out.replace("> >", ">>")
}

/// The name up to the parameter list that it ends with, if it does.
fn without_parameters(name: &str) -> &str {
    if !name.ends_with(')') {
        return name;
    }
    let mut depth = 0usize;
    for (at, c) in name.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth -= 1;
                if depth == 0 {
                    return if at == 0 { name } else { &name[..at] };
                }
            }
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_demanglers_agree() {
        for (name, want) in [
            ("axpy", "axpy"),
            ("axpy(float*, int)", "axpy"),
            ("void f<4, a<char*, 2ul> >(int, a<char*, 2ul>)", "f<4, a<char*, 2>>"),
            ("f<4u, 3LL, x2u, 5ux>", "f<4, 3, x2u, 5ux>"),
            ("g(int (*)(char), int)", "g"),
            ("(anonymous namespace)::k(int)", "(anonymous namespace)::k"),
            ("(int)", "(int)"),
            (")", ")"),
            ("))((", "))(("),
            ("", ""),
        ] {
            assert_eq!(plain(name), want, "{name}");
        }
    }
}
