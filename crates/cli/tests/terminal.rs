//! What `show` prints to a terminal: as wide as it is, in the characters that it has, and nothing that it would obey.

use std::path::Path;
use std::process::Command;

fn data(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graph/tests/data").join(file);
    path.to_str().unwrap().to_owned()
}

/// What a terminal of so many columns shows; nothing, said on standard error, where `script` cannot make one.
fn shown(file: &str, columns: usize, locale: &str) -> Option<String> {
    let command = format!(
        "stty cols {columns} rows 50 && exec '{}' show '{}'",
        env!("CARGO_BIN_EXE_phonograph"),
        data(file)
    );
    let output = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("LC_ALL", locale)
        .env("TERM", "xterm-256color")
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8(output.stdout).unwrap().replace('\r', ""))
        }
        failed => {
            eprintln!("SKIPPED: `script` of util-linux makes no terminal here: {failed:?}");
            None
        }
    }
}

const FILES: [&str; 4] = [
    "every_node.json",
    "multistream_3x4.dot.gz",
    "resnet18_infer_b1.dot.gz",
    "gpt2_4layer_prefill16.dot.gz",
];

#[test]
fn lines_are_no_wider_than_the_terminal() {
    for file in FILES {
        for width in [40, 60, 80, 200] {
            let Some(text) = shown(file, width, "C.UTF-8") else { return };
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{file} at {width}: {line}");
            }
            assert!(text.contains("critical path"), "{text}");
            assert!(text.contains(if file.starts_with("every") { '●' } else { '█' }), "{text}");
        }
    }
}

#[test]
fn a_terminal_without_unicode_gets_ascii() {
    for file in FILES {
        for locale in ["C", "POSIX", "de_DE.ISO-8859-1"] {
            let Some(text) = shown(file, 100, locale) else { return };
            assert!(text.is_ascii(), "{file} in {locale}: {text}");
            assert!(text.contains(if file.starts_with("every") { "* " } else { "##" }), "{text}");
        }
    }
}

#[test]
fn a_pipe_gets_text_alone() {
    for file in FILES {
        for locale in ["C", "C.UTF-8"] {
            let output = Command::new(env!("CARGO_BIN_EXE_phonograph"))
                .args(["show", &data(file)])
                .env("LC_ALL", locale)
                .env("TERM", "xterm-256color")
                .env("CLICOLOR_FORCE", "1")
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(!text.contains('\u{1b}'), "{text}");
            // A pipe is no terminal: it gets the same in every locale.
            assert!(text.contains(['●', '█']), "{text}");
        }
    }
}
