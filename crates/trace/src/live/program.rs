//! A whole trace: the calls of a program with names for its handles, and where each was made.
//!
//! Handles are reused by the driver, so a name stands for what a handle meant at the time: a stream, graph or piece of memory that is
//! made anew at an old handle gets a name of its own (events keep theirs; the model forgets their record when they are made anew).

use std::collections::HashMap;
use std::sync::Arc;

use super::memory::Space;
use super::read::{LiveError, Reader};
use super::record::{Operand, RawCall, Record, Stop};
use crate::{
    Build, Call, CuResult, EventId, Flags, Function, GraphId, MemoryId, Mode, Names, Script,
    Stream, StreamId, StreamKind, ThreadId, Work,
};

/// A program's calls and what is known about each.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The calls that captures could notice, with names for what they name.
    pub script: Script,
    /// Where each call of the script was made, by its position.
    pub sites: Vec<Site>,
    /// Which memory kernels are given addresses in: positions of their calls, in order, each with the memory.
    pub given: Vec<(u32, MemoryId)>,
    /// Calls that failed for reasons which have nothing to do with captures.
    pub failed: Vec<Site>,
    /// How the program was started, with spaces between the words.
    pub command: String,
    /// The driver's version, such as 13000; 0 if it is not known.
    pub driver: u32,
    /// Functions with the number of their calls that succeeded outside captures and are only counted.
    pub passed_over: Vec<(String, u64)>,
    /// Drawings of executable graphs: how many calls of the script came before, and the path.
    pub drawings: Vec<(u32, String)>,
    /// Why the trace ends; `None` if the program was killed.
    pub stop: Option<Stop>,
    /// Libraries and executables that native frames lie in.
    pub modules: Vec<Module>,
    texts: Vec<Arc<str>>,
    frames: Vec<Vec<u64>>,
    functions: Vec<String>,
    devices: Vec<Option<u32>>,
}

/// Where and how a call was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// The call as it was seen.
    pub raw: RawCall,
    /// How often it was made again, directly after.
    pub repeated: u64,
}

/// A library or executable in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Module {
    /// Its addresses.
    pub range: std::ops::Range<u64>,
    /// What is added to an address in the file to get the one in memory.
    pub bias: u64,
    /// Its file.
    pub path: String,
}

impl Trace {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// [`LiveError`] with the place of the first record that is not well formed.
    pub fn read(bytes: &[u8]) -> Result<Self, LiveError> {
        let mut trace = Self {
            script: Script { names: Names::new(), calls: Vec::new() },
            sites: Vec::new(),
            given: Vec::new(),
            failed: Vec::new(),
            command: String::new(),
            driver: 0,
            passed_over: Vec::new(),
            drawings: Vec::new(),
            stop: None,
            modules: Vec::new(),
            texts: Vec::new(),
            frames: Vec::new(),
            functions: Vec::new(),
            devices: Vec::new(),
        };
        let mut handles = Handles::default();
        let mut passed_over = HashMap::new();
        let mut reader = Reader::new(bytes)?;
        loop {
            let at = reader.at();
            let Some(record) = reader.next().transpose()? else { break };
            let order = |what, id, len: usize| match id as usize == len {
                true => Ok(()),
                false => Err(LiveError::Undefined { at, what, id: len as u32 }),
            };
            match record {
                Record::Process { driver, command, .. } => {
                    trace.driver = driver;
                    command.clone_into(&mut trace.command);
                }
                Record::Function { id, name } => {
                    order("function", id, trace.functions.len())?;
                    trace.functions.push(name.to_owned());
                }
                Record::Thread { id, main, name, .. } => {
                    order("thread", id, handles.threads.len())?;
                    // As names are in scripts, whatever the program calls it.
                    let plain = |c: char| if c.is_alphanumeric() { c } else { '_' };
                    let named =
                        format!("thread{id}:{}", name.chars().map(plain).collect::<String>());
                    let thread = match main {
                        true => None,
                        false => trace.script.names.declare_thread(&named),
                    };
                    handles.threads.push(thread.unwrap_or(ThreadId(0)));
                }
                Record::Context { id, device } => {
                    order("context", id, trace.devices.len())?;
                    trace.devices.push(device);
                }
                Record::Text { id, text } => {
                    order("text", id, trace.texts.len())?;
                    trace.texts.push(text.into());
                }
                Record::Frames { id, addresses } => {
                    order("stack", id, trace.frames.len())?;
                    trace.frames.push(addresses);
                }
                Record::Module { start, end, bias, path } => {
                    trace.modules.push(Module { range: start..end, bias, path: path.to_owned() });
                }
                Record::Given { addresses } => handles.given = addresses,
                Record::Call(raw) => trace.call(at, raw, &mut handles)?,
                Record::Repeated { times } => {
                    if let Some(site) = trace.sites.last_mut() {
                        site.repeated = site.repeated.saturating_add(times);
                    }
                }
                Record::PassedOver { function, calls } => {
                    let name = defined(at, "function", function, &trace.functions)?;
                    let at = *passed_over.entry(function).or_insert(trace.passed_over.len());
                    match trace.passed_over.get_mut(at) {
                        Some((_, sum)) => *sum = sum.saturating_add(calls),
                        None => trace.passed_over.push((name.clone(), calls)),
                    }
                }
                Record::Graph { path, .. } => {
                    trace.drawings.push((trace.script.calls.len() as u32, path.to_owned()));
                }
                Record::Stopped(stop) => trace.stop = Some(stop),
            }
        }
        Ok(trace)
    }

    /// The driver function of a call, as the driver spells it.
    pub fn function(&self, site: &Site) -> &str {
        &self.functions[site.raw.function as usize]
    }

    /// The Python stack of a call, innermost line first.
    pub fn python(&self, site: &Site) -> Option<&str> {
        site.raw.python.map(|id| &*self.texts[id as usize])
    }

    /// The ranges that were open around a call, outermost first.
    pub fn ranges(&self, site: &Site) -> Option<&str> {
        site.raw.ranges.map(|id| &*self.texts[id as usize])
    }

    /// The return addresses of a call, innermost first.
    pub fn native(&self, site: &Site) -> &[u64] {
        site.raw.native.map_or(&[], |id| &self.frames[id as usize])
    }

    /// The device of the context that was current.
    pub fn device(&self, site: &Site) -> Option<u32> {
        self.devices[site.raw.context as usize]
    }

    fn call(&mut self, at: usize, raw: RawCall, handles: &mut Handles) -> Result<(), LiveError> {
        let name = defined(at, "function", raw.function, &self.functions)?;
        let thread = *defined(at, "thread", raw.thread, &handles.threads)?;
        let device = *defined(at, "context", raw.context, &self.devices)?;
        for text in [raw.python, raw.ranges].into_iter().flatten() {
            defined(at, "text", text, &self.texts)?;
        }
        if let Some(native) = raw.native {
            defined(at, "stack", native, &self.frames)?;
        }
        let kernel = match raw.operands.get(Operand::Name) {
            Some(id) => {
                let id = u32::try_from(id).unwrap_or(u32::MAX);
                Some(defined(at, "text", id, &self.texts)?)
            }
            None => None,
        };
        let result = CuResult(raw.result);
        let site = Site { raw, repeated: 0 };
        let known = match name.as_str() {
            "cuGreenCtxStreamCreate" => Some(Function::StreamCreateWithPriority),
            name => Function::from_name(name),
        };
        let Some(function) = known else {
            if !result.is_success() {
                self.failed.push(site);
            }
            return Ok(());
        };
        if unrelated(result) {
            self.failed.push(site);
            return Ok(());
        }
        let per_thread = name.ends_with("_ptsz");
        if name.ends_with("_ptds") && result.is_success() {
            // It works on the default stream of the thread, which no capture of another one notices.
            return Ok(());
        }
        let seen = Seen { raw: &raw, function, thread, result, per_thread, kernel, device };
        let given = std::mem::take(&mut handles.given);
        if let Some(call) = handles.call(&seen, &mut self.script.names) {
            let at = self.script.calls.len() as u32;
            let memory = given.iter().filter_map(|address| handles.memory.find(*address));
            self.given.extend(memory.map(|memory| (at, memory)));
            self.script.calls.push(call);
            self.sites.push(site);
        }
        Ok(())
    }
}

/// Whether a result says that the call failed for a reason which has nothing to do with captures, so that it had no effect on them.
fn unrelated(result: CuResult) -> bool {
    let related = [
        CuResult::SUCCESS,
        CuResult::INVALID_VALUE,
        CuResult::INVALID_HANDLE,
        CuResult::ILLEGAL_STATE,
        CuResult::NOT_READY,
        CuResult::LOSSY_QUERY,
        CuResult::NOT_PERMITTED,
        CuResult::NOT_SUPPORTED,
    ];
    !(related.contains(&result) || (900..=910).contains(&result.0))
}

fn defined<'a, T>(
    at: usize,
    what: &'static str,
    id: u32,
    table: &'a [T],
) -> Result<&'a T, LiveError> {
    table.get(id as usize).ok_or(LiveError::Undefined { at, what, id })
}

/// A call before its handles have names.
struct Seen<'a> {
    raw: &'a RawCall,
    function: Function,
    thread: ThreadId,
    result: CuResult,
    per_thread: bool,
    kernel: Option<&'a Arc<str>>,
    device: Option<u32>,
}

impl Seen<'_> {
    fn get(&self, operand: Operand) -> Option<u64> {
        self.raw.operands.get(operand)
    }
}

/// What handles mean at this point of the program.
#[derive(Default)]
struct Handles {
    threads: Vec<ThreadId>,
    streams: HashMap<u64, StreamId>,
    events: HashMap<u64, EventId>,
    graphs: HashMap<u64, GraphId>,
    execs: HashMap<u64, GraphId>,
    memory: Space,
    /// What the next call's kernel is given.
    given: Vec<u64>,
    made: [u32; 4],
}

/// Kinds of things that get names with numbers.
#[derive(Clone, Copy)]
enum Named {
    Stream,
    Event,
    Graph,
    Memory,
}

impl Handles {
    fn fresh(&mut self, named: Named) -> String {
        let count = &mut self.made[named as usize];
        *count += 1;
        let word = ["stream", "event", "graph", "mem"][named as usize];
        format!("{word}{count}")
    }

    /// The call with ids for its handles; `None` if captures cannot notice it or not enough is known about it.
    fn call(&mut self, seen: &Seen<'_>, names: &mut Names) -> Option<Call> {
        use Function as F;
        let mut call =
            Call { thread: seen.thread, result: Some(seen.result), ..Call::new(seen.function) };
        let success = seen.result.is_success();
        match seen.function {
            F::StreamCreate | F::StreamCreateWithPriority => {
                if !success {
                    return None;
                }
                let flags = seen.get(Operand::Flags).unwrap_or(0);
                let kind = match flags & 1 {
                    0 => StreamKind::Blocking,
                    _ => StreamKind::NonBlocking,
                };
                self.make_stream(seen.get(Operand::Stream)?, kind, seen, names)?;
            }
            F::EventCreate if !success => return None,
            F::StreamEndCapture | F::GraphCreate | F::GraphClone if success => {
                let graph = names.declare_graph(&self.fresh(Named::Graph))?;
                self.graphs.insert(seen.get(Operand::Graph)?, graph);
            }
            // Its new dependencies are nodes, which have no names here.
            F::StreamUpdateCaptureDependencies => return None,
            // Nodes of graphs that the program builds itself have no names either, and conditional ones no bodies.
            F::GraphAddNode | F::GraphAddDependencies => return None,
            _ => {}
        }
        if let Some(handle) = seen.get(Operand::Stream) {
            call.stream = Some(self.stream(handle, seen, names)?);
        }
        if let Some(handle) = seen.get(Operand::Event) {
            call.event = Some(match self.events.get(&handle) {
                Some(event) => *event,
                None => {
                    let event = names.declare_event(&self.fresh(Named::Event))?;
                    self.events.insert(handle, event);
                    event
                }
            });
        }
        if let Some(handle) = seen.get(Operand::Graph) {
            call.graph = Some(self.graph(handle, names)?);
        }
        call.mode = seen.get(Operand::Mode).and_then(mode);
        call.flags = self.flags(seen);
        if let Some(kernel) = seen.kernel {
            call.work = Some(Box::new(Work { name: kernel.clone(), ..Work::default() }));
        }
        self.memory(seen, &mut call, names)?;
        match seen.function {
            F::StreamDestroy if success => {
                self.streams.remove(&seen.get(Operand::Stream)?);
            }
            F::GraphInstantiate | F::GraphInstantiateWithFlags | F::GraphInstantiateWithParams
                if success =>
            {
                let (exec, graph) = seen.get(Operand::Exec).zip(call.graph)?;
                self.execs.insert(exec, graph);
            }
            F::GraphLaunch | F::GraphUpload | F::GraphExecDestroy => {
                call.graph =
                    seen.get(Operand::Exec).and_then(|exec| self.execs.get(&exec).copied());
                if seen.function == F::GraphExecDestroy && success {
                    seen.get(Operand::Exec).map(|exec| self.execs.remove(&exec));
                }
            }
            F::GraphDestroy if success => {
                self.graphs.remove(&seen.get(Operand::Graph)?);
            }
            F::GraphExecUpdate => {
                // The answer is about the two graphs, not about captures.
                call.result = None;
            }
            F::GraphAddChildGraphNode => {
                let inner = self.graph(seen.get(Operand::Child)?, names)?;
                call.build = Some(Box::new(Build { inner: vec![inner], ..Build::default() }));
            }
            _ => {}
        }
        Some(call)
    }

    fn make_stream(
        &mut self,
        handle: u64,
        kind: StreamKind,
        seen: &Seen<'_>,
        names: &mut Names,
    ) -> Option<StreamId> {
        let id = names.declare_stream(&self.fresh(Named::Stream), kind)?;
        if let Some(device) = seen.device {
            names.set_device(id, device);
        }
        self.streams.insert(handle, id);
        Some(id)
    }

    fn stream(&mut self, handle: u64, seen: &Seen<'_>, names: &mut Names) -> Option<Stream> {
        match handle {
            0 if seen.per_thread => return Some(Stream::PerThread),
            0 | 1 => return Some(Stream::Legacy),
            2 => return Some(Stream::PerThread),
            _ => {}
        }
        let known = self.streams.get(&handle).copied();
        // One whose creation was not seen: nothing says that the legacy stream would wait for it.
        let id = match known {
            Some(id) => id,
            None => self.make_stream(handle, StreamKind::NonBlocking, seen, names)?,
        };
        Some(Stream::Created(id))
    }

    fn graph(&mut self, handle: u64, names: &mut Names) -> Option<GraphId> {
        if let Some(graph) = self.graphs.get(&handle) {
            return Some(*graph);
        }
        let graph = names.declare_graph(&self.fresh(Named::Graph))?;
        self.graphs.insert(handle, graph);
        Some(graph)
    }

    fn flags(&self, seen: &Seen<'_>) -> Flags {
        let set = |bit: u64| seen.get(Operand::Flags).is_some_and(|flags| flags & bit != 0);
        let mut flags = Flags::NONE;
        match seen.function {
            Function::StreamWaitEvent | Function::EventRecordWithFlags => flags.external = set(1),
            Function::LaunchKernelEx => flags.programmatic = set(1),
            Function::GraphInstantiateWithFlags => flags.auto_free = set(1),
            _ => {}
        }
        if seen.get(Operand::Bytes) == Some(0) {
            flags.no_bytes = true;
        }
        let host = match seen.function {
            Function::MemcpyHtoDAsync => seen.get(Operand::Source),
            Function::MemcpyDtoHAsync => seen.get(Operand::Memory),
            _ => None,
        };
        flags.pageable = host.is_some_and(|address| self.memory.find(address).is_none());
        flags
    }

    /// Allocations and frees, and which memory work touches.
    fn memory(&mut self, seen: &Seen<'_>, call: &mut Call, names: &mut Names) -> Option<()> {
        use Function as F;
        let (address, source) = (seen.get(Operand::Memory), seen.get(Operand::Source));
        let bytes = seen.get(Operand::Bytes).unwrap_or(1);
        let success = seen.result.is_success();
        let allocates = matches!(
            seen.function,
            F::MemAlloc
                | F::MemAllocPitch
                | F::MemAllocAsync
                | F::MemAllocFromPoolAsync
                | F::MemAllocHost
                | F::MemHostAlloc
                | F::MemHostRegister
                | F::MemAllocManaged
                | F::MemMap
        );
        if allocates {
            if success && let Some(address) = address {
                let memory =
                    names.declare_memory(&self.fresh(Named::Memory), bytes.min(1 << 56))?;
                self.memory.insert(address, bytes, memory);
                call.memory = Some(memory);
            }
            return Some(());
        }
        match seen.function {
            F::MemFree | F::MemFreeHost | F::MemHostUnregister | F::MemFreeAsync | F::MemUnmap => {
                let Some(address) = address.filter(|address| *address != 0) else {
                    // Freeing nothing does nothing, unless a capture bars even that.
                    return (!success).then_some(());
                };
                call.memory = Some(match self.memory.find(address) {
                    Some(memory) => memory,
                    None => names.memory(&self.fresh(Named::Memory))?,
                });
                if success {
                    self.memory.remove(address);
                }
            }
            _ => {
                let find = |address: Option<u64>| -> Vec<MemoryId> {
                    address.and_then(|address| self.memory.find(address)).into_iter().collect()
                };
                let (reads, writes) = (find(source), find(address));
                if !(reads.is_empty() && writes.is_empty()) {
                    let work = call.work.get_or_insert_default();
                    work.reads = reads;
                    work.writes = writes;
                }
            }
        }
        Some(())
    }
}

fn mode(number: u64) -> Option<Mode> {
    match number {
        0 => Some(Mode::Global),
        1 => Some(Mode::ThreadLocal),
        2 => Some(Mode::Relaxed),
        _ => None,
    }
}
