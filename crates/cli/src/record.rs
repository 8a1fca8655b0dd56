//! Recordings made anew: the questions of recordings, or of seeds, asked of this machine's driver.
//!
//! A child process asks, and writes each answer as it has it. Programs made at random crash a driver now and then: the question
//! that took the child along is left out, and another child goes on after it.

use std::fs;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use phonograph::cuda::record::{RecordError, Recorder, generate};
use phonograph::trace::limits::MAX_BYTES;
use phonograph::trace::recording::Recording;
use serde::Serialize;

use crate::{input, print, progress, title};

/// How long one question may take before its child is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Children in a row that answer nothing before all is given up.
const FAILURES: usize = 20;

/// A line that a child writes: a word, a space, and the rest.
enum Line {
    /// The device is open: its name.
    Ready(String),
    /// A record with its answers.
    Answer(String),
    /// Why a question cannot be asked.
    LeftOut(String),
}

impl Line {
    fn write(&self) -> String {
        match self {
            Line::Ready(name) => format!("ready {name}"),
            Line::Answer(record) => format!("answer {record}"),
            Line::LeftOut(why) => format!("left_out {}", why.replace('\n', " ")),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ')?;
        let rest = rest.to_owned();
        match word {
            "ready" => Some(Line::Ready(rest)),
            "answer" => Some(Line::Answer(rest)),
            "left_out" => Some(Line::LeftOut(rest)),
            _ => None,
        }
    }
}

/// Questions with the name of the file that their answers go to.
struct Questions {
    name: String,
    records: Vec<String>,
}

/// Asks all questions and writes the answers into the folder; gives the files.
pub fn record(folder: &Path, files: &[PathBuf], seeds: &[u64], count: u64) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for file in files {
        let read = || -> Result<Recording> { Ok(Recording::parse(&input::bytes(file)?)?) };
        let recording =
            read().with_context(|| format!("{} cannot be asked", input::shown(file)))?;
        let title = title(file);
        let name = title.strip_suffix(".gz").unwrap_or(&title).to_owned();
        ensure!(
            all.iter().all(|other: &Questions| other.name != name),
            "two files are called {name}; their answers would be one file"
        );
        all.push(Questions { name, records: lines(&recording)? });
    }
    for &seed in seeds {
        let programs = (0..count).map(|number| generate::program(seed, number)).collect();
        let updates = (0..count).map(|number| generate::pair(seed, number)).collect();
        for (name, recording) in [
            (format!("programs-{seed}.jsonl"), Recording::Programs(programs)),
            (format!("updates-{seed}.jsonl"), Recording::Updates(updates)),
        ] {
            all.push(Questions { name, records: lines(&recording)? });
        }
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for questions in &all {
        let path = folder.join(&questions.name);
        input::keep(files.iter().map(PathBuf::as_path), Some(&path))?;
    }
    let mut written = Vec::new();
    for questions in &all {
        let path = folder.join(&questions.name);
        // Half a recording looks like a whole one, and an earlier one stays until there is another.
        let half = folder.join(format!("{}.half", questions.name));
        let file =
            fs::File::create(&half).with_context(|| format!("cannot write {}", half.display()))?;
        let asked = ask_all(questions, BufWriter::new(file));
        if asked.is_err() {
            fs::remove_file(&half).with_context(|| format!("cannot remove {}", half.display()))?;
        }
        let report = asked.with_context(|| format!("no answers to {}", questions.name))?;
        fs::rename(&half, &path).with_context(|| format!("cannot write {}", path.display()))?;
        print(format!("{}: {report}\n", path.display()).as_bytes())?;
        written.push(path);
    }
    Ok(written)
}

/// The records of a recording, a line each.
fn lines(recording: &Recording) -> Result<Vec<String>> {
    fn each<T: Serialize>(records: &[T]) -> Result<Vec<String>> {
        records.iter().map(|record| Ok(serde_json::to_string(record)?)).collect()
    }
    match recording {
        Recording::Programs(records) => each(records),
        Recording::Updates(records) => each(records),
        Recording::Matrix(records) => each(records),
        Recording::Nodes(records) => each(records),
    }
}

/// Asks until every question has been answered or left out. Says how it went.
fn ask_all(questions: &Questions, mut out: impl Write) -> Result<String> {
    let total = questions.records.len();
    let bar = progress(total as u64, "asking the driver");
    let (mut done, mut answered, mut failures) = (0, 0, 0);
    let mut left_out = Vec::new();
    let mut device = String::new();
    while done < total {
        let rest = &questions.records[done..];
        let before = done;
        let ended = ask(rest, |line| {
            match line {
                Line::Ready(name) => device = name,
                Line::Answer(record) => {
                    writeln!(out, "{record}")?;
                    answered += 1;
                    done += 1;
                }
                Line::LeftOut(why) => {
                    left_out.push(why);
                    done += 1;
                }
            }
            bar.set_position(done as u64);
            Ok(())
        })?;
        ensure!(!device.is_empty(), "the driver cannot be asked: {ended}");
        if done < total {
            left_out.push(format!("{}: {ended}", id(&questions.records[done])));
            done += 1;
            failures = if done - before > 1 { 0 } else { failures + 1 };
            ensure!(failures < FAILURES, "{FAILURES} questions in a row gave no answer: {ended}");
        }
    }
    bar.finish_and_clear();
    out.flush()?;
    let mut report = format!("{answered} of {total} answered by {device}");
    for why in &left_out {
        report += &format!("\n  left out: {why}");
    }
    Ok(report)
}

fn id(record: &str) -> String {
    let value: Result<serde_json::Value, _> = serde_json::from_str(record);
    let name = |value: &serde_json::Value| {
        ["id", "call"].iter().find_map(|key| value.get(key)?.as_str().map(str::to_owned))
    };
    value.ok().as_ref().and_then(name).unwrap_or_else(|| "a record".to_owned())
}

/// Lets one child answer as many as it can. Says how it ended.
fn ask(records: &[String], mut each: impl FnMut(Line) -> Result<()>) -> Result<String> {
    let program = std::env::current_exe().context("the program cannot find itself")?;
    let mut child = Command::new(program)
        .args(["conformance", "--answer"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a process that asks")?;
    let pipe = "the child has the pipes that it was given";
    let mut stdin = child.stdin.take().expect(pipe);
    let (stdout, stderr) = (child.stdout.take().expect(pipe), child.stderr.take().expect(pipe));
    let (send, received) = channel();
    let mut gave_up = false;
    let mut problem = None;
    let said = thread::scope(|scope| -> Result<String> {
        // A child that is gone reads no more: how it ended is said below.
        scope.spawn(move || records.iter().all(|record| writeln!(stdin, "{record}").is_ok()));
        scope.spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.take_while(|line| send.send(line.clone()).is_ok()).count()
        });
        let said = scope.spawn(move || {
            let mut said = String::new();
            // What cannot be read of the messages is only missing from a message.
            stderr.take(4096).read_to_string(&mut said).map(|_| said).unwrap_or_default()
        });
        loop {
            match received.recv_timeout(PATIENCE) {
                Ok(text) => {
                    let line = Line::read(&text).context("a child writes no such line");
                    if let Err(error) = line.and_then(&mut each) {
                        problem = Some(error);
                        child.kill()?;
                        break;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    gave_up = true;
                    child.kill()?;
                    break;
                }
            }
        }
        drop(received);
        Ok(said.join().unwrap_or_default())
    })?;
    let status = child.wait()?;
    if let Some(error) = problem {
        return Err(error);
    }
    let said = said.lines().last().unwrap_or_default().trim().to_owned();
    let ended = if gave_up {
        format!("no answer within {} s", PATIENCE.as_secs())
    } else {
        format!("the process that asks ended with {status}")
    };
    Ok(if said.is_empty() { ended } else { format!("{ended}: {said}") })
}

/// The child: answers the recording on standard input, a line for each record.
pub fn answer() -> Result<()> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let recording = Recording::parse(&bytes)?;
    let recorder = Recorder::new()?;
    let mut out = io::stdout().lock();
    let mut write = |line: Line| -> Result<()> {
        writeln!(out, "{}", line.write())?;
        Ok(out.flush()?)
    };
    write(Line::Ready(recorder.device().name().to_owned()))?;
    fn line<T: Serialize>(answered: Result<T, RecordError>) -> Result<Line> {
        match answered {
            Ok(record) => Ok(Line::Answer(serde_json::to_string(&record)?)),
            Err(error @ (RecordError::Words { .. } | RecordError::Unsupported { .. })) => {
                Ok(Line::LeftOut(error.to_string()))
            }
            Err(error) => bail!(error),
        }
    }
    match &recording {
        Recording::Programs(records) => {
            records.iter().try_for_each(|asked| write(line(recorder.program(asked))?))
        }
        Recording::Updates(records) => {
            records.iter().try_for_each(|asked| write(line(recorder.update(asked))?))
        }
        Recording::Matrix(records) => {
            records.iter().try_for_each(|asked| write(line(recorder.beside(asked))?))
        }
        Recording::Nodes(records) => {
            records.iter().try_for_each(|asked| write(line(recorder.on_stream(asked))?))
        }
    }
}
