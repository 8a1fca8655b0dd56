//! `phonograph plan-memory`: places lifetimes in memory, proved by a check of its own.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use phonograph::plan::memory::{Budget, NamedLifetimes, from_csv, place, prove};
use phonograph::report::text::count;
use serde_json::{Map, Value, json};

use crate::{Answer, input, print, print_json, title};

const EXAMPLES: &str = "\
Examples:
    phonograph plan-memory lifetimes.csv
    phonograph plan-memory lifetimes.csv --capacity 1048576    whether that many bytes are enough
    phonograph plan-memory lifetimes.csv --json                the offset of each buffer";

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Lifetimes: CSV with a header that names the columns id, lower, upper and size, plain or gzip; `-` for standard input. A buffer of
    /// `size` bytes lives from time `lower` until before `upper`.
    file: PathBuf,
    /// Bytes that are enough: the search ends at the first placement within them, and exits with 1 if it finds none.
    #[arg(long)]
    capacity: Option<u64>,
    /// Seconds to search for, at most.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    budget: f64,
    /// The placement and its figures as JSON.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    match (0.0..=86_400.0).contains(&value) {
        true => Ok(value),
        false => Err("must be from 0 to 86400".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<Answer> {
    let path = &args.file;
    let bytes = input::bytes(path)?;
    let NamedLifetimes { ids, lifetimes } =
        from_csv(&bytes).map_err(|error| anyhow::anyhow!("{}:{error}", input::shown(path)))?;
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(args.budget);
    let mut stop = || Instant::now() >= until;
    let placement = place(&lifetimes, args.capacity, &mut Budget::new(u64::MAX, &mut stop));
    let seconds = start.elapsed().as_secs_f64();
    match prove(&lifetimes, &placement.offsets) {
        Ok(peak) if peak == placement.peak => {}
        Ok(peak) => bail!("the peak is {peak}, not {}, which is a bug", placement.peak),
        Err(error) => bail!("the placement is wrong, which is a bug: {error}"),
    }
    let fits = args.capacity.is_none_or(|capacity| placement.peak <= capacity);
    if args.json {
        let offsets: Map<String, Value> =
            ids.into_iter().zip(placement.offsets.iter().map(|&at| at.into())).collect();
        print_json(&json!({
            "buffers": lifetimes.len(),
            "peak": placement.peak,
            "lower_bound": placement.lower_bound,
            "seconds": seconds,
            "complete": placement.complete,
            "fits": fits,
            "offsets": offsets,
        }))?;
    } else {
        let mut text =
            format!("{}: {}, placement proved\n", title(path), count(lifetimes.len(), "buffer"));
        let mut line = |name: &str, value: String| text += &format!("  {name:<16} {value}\n");
        line("peak", format!("{} B", placement.peak));
        line("lower bound", format!("{} B", placement.lower_bound));
        if let Some(capacity) = args.capacity {
            line("capacity", format!("{capacity} B{}", if fits { "" } else { ", not met" }));
        }
        line("seconds", format!("{seconds:.3}"));
        line(
            "complete",
            match placement.complete {
                true => "yes".to_owned(),
                false => "no, a lower peak is not ruled out".to_owned(),
            },
        );
        print(text.as_bytes())?;
    }
    Ok(if fits { Answer::Yes } else { Answer::No })
}
