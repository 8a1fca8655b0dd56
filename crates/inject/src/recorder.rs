//! The recorder: everything behind one lock, which is held only to write.

use std::cell::Cell;
use std::collections::HashSet;
use std::env;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};
use std::time::Duration;

use phonograph_trace::live::{Operand, Operands, RawCall, Record, Stop};

use crate::allocations::Allocations;
use crate::call::entries;
use crate::cupti::Cupti;
use crate::driver;
use crate::functions::Location;
use crate::native::{self, Module};
use crate::nvtx;
use crate::python;
use crate::sink::{Refused, Sink};
use crate::tables::Known;
use crate::{FILE, LIMIT, say};

/// Bytes that a trace may have if nothing else is said.
const DEFAULT_LIMIT: u64 = 1 << 27;
/// Calls outside captures whose stacks are taken. Later ones are recorded without.
const STACKS_OUTSIDE: u32 = 1 << 12;
/// Launches of one graph in a row that are written as one count; those of a killed program since the last count are lost.
const MOST_REPEATED: u64 = 1 << 12;
/// More than any program has loaded.
const MOST_MODULES: usize = 1 << 13;
/// `CU_STREAM_PER_THREAD`; up to here handles name default streams, of which only the calling thread's can be captured.
const LAST_DEFAULT_STREAM: u64 = 2;
/// Stands for the number of a context where there is none.
const NO_CONTEXT: u32 = u32::MAX;
/// `CUDA_ERROR_NOT_READY`: the answer of a query, no failure.
pub const NOT_READY: u32 = 600;

static OFF: AtomicBool = AtomicBool::new(true);
/// Twice the number of begins and ends of captures so far, plus 1 while a capture is open.
static WINDOWS: AtomicU64 = AtomicU64::new(0);
/// Stacks that are left for calls outside captures.
static OUTSIDE: AtomicU32 = AtomicU32::new(STACKS_OUTSIDE);
static RECORDER: Mutex<Option<Recorder>> = Mutex::new(None);
static CUPTI: OnceLock<Shared> = OnceLock::new();

struct Shared(Cupti);

// SAFETY: CUPTI's functions may be called from any thread; the subscriber is only handed back to them.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

thread_local! {
    /// The thread's id, if it was defined.
    static THREAD: Cell<Option<u32>> = const { Cell::new(None) };
    /// The number of the context whose device the thread asked for last.
    static CONTEXT: Cell<u32> = const { Cell::new(NO_CONTEXT) };
    /// The graph and stream that the thread launched, if nothing else that is recorded came after.
    static LAUNCHED: Cell<Option<(Option<u64>, Option<u64>)>> = const { Cell::new(None) };
    /// Whether the thread is inside this library.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// A call that came back.
pub struct Seen<'a> {
    pub function: u32,
    pub result: u32,
    pub symbol: Option<&'a [u8]>,
    /// The words of a kernel's parameters.
    pub given: Vec<u64>,
    pub context: *mut c_void,
    pub context_uid: u32,
}

struct Recorder {
    sink: Sink,
    buffer: Vec<u8>,
    texts: Known,
    stacks: Known,
    modules: Vec<Module>,
    threads: u32,
    contexts: Vec<u32>,
    allocations: Allocations,
    /// Streams that began a capture which is open; with the thread where the handle means another stream in each.
    origins: HashSet<(u64, Option<u32>)>,
    /// The launch that was written last, if nothing else was since, and how often it was repeated.
    launch: Option<(RawCall, u64)>,
}

pub fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}

/// The state of the windows: it changes whenever a capture is begun or ended.
pub fn windows() -> u64 {
    WINDOWS.load(Ordering::Relaxed)
}

/// Whether no capture was open in a state of the windows.
pub fn is_closed(windows: u64) -> bool {
    windows & 1 == 0
}

pub fn start(cupti: Cupti) -> Result<(), String> {
    let limit = match env::var(LIMIT) {
        Ok(limit) => limit.parse().map_err(|_| format!("{LIMIT} is no number of bytes"))?,
        Err(_) => DEFAULT_LIMIT,
    };
    let sink = Sink::open(FILE, limit)?;
    let mut recorder = Recorder {
        sink,
        buffer: Vec::new(),
        texts: Known::new(),
        stacks: Known::new(),
        modules: Vec::new(),
        threads: 0,
        contexts: Vec::new(),
        allocations: Allocations::default(),
        origins: HashSet::new(),
        launch: None,
    };
    let command: Vec<String> =
        env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let process = Record::Process {
        pid: std::process::id(),
        driver: driver::version(),
        cupti: cupti.version(),
        command: &command.join(" "),
    };
    let cannot = |_| "the trace cannot be written".to_owned();
    recorder.write(&process).map_err(cannot)?;
    for (id, entry) in entries().iter().enumerate() {
        let streams = |location: &Location| {
            matches!(location, Location::Word(Operand::Stream, _) | Location::Config(_))
        };
        let suffix = match (entry.per_thread, entry.function.operands.iter().any(streams)) {
            (false, _) => "",
            (true, true) => "_ptsz",
            (true, false) => "_ptds",
        };
        let name = format!("{}{suffix}", entry.function.name);
        recorder.write(&Record::Function { id: id as u32, name: &name }).map_err(cannot)?;
    }
    *RECORDER.lock().map_err(|_| "the recorder is broken")? = Some(recorder);
    let ids = entries().iter().map(|entry| match entry.per_thread {
        true => entry.function.per_thread,
        false => entry.function.id,
    });
    OFF.store(false, Ordering::Relaxed);
    // An older version knows fewer functions; the program cannot call those either.
    let known = ids.filter(|id| cupti.enable(*id)).count();
    if known == 0 {
        OFF.store(true, Ordering::Relaxed);
        return Err("CUPTI gives no callbacks".to_owned());
    }
    if CUPTI.set(Shared(cupti)).is_err() {
        return Err("the recorder was started twice".to_owned());
    }
    // SAFETY: both functions are of this library, which is never unloaded, and do not unwind.
    unsafe {
        libc::atexit(ended);
        libc::pthread_atfork(None, None, Some(forked));
    }
    Ok(())
}

/// A forked child shares the mapped file and may find the lock taken for ever: it records nothing.
extern "C" fn forked() {
    OFF.store(true, Ordering::Relaxed);
}

extern "C" fn ended() {
    stop(Stop::Ended);
}

/// Stops recording for good. Waits for at most a tenth of a second for a thread that is writing.
pub fn stop(why: Stop) {
    if OFF.swap(true, Ordering::Relaxed) {
        return;
    }
    for _ in 0..100 {
        match RECORDER.try_lock() {
            Ok(mut recorder) => return finish(recorder.take(), why),
            Err(TryLockError::Poisoned(poisoned)) => {
                return finish(poisoned.into_inner().take(), Stop::Failed);
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn finish(recorder: Option<Recorder>, why: Stop) {
    let Some(mut recorder) = recorder else { return };
    let result = match recorder.counts() {
        // There is always room to say that there is none.
        Ok(()) | Err(Refused::Full) => {
            let mut last = Vec::new();
            Record::Stopped(why).write(&mut last);
            recorder.sink.finish(&last)
        }
        Err(other) => Err(other),
    };
    // A trace that does not say why it ends counts as that of a killed program, which is readable.
    if let Err(Refused::System(error)) = result {
        say(&format!("the trace cannot be completed: {error}"));
    }
}

/// Records a call.
pub fn record(seen: &Seen<'_>, operands: Operands) {
    // What is called from here comes back to here through CUPTI.
    if BUSY.replace(true) {
        return;
    }
    let result = observe(seen, operands);
    match result {
        Ok(()) => {}
        Err(Refused::Full) => stop(Stop::Full),
        Err(Refused::System(error)) => {
            say(&format!("the trace cannot be written any further: {error}"));
            stop(Stop::Failed);
        }
    }
    BUSY.set(false);
}

/// Whatever may wait for another thread (the loader's lock, CUPTI's) is done before the recorder's lock is taken or after it is
/// given back: a thread that holds the loader's lock may be waiting for the recorder's.
fn observe(seen: &Seen<'_>, operands: Operands) -> Result<(), Refused> {
    let name = entries()[seen.function as usize].function.name;
    let failed = seen.result != 0 && seen.result != NOT_READY;
    let launch = name == "cuGraphLaunch" && !failed;
    let begins = name.starts_with("cuStreamBeginCapture");
    // Of launches in a row, only the first says anything new.
    let launched = launch.then_some((operands.get(Operand::Exec), operands.get(Operand::Stream)));
    let again = LAUNCHED.replace(launched) == launched && launch;
    let wanted = begins || failed || !is_closed(windows()) || (!again && left_outside());
    let (mut python, mut ranges, mut addresses) = (None, None, Vec::new());
    if wanted {
        python = python::stack();
        ranges = nvtx::open();
        native::stack(&mut addresses);
    }
    let device = device(seen);
    let Ok(mut guard) = RECORDER.lock() else { return Ok(()) };
    let Some(recorder) = guard.as_mut() else { return Ok(()) };
    let thread = recorder.thread()?;
    let context = recorder.context(seen, device)?;
    let (function, result) = (seen.function, seen.result);
    let mut call = RawCall {
        function,
        result,
        thread,
        context,
        python: None,
        native: None,
        ranges: None,
        operands,
    };
    if launch
        && let Some((last, times)) = &mut recorder.launch
        && *last == call
        && *times < MOST_REPEATED
    {
        *times += 1;
        return Ok(());
    }
    recorder.repeated()?;
    if launch {
        recorder.launch = Some((call, 0));
    }
    if let Some(symbol) = seen.symbol {
        let text = recorder.text(&String::from_utf8_lossy(symbol))?;
        call.operands.set(Operand::Name, text.into());
    }
    call.python = python.map(|stack| recorder.text(&stack)).transpose()?;
    call.ranges = ranges.map(|ranges| recorder.text(&ranges)).transpose()?;
    let unknown = !recorder.knows(&addresses);
    call.native = recorder.frames(addresses)?;
    let addresses = recorder.allocations.of(&seen.given);
    if !addresses.is_empty() {
        recorder.write(&Record::Given { addresses })?;
    }
    recorder.write(&Record::Call(call))?;
    if result == 0 {
        recorder.allocations.note(name, &operands);
    }
    recorder.note_windows(name, &call);
    drop(guard);
    let locked = |work: &dyn Fn(&mut Recorder) -> Result<(), Refused>| match RECORDER.lock() {
        Ok(mut guard) => guard.as_mut().map_or(Ok(()), work),
        Err(_) => Ok(()),
    };
    if unknown {
        let modules = native::modules();
        locked(&|recorder| recorder.define(&modules))?;
    }
    if name.starts_with("cuGraphInstantiate")
        && let Some((graph, exec)) = operands.get(Operand::Graph).zip(operands.get(Operand::Exec))
        && let Some(path) = driver::draw(graph)
    {
        locked(&|recorder| recorder.write(&Record::Graph { exec, path: &path }))?;
    }
    Ok(())
}

/// Takes one of the stacks that there are for calls outside captures.
fn left_outside() -> bool {
    let less = |left: u32| left.checked_sub(1);
    OUTSIDE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

/// The device of a call's context, if the thread has not told it before.
fn device(seen: &Seen<'_>) -> Option<u32> {
    if seen.context.is_null() || CONTEXT.get() == seen.context_uid {
        return None;
    }
    CONTEXT.set(seen.context_uid);
    CUPTI.get().and_then(|cupti| cupti.0.device(seen.context))
}

impl Recorder {
    fn write(&mut self, record: &Record<'_>) -> Result<(), Refused> {
        self.buffer.clear();
        record.write(&mut self.buffer);
        self.sink.write(&self.buffer)
    }

    /// Follows which captures are open. What is kept too long only records more.
    fn note_windows(&mut self, name: &str, call: &RawCall) {
        let Some(handle) = call.operands.get(Operand::Stream) else { return };
        let stream = match handle {
            ..=LAST_DEFAULT_STREAM => (LAST_DEFAULT_STREAM, Some(call.thread)),
            _ => (handle, None),
        };
        let changed = match name {
            _ if name.starts_with("cuStreamBeginCapture") && call.result == 0 => {
                self.origins.insert(stream)
            }
            "cuStreamEndCapture" | "cuStreamDestroy_v2" => self.origins.remove(&stream),
            _ => false,
        };
        if changed {
            let before = windows() >> 1;
            let open = u64::from(!self.origins.is_empty());
            WINDOWS.store((before + 1) << 1 | open, Ordering::Relaxed);
        }
    }

    /// Writes how often the last launch was repeated.
    fn repeated(&mut self) -> Result<(), Refused> {
        match self.launch.take() {
            Some((_, times @ 1..)) => self.write(&Record::Repeated { times }),
            _ => Ok(()),
        }
    }

    /// Writes what was only counted.
    fn counts(&mut self) -> Result<(), Refused> {
        self.repeated()?;
        for (function, entry) in entries().iter().enumerate() {
            let calls = entry.passed_over.swap(0, Ordering::Relaxed);
            if calls > 0 {
                self.write(&Record::PassedOver { function: function as u32, calls })?;
            }
        }
        Ok(())
    }

    fn thread(&mut self) -> Result<u32, Refused> {
        if let Some(id) = THREAD.get() {
            return Ok(id);
        }
        // SAFETY: no arguments, no failure.
        let (tid, pid) = unsafe { (libc::gettid(), libc::getpid()) };
        let mut name = [0u8; 16];
        // SAFETY: the kernel writes at most 16 bytes, the last of them a zero.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = String::from_utf8_lossy(&name[..end]).into_owned();
        let id = self.threads;
        self.write(&Record::Thread { id, tid: tid as u32, main: tid == pid, name: &name })?;
        self.threads += 1;
        THREAD.set(Some(id));
        Ok(id)
    }

    fn context(&mut self, seen: &Seen<'_>, device: Option<u32>) -> Result<u32, Refused> {
        let uid = if seen.context.is_null() { NO_CONTEXT } else { seen.context_uid };
        if let Some(id) = self.contexts.iter().position(|known| *known == uid) {
            return Ok(id as u32);
        }
        let id = self.contexts.len() as u32;
        self.write(&Record::Context { id, device })?;
        self.contexts.push(uid);
        Ok(id)
    }

    fn text(&mut self, text: &str) -> Result<u32, Refused> {
        let (id, new) = self.texts.id(text);
        if new {
            self.write(&Record::Text { id, text })?;
        }
        Ok(id)
    }

    /// The id of a native stack.
    fn frames(&mut self, addresses: Vec<u64>) -> Result<Option<u32>, Refused> {
        if addresses.is_empty() {
            return Ok(None);
        }
        let (id, new) = self.stacks.id(addresses.as_slice());
        if new {
            self.write(&Record::Frames { id, addresses })?;
        }
        Ok(Some(id))
    }

    /// Whether the modules of all these addresses are defined.
    fn knows(&self, addresses: &[u64]) -> bool {
        let known = |address: &u64| {
            self.modules.iter().any(|module| (module.start..module.end).contains(address))
        };
        self.modules.len() >= MOST_MODULES || addresses.iter().all(known)
    }

    fn define(&mut self, modules: &[Module]) -> Result<(), Refused> {
        for module in modules {
            if !self.modules.contains(module) {
                let Module { start, end, bias, ref path } = *module;
                self.write(&Record::Module { start, end, bias, path })?;
                self.modules.push(module.clone());
            }
        }
        Ok(())
    }
}
