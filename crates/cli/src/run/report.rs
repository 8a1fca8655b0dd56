//! What `run` says afterwards.

use std::time::Duration;

use anyhow::Result;
use phonograph::graph::{BufferId, ComputeGraph, DType, Scalar};
use serde_json::{Map, Value, json};

use super::{Args, element_type};
use crate::{harmless, print, print_json, title};

/// The first elements of a buffer.
pub struct Shown {
    name: String,
    dtype: DType,
    bytes: u64,
    values: Vec<String>,
}

impl Shown {
    pub fn new(graph: &ComputeGraph, buffer: BufferId, contents: &[u8]) -> Self {
        const SHOWN: usize = 6;
        let dtype = element_type(graph, buffer);
        let elements = contents.chunks_exact(dtype.size() as usize).take(SHOWN);
        let scalars = elements.filter_map(|element| Scalar::from_le_bytes(dtype, element));
        // A scalar is written with its type in front, which the line says once.
        let values = scalars.map(|s| s.to_string().split_off(dtype.name().len() + 1)).collect();
        let name = graph.buffer(buffer).name.to_string();
        Self { name, dtype, bytes: contents.len() as u64, values }
    }
}

/// What only one backend has to say.
pub struct Fact {
    key: &'static str,
    value: Value,
    /// A line for people, or nothing.
    line: String,
}

impl Fact {
    pub fn new(key: &'static str, value: Value, line: &str) -> Self {
        Self { key, value, line: line.to_owned() }
    }
}

pub struct Outcome<'a> {
    /// On what it ran.
    pub on: String,
    pub facts: &'a [Fact],
    pub internal_bytes: u64,
    /// Sorted; there is at least one.
    pub times: &'a [Duration],
    pub shown: Vec<Shown>,
}

impl Outcome<'_> {
    pub fn print(&self, args: &Args, graph: &ComputeGraph) -> Result<()> {
        let median = self.times[self.times.len() / 2].as_secs_f64() * 1e6;
        let least = self.times[0].as_secs_f64() * 1e6;
        if args.json {
            let buffers = self.shown.iter().map(|Shown { name, dtype, bytes, values }| {
                json!({ "name": name, "dtype": dtype.name(), "bytes": bytes, "first": values })
            });
            let mut all = Map::new();
            let mut add = |key: &str, value: Value| all.insert(key.to_owned(), value);
            add("ok", json!(true));
            add("replays", json!(args.replays));
            add("nodes", json!(graph.node_count()));
            for fact in self.facts {
                add(fact.key, fact.value.clone());
            }
            add("internal_bytes", json!(self.internal_bytes));
            add("median_us", json!(median));
            add("least_us", json!(least));
            add("buffers", buffers.collect());
            return print_json(&Value::Object(all));
        }
        let mut text = format!(
            "{}: {} nodes, {} replays on {}\n  time a replay  {median:.1} µs (median), {least:.1} µs (least)\n",
            title(&args.input.file),
            graph.node_count(),
            args.replays,
            self.on,
        );
        let lines = self.facts.iter().filter(|fact| !fact.line.is_empty());
        for fact in lines {
            text += &format!("  {}\n", fact.line);
        }
        text += &format!("  own memory     {} B\n", self.internal_bytes);
        for Shown { name, dtype, bytes, values } in &self.shown {
            let more = if *bytes > dtype.size() * values.len() as u64 { ", …" } else { "" };
            text += &format!("  {name:<14} {dtype} [{}{more}]\n", values.join(", "));
        }
        print(harmless(&text).as_bytes())
    }
}
