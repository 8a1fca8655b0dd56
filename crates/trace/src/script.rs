//! The script: calls that a person writes by hand, one a line.
//!
//! ```text
#![doc = include_str!("script.txt")]
//! ```

use crate::limits::MAX_BYTES;
use crate::line::{Line, OpError, SyntaxError};
use crate::words;
use crate::{Call, Names, Place, StreamKind};

/// The form of a script, for people who write one.
pub const SCRIPT_FORMAT: &str = include_str!("script.txt");

/// A parsed script.
#[derive(Clone, Debug)]
pub struct Script {
    /// The names it declares.
    pub names: Names,
    /// Its calls in order, each with its place in the text.
    pub calls: Vec<Call>,
}

impl Script {
    /// Parses a script in one pass.
    ///
    /// # Errors
    /// The first line that is not well formed, with the place of the word that is wrong.
    ///
    /// ```
    /// use phonograph_trace::Script;
    ///
    /// let error = Script::parse("stream main\nkernel mian\n").unwrap_err();
    /// assert_eq!(error.to_string(), "2:8: stream `mian` is not declared; did you mean `main`?");
    /// ```
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        if text.len() > MAX_BYTES {
            let place = Place { line: 1, column: 1, length: 1 };
            return Err(SyntaxError {
                place,
                error: OpError::TooLong { what: "the script", limit: MAX_BYTES },
            });
        }
        let mut script = Self { names: Names::new(), calls: Vec::new() };
        for (number, text) in (1u32..).zip(text.lines()) {
            let mut line = Line::new(number, text)?;
            match line.peek() {
                None => {}
                Some("stream") => script.declare_streams(&mut line)?,
                Some("event") => {
                    declare(&mut line, "event", |name| script.names.declare_event(name).is_some())?
                }
                Some("thread") => declare(&mut line, "thread", |name| {
                    script.names.declare_thread(name).is_some()
                })?,
                Some("memory") => script.declare_memory(&mut line)?,
                Some("graph") => {
                    declare(&mut line, "graph", |name| script.names.declare_graph(name).is_some())?
                }
                Some(_) => script.calls.push(words::parse(&mut line, &mut script.names)?),
            }
        }
        Ok(script)
    }

    /// A call of this script in words.
    pub fn words(&self, call: &Call) -> String {
        words::print(call, &self.names)
    }

    fn declare_streams(&mut self, line: &mut Line<'_>) -> Result<(), SyntaxError> {
        let mut names = declared(line, "stream")?;
        let mut device = None;
        if let [rest @ .., "device", number] = &names[..] {
            let bad = OpError::Number { what: "a device's number", word: (*number).to_owned() };
            device = Some(number.parse().map_err(|_| line.wrong(bad))?);
            names.truncate(rest.len());
        }
        if names.last() == Some(&"device") {
            line.take("a device's number")?;
        }
        let (names, kind) = match names.split_last() {
            Some((&"nonblocking", names)) => (names, StreamKind::NonBlocking),
            Some((&"blocking", names)) => (names, StreamKind::Blocking),
            _ => (names.as_slice(), StreamKind::Blocking),
        };
        if names.is_empty() {
            line.take("a name")?;
        }
        for name in names {
            let taken = OpError::Declared { what: "stream", name: (*name).to_owned() };
            let id = self.names.declare_stream(name, kind).ok_or_else(|| line.wrong(taken))?;
            if let Some(device) = device {
                self.names.set_device(id, device);
            }
        }
        Ok(())
    }

    fn declare_memory(&mut self, line: &mut Line<'_>) -> Result<(), SyntaxError> {
        let words = declared(line, "memory")?;
        let Some((size, names)) = words.split_last().filter(|(_, names)| !names.is_empty()) else {
            line.take("a size in bytes")?;
            return Ok(());
        };
        // No device addresses more, and graphs hold no larger buffers.
        let bytes = size.parse().ok().filter(|bytes: &u64| *bytes <= 1 << 56);
        let bad = OpError::Number { what: "a size in bytes", word: (*size).to_owned() };
        let bytes = bytes.ok_or_else(|| line.wrong(bad))?;
        for name in names {
            let taken = OpError::Declared { what: "memory", name: (*name).to_owned() };
            self.names.declare_memory(name, bytes).ok_or_else(|| line.wrong(taken))?;
        }
        Ok(())
    }
}

fn declared<'a>(line: &mut Line<'a>, what: &'static str) -> Result<Vec<&'a str>, SyntaxError> {
    line.take(what)?;
    let mut names = vec![line.take_name("a name")?];
    while line.peek().is_some() {
        names.push(line.take_name("a name")?);
    }
    Ok(names)
}

fn declare(
    line: &mut Line<'_>,
    what: &'static str,
    mut add: impl FnMut(&str) -> bool,
) -> Result<(), SyntaxError> {
    for name in declared(line, what)? {
        if !add(name) {
            return Err(line.wrong(OpError::Declared { what, name: name.to_owned() }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Script;
    use crate::StreamKind::{Blocking, NonBlocking};
    use crate::{MemoryId, Stream, StreamId};

    const DECLARED: &str = "stream a b nonblocking\nstream c\nevent e f\nthread loader\ngraph g\n";

    #[test]
    fn words_and_calls_are_two_forms_of_one_thing() {
        for line in [
            "begin a global",
            "begin_into a relaxed g",
            "end a",
            "end a as h",
            "kernel a gemm reads x y writes z",
            "kernel legacy",
            "kernel_programmatic a gemm reads x",
            "cuLaunchKernelEx a",
            "kernel ptds reads x",
            "@loader memcpy b htod_pageable reads x writes y",
            "memcpy a dtod",
            "memset a writes x",
            "host a f reads x",
            "callback a",
            "record e a",
            "record_ext e a",
            "wait a e",
            "wait_ext a e",
            "sync a",
            "query legacy",
            "esync e",
            "@7 equery f",
            "ctxsync",
            "alloc",
            "alloc x",
            "free x",
            "host_alloc x",
            "memcpy_sync reads x writes y",
            "malloc_async a m",
            "free_async a m",
            "launch a",
            "launch a g",
            "instantiate g",
            "exec_destroy",
            "graph_destroy g",
            "setdeps a b",
            "adddeps a c",
            "mode thread_local",
            "create_stream a",
            "destroy_stream a",
            "destroy_event e",
            "cuMemGetInfo",
            "record e a -> STREAM_CAPTURE_INVALIDATED",
            "cuStreamGetFlags a",
            "cuMemAllocFromPoolAsync a m",
            "cuMemcpy2DAsync a reads x writes y",
            "add_kernel g gemm reads x writes y as n",
            "add_memset g writes x",
            "add_empty g as n",
            "add_alloc g x as n",
            "add_free g x",
            "add_child g g as n",
            "add_conditional g if body other as n",
            "add_conditional g while body",
            "edges g",
            "edges_data g",
        ] {
            let script = Script::parse(&format!("{DECLARED}{line}\n"))
                .unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(script.words(&script.calls[0]), line);
        }
    }

    #[test]
    fn declarations_say_kinds_devices_and_sizes() {
        let text = "stream a b nonblocking device 1\nstream c device 0\nstream d\nmemory x y 4096\nmemory z 1\nalloc w\n";
        let names = Script::parse(text).unwrap().names;
        let devices: Vec<_> =
            (0..4).map(|id| names.device(Stream::Created(StreamId(id)))).collect();
        assert_eq!(devices, [Some(1), Some(1), Some(0), None]);
        assert_eq!(names.stream_kinds()[..3], [NonBlocking, NonBlocking, Blocking]);
        let bytes: Vec<_> = (0..4).map(|id| names.memory_bytes(MemoryId(id))).collect();
        assert_eq!(bytes, [Some(4096), Some(4096), Some(1), None]);
    }

    #[test]
    fn an_error_names_line_column_and_remedy() {
        for (line, message) in [
            ("sync a -> FINE", "6:11: `FINE` is no driver result"),
            ("sync a ->", "6:8: one driver result is missing at the end of the line"),
            ("kernl a", "6:1: `kernl` is no operation; did you mean `kernel`?"),
            ("steam b", "6:1: `steam` is no operation; did you mean `stream`?"),
            ("flush a", "6:1: `flush` is no operation"),
            (
                "cudaStreamSynchronize a",
                "6:1: `cudaStreamSynchronize` is no driver function of the stream, event, memory, module, execution, graph or context chapters; did you mean `cuStreamSynchronize`?",
            ),
            (
                "cuFoo a",
                "6:1: `cuFoo` is no driver function of the stream, event, memory, module, execution, graph or context chapters",
            ),
            ("begin a globl", "6:9: `globl` is not one of global, thread_local, relaxed"),
            ("begin a", "6:8: a capture mode is missing at the end of the line"),
            ("sync a b", "6:8: `b` is too much on this line"),
            ("  wait a ff", "6:10: event `ff` is not declared; did you mean `f`?"),
            ("@laoder sync a", "6:1: thread `laoder` is not declared; did you mean `loader`?"),
            ("end a as g", "6:10: graph `g` is declared already"),
            ("stream a", "6:8: stream `a` is declared already"),
            ("stream nonblocking", "6:19: a name is missing at the end of the line"),
            ("stream d device", "6:16: a device's number is missing at the end of the line"),
            ("stream d device one", "6:17: `one` is not a device's number"),
            ("stream device 1", "6:16: a name is missing at the end of the line"),
            ("memory x", "6:9: a size in bytes is missing at the end of the line"),
            ("memory x big", "6:10: `big` is not a size in bytes"),
            ("memory x -1", "6:10: `-1` is not a size in bytes"),
            ("memory x x 4", "6:12: memory `x` is declared already"),
            ("event", "6:6: a name is missing at the end of the line"),
            (
                "event leg/acy",
                "6:7: `leg/acy` cannot be a name: names are letters, digits, `_`, `.`, `:`, `<`, `>`, `-` and mean nothing else here",
            ),
            ("kernel a k reads", "6:17: a name for the memory is missing at the end of the line"),
            (
                "memcpy a up",
                "6:10: `up` is not one of dtod, htod_pinned, htod_pageable, dtoh_pinned, dtoh_pageable",
            ),
            ("@", "6:1: thread `` is not declared"),
            ("@7", "6:3: an operation is missing at the end of the line"),
            ("add_conditional g maybe b", "6:19: `maybe` is not one of if, while, switch"),
            ("add_conditional g while b c", "6:27: `c` is too much on this line"),
            ("add_conditional g if g", "6:22: graph `g` is declared already"),
            ("add_edge g n m", "6:12: node `n` is not declared"),
            ("add_empty", "6:10: a graph is missing at the end of the line"),
            ("add_empty g as", "6:15: a name for the node is missing at the end of the line"),
            (
                "cuEventQuery zz",
                "6:14: stream `zz` is not declared; a line `stream zz` before declares it",
            ),
        ] {
            let error = Script::parse(&format!("{DECLARED}{line}\n")).expect_err(line);
            assert_eq!(error.to_string(), message, "{line}");
        }
    }

    #[test]
    fn any_text_is_a_script_or_an_error() {
        // Words of the language in any order reach further than bytes alone; both are tried.
        let words = [
            "begin",
            "a",
            "e",
            "@1",
            "reads",
            "writes",
            "as",
            "wait",
            "kernel",
            "#",
            "\n",
            " ",
            "global",
            "é",
            "stream",
            "cuMemAlloc",
            "@",
        ];
        arbtest::arbtest(|u| {
            let mut text = String::from(DECLARED);
            while !u.is_empty() && text.len() < 4096 {
                if u.ratio(3, 4)? {
                    text.push_str(u.choose(&words)?);
                    text.push(' ');
                } else {
                    text.push(u.arbitrary()?);
                }
            }
            match Script::parse(&text) {
                Ok(script) => {
                    script.calls.iter().for_each(|call| assert!(!script.words(call).is_empty()))
                }
                Err(error) => assert!(error.place.line as usize <= text.lines().count(), "{error}"),
            }
            Ok(())
        });
    }
}
