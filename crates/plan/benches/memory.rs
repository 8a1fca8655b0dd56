//! Placement of lifetimes in files: peaks, lower bounds, seconds.
//!
//! `cargo bench -p phonograph-plan --bench memory [-- FILE.csv …]`. Seconds are the least of five runs, until the peak met its
//! target: the lower bound or, where that is not met in time, the capacity that the file's name ends with (`NAME.CAPACITY.csv`).
//! They are the processor's, or by the clock where that is less (the processor's are counted in steps of milliseconds).
//! MiniMalloc's instances A to K (<https://github.com/google/minimalloc>, `benchmarks/challenging`) have the seconds that
//! its authors published beside them, and no more time than that; others have 2 s.

use std::path::Path;
use std::time::Instant;

use phonograph_plan::memory::{Budget, Lifetime, Lifetimes, from_csv, greedy, place, prove};

/// Name of an instance, MiniMalloc's seconds.
const PUBLISHED: [(&str, f64); 11] = [
    ("A", 3.44),
    ("B", 2.42),
    ("C", 0.48),
    ("D", 1.74),
    ("E", 2.48),
    ("F", 3.85),
    ("G", 0.87),
    ("H", 1.25),
    ("I", 2.25),
    ("J", 0.64),
    ("K", 0.48),
];
/// Seconds below which the processor's are not told apart.
const COARSE: f64 = 0.005;

/// Seconds that this thread has had a processor, where Linux tells; else seconds by the clock.
fn processor_seconds() -> f64 {
    thread_local!(static START: Instant = Instant::now());
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match times.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()) {
        Some(nanoseconds) => nanoseconds / 1e9,
        None => START.with(|start| start.elapsed()).as_secs_f64(),
    }
}

fn main() {
    println!(
        "| instance | buffers | bound | greedy ÷ bound | greedy s | peak | ÷ bound | s | MiniMalloc s |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for path in std::env::args().skip(1).filter(|argument| !argument.starts_with('-')) {
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let lifetimes = from_csv(&bytes).unwrap_or_else(|error| panic!("{path}:{error}")).lifetimes;
        let name = Path::new(&path).file_stem().map_or("".into(), |stem| stem.to_string_lossy());
        let (name, capacity) = match name.rsplit_once('.') {
            Some((name, capacity)) => (name, capacity.parse().ok()),
            None => (&*name, None),
        };
        let theirs = PUBLISHED.iter().find(|(published, _)| *published == name);
        row(name, &lifetimes, capacity, theirs.map(|(_, seconds)| *seconds));
    }
    row("100,000 random", &random(100_000), None, None);
}

/// Sizes of 1 to 1024 units of 256 bytes; most live for a hundredth of the time line, some for up to all of it.
fn random(count: u32) -> Lifetimes {
    let mut state = 1u64;
    let mut below = move |end: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % end) as i64
    };
    let list = (0..count).map(|at| {
        let most = if at % 100 == 0 { count } else { count / 100 };
        let lower = below(u64::from(count));
        let upper = lower + 1 + below(u64::from(most));
        Lifetime { lower, upper, bytes: 256 * (1 + below(1024)) as u64 }
    });
    Lifetimes::new(list.collect()).expect("no lifetime is empty")
}

fn row(name: &str, lifetimes: &Lifetimes, capacity: Option<u64>, theirs: Option<f64>) {
    let seconds = theirs.unwrap_or(2.0);
    let bound = lifetimes.lower_bound();
    let ratio = |peak: u64| peak as f64 / bound as f64;
    let timed = |place: &dyn Fn(&mut Budget<'_>) -> Vec<u64>| {
        let runs = (0..5).map(|_| {
            let (start, clock) = (processor_seconds(), Instant::now());
            let mut stop = || processor_seconds() - start >= seconds;
            let offsets = place(&mut Budget::new(u64::MAX, &mut stop));
            let took = (processor_seconds() - start).max(COARSE).min(clock.elapsed().as_secs_f64());
            (took, prove(lifetimes, &offsets).expect("the placement is right"))
        });
        runs.min_by(|a, b| (a.1, a.0).partial_cmp(&(b.1, b.0)).expect("no NaN")).expect("five runs")
    };
    let (quick, greedy) = timed(&|budget| greedy(lifetimes, budget).offsets);
    let (mut took, mut peak) = timed(&|budget| place(lifetimes, None, budget).offsets);
    let mut target = "";
    if let Some(capacity) = capacity.filter(|_| peak > bound) {
        (took, peak) = timed(&|budget| place(lifetimes, Some(capacity), budget).offsets);
        target = " (capacity)";
    }
    let theirs = theirs.map_or("–".to_owned(), |seconds| format!("{seconds:.2}"));
    println!(
        "| {name} | {} | {bound} | {:.3} | {quick:.4} | {peak}{target} | {:.4} | {took:.4} | {theirs} |",
        lifetimes.len(),
        ratio(greedy),
        ratio(peak),
    );
}
