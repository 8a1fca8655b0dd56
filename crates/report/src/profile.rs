//! What a GPU did, as a profiler recorded it: traces of PyTorch's profiler (Kineto), in the Trace Event Format.
//!
//! In: JSON, `{"traceEvents": […]}` or the bare list. Out: kernels, copies and fills with their streams and times, by
//! start. Other events are passed over; one of these kinds that lacks what it needs is an error with its place. Sizes
//! are limited. Times are microseconds in the file, as floating point: starts are as exact as that, durations are
//! rounded to nanoseconds. Linear but for sorting.

use serde::Deserialize;
use serde_json::Value;

/// The longest trace that is read.
pub const MAX_TRACE_BYTES: usize = 256 << 20;
/// The most events that a trace may have.
pub const MAX_TRACE_EVENTS: usize = 4_000_000;
/// The farthest that a start may lie from 0, and the longest that all events may take together, in microseconds: 126 years.
/// Ends and sums in nanoseconds then fit 64 bits.
const MAX_MICROSECONDS: f64 = 4e15;

/// The kind of work on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A copy.
    Memcpy,
    /// A fill.
    Memset,
}

/// Something that ran on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceEvent {
    /// Its name; of a kernel, as the demangler of the profiler prints it.
    pub name: String,
    /// Its kind.
    pub work: Work,
    /// The stream.
    pub stream: i64,
    /// The call that launched it. All work of a launched graph has the number of that launch.
    pub correlation: u64,
    /// Start in nanoseconds from the first start of the profile.
    pub start: u64,
    /// Duration in nanoseconds.
    pub duration: u64,
}

/// What ran on the device, by start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The events.
    pub events: Vec<DeviceEvent>,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file is too long.
    #[error("a trace of {bytes} bytes: the most that is read are {limit}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The trace has too many events.
    #[error("a trace of {events} events: the most that are read are {limit}")]
    TooMany {
        /// How many.
        events: usize,
        /// The limit.
        limit: usize,
    },
    /// It is not the JSON of a trace; the error says where.
    #[error("no trace: {0}")]
    Json(serde_json::Error),
    /// An event on the device lacks a member or has a wrong one.
    #[error("event {index} ({name:?}): {what}")]
    Event {
        /// Its place in the list.
        index: usize,
        /// Its name, shortened.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// Nothing ran on the device.
    #[error("there is no kernel, copy or fill among {events} events: was the device profiled?")]
    NoDeviceWork {
        /// Events of other kinds.
        events: usize,
    },
}

#[derive(Deserialize)]
struct Wrapped {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

/// Members have the types of the format only in events that are used; others may hold anything.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: Value,
    #[serde(default)]
    cat: Value,
    #[serde(default)]
    name: Value,
    #[serde(default)]
    ts: Value,
    #[serde(default)]
    dur: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    args: Args,
}

#[derive(Default)]
struct Args {
    stream: Value,
    correlation: Value,
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Arguments may also be a list or a text.
        let mut value = Value::deserialize(deserializer)?;
        let mut take = |name| value.get_mut(name).map(Value::take).unwrap_or_default();
        Ok(Args { stream: take("stream"), correlation: take("correlation") })
    }
}

/// Reads a trace.
///
/// ```
/// use phonograph_report::profile::read;
///
/// let trace = br#"{"traceEvents": [
///   {"ph": "X", "cat": "kernel", "name": "axpy", "ts": 10.5, "dur": 2.25, "tid": 7,
///    "args": {"stream": 7, "correlation": 3}}
/// ]}"#;
/// let profile = read(trace)?;
/// assert_eq!((profile.events[0].stream, profile.events[0].duration), (7, 2250));
/// # Ok::<(), phonograph_report::profile::ProfileError>(())
/// ```
///
/// # Errors
/// [`ProfileError`], with the place in the text or the number of the event.
pub fn read(bytes: &[u8]) -> Result<Profile, ProfileError> {
    if bytes.len() > MAX_TRACE_BYTES {
        return Err(ProfileError::TooLong { bytes: bytes.len(), limit: MAX_TRACE_BYTES });
    }
    let bare = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    let events: Vec<Event> = if bare {
        serde_json::from_slice(bytes).map_err(ProfileError::Json)?
    } else {
        serde_json::from_slice::<Wrapped>(bytes).map_err(ProfileError::Json)?.events
    };
    if events.len() > MAX_TRACE_EVENTS {
        return Err(ProfileError::TooMany { events: events.len(), limit: MAX_TRACE_EVENTS });
    }
    let mut found = Vec::new();
    let mut together = 0;
    for (index, event) in events.iter().enumerate() {
        let work = match event.cat.as_str() {
            Some("kernel") => Work::Kernel,
            Some("gpu_memcpy") => Work::Memcpy,
            Some("gpu_memset") => Work::Memset,
            _ => continue,
        };
        if event.ph != "X" {
            continue;
        }
        let read = device_event(event, work).and_then(|(start, event)| {
            together += event.duration;
            let fits = together <= nanoseconds(MAX_MICROSECONDS);
            fits.then_some((start, event)).ok_or("all up to it take longer than 126 years")
        });
        found.push(read.map_err(|what| {
            let name = event.name.as_str().unwrap_or_default();
            ProfileError::Event { index, name: name.chars().take(60).collect(), what }
        })?);
    }
    if found.is_empty() {
        return Err(ProfileError::NoDeviceWork { events: events.len() });
    }
    // The sort is stable: what starts together keeps the order of the file.
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = found[0].0;
    let events = found.into_iter().map(|(start, mut event)| {
        event.start = nanoseconds(start - first);
        event
    });
    Ok(Profile { events: events.collect() })
}

/// The start in microseconds, and the rest.
fn device_event(event: &Event, work: Work) -> Result<(f64, DeviceEvent), &'static str> {
    let name = event.name.as_str().ok_or("it has no name")?;
    let time = |value: &Value| value.as_f64().filter(|t| t.abs() <= MAX_MICROSECONDS);
    let start = time(&event.ts).ok_or("`ts` is no number of microseconds")?;
    let duration = time(&event.dur)
        .filter(|&duration| duration >= 0.0)
        .ok_or("`dur` is no number of microseconds")?;
    let stream = match &event.args.stream {
        Value::Null => event.tid.as_i64(),
        stream => stream.as_i64(),
    };
    let correlation = match &event.args.correlation {
        Value::Null => Some(0),
        correlation => correlation.as_u64(),
    };
    Ok((
        start,
        DeviceEvent {
            name: name.to_owned(),
            work,
            stream: stream.ok_or("neither `stream` nor `tid` is a number")?,
            correlation: correlation.ok_or("`correlation` is no number")?,
            start: 0,
            duration: nanoseconds(duration),
        },
    ))
}

fn nanoseconds(microseconds: f64) -> u64 {
    (microseconds * 1_000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = r#""ph": "X", "cat": "kernel", "name": "k", "ts": 2, "dur": 1"#;

    #[test]
    fn traces_are_read_or_refused_with_a_place() {
        let wrap = |event: String| format!("{{\"traceEvents\": [{{\"ph\": \"M\"}}, {{{event}}}]}}");
        let cases = [
            (wrap(format!("{KERNEL}, \"tid\": 7")), "1 events"),
            (format!("[{{{KERNEL}, \"args\": {{\"stream\": 7}}}}]"), "1 events"),
            (wrap(format!("{KERNEL}, \"tid\": 7, \"args\": [1]")), "1 events"),
            (wrap(KERNEL.into()), "event 1 (\"k\"): neither `stream` nor `tid` is a number"),
            (
                wrap(format!("{KERNEL}, \"tid\": 7, \"args\": {{\"correlation\": -1}}")),
                "event 1 (\"k\"): `correlation` is no number",
            ),
            (
                wrap(
                    r#""ph": "X", "cat": "kernel", "name": "k", "ts": 2, "dur": -1, "tid": 7"#
                        .into(),
                ),
                "event 1 (\"k\"): `dur` is no number of microseconds",
            ),
            (
                wrap(r#""ph": "X", "cat": "gpu_memset", "ts": 2, "dur": 1, "tid": 7"#.into()),
                "event 1 (\"\"): it has no name",
            ),
            (
                wrap(r#""ph": "X", "cat": "cpu_op", "name": "aten::add""#.into()),
                "there is no kernel, copy or fill among 2 events: was the device profiled?",
            ),
            (
                wrap(format!("{KERNEL}, \"tid\": 7")).replace("\"ts\": 2", "\"ts\": 4.1e15"),
                "event 1 (\"k\"): `ts` is no number of microseconds",
            ),
            (
                format!("[{0}, {0}]", format!("{{{KERNEL}, \"tid\": 7}}"))
                    .replace("\"dur\": 1", "\"dur\": 3e15"),
                "event 1 (\"k\"): all up to it take longer than 126 years",
            ),
            ("{".into(), "no trace: EOF while parsing an object at line 1 column 1"),
            ("{}".into(), "no trace: missing field `traceEvents` at line 1 column 2"),
            ("".into(), "no trace: EOF while parsing a value at line 1 column 0"),
            (
                "[3]".into(),
                "no trace: invalid type: integer `3`, expected struct Event at line 1 column 2",
            ),
        ];
        for (trace, want) in cases {
            let said = match read(trace.as_bytes()) {
                Ok(profile) => format!("{} events", profile.events.len()),
                Err(error) => error.to_string(),
            };
            assert_eq!(said, want, "{trace}");
        }
    }

    #[test]
    fn the_longest_trace_fits_its_numbers() {
        let event = |ts: f64, dur: f64| {
            format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "k", "ts": {ts}, "dur": {dur}, "tid": 7}}"#
            )
        };
        let most = MAX_MICROSECONDS;
        let trace = format!("[{}, {}]", event(-most, 0.0), event(most, most));
        let profile = read(trace.as_bytes()).unwrap();
        let last = &profile.events[1];
        assert_eq!(
            (last.start, last.duration),
            (8_000_000_000_000_000_000, 4_000_000_000_000_000_000)
        );
        assert!(last.start.checked_add(last.duration).is_some());
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let seed =
            format!("{{\"traceEvents\": [{{{KERNEL}, \"tid\": 7}}, {{{KERNEL}, \"tid\": 8}}]}}");
        arbtest::arbtest(|u| {
            let mut bytes = seed.clone().into_bytes();
            for _ in 0..u.int_in_range(1..=4)? {
                let at = u.choose_index(bytes.len())?;
                bytes[at] = u.arbitrary()?;
            }
            if let Ok(profile) = read(&bytes) {
                assert!(profile.events.is_sorted_by_key(|event| event.start));
            }
            Ok(())
        })
        .budget_ms(300);
    }
}
