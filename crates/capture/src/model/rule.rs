//! The rules that decide answers, each with its number and words. The code of a rule stands beside the same number.
//!
//! The numbers are those of the rule set that was fitted to recordings of a real driver. `R0` marks the few answers that no
//! recording decides; they follow the driver's documentation, and were asked of an H200 (driver 580) one by one.

use std::fmt;

macro_rules! rules {
    ($($name:ident $label:literal $words:literal,)*) => {
        /// A rule of stream capture.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs)]
        pub enum Rule { $($name,)* }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its number, such as `R9d`.
            pub fn number(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// What it says.
            pub fn words(self) -> &'static str {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

rules! {
    R1 "R1" "a begin opens a new, valid capture on a new graph; the stream's dependency set is empty",
    R1Legacy "R1" "the legacy stream cannot be captured",
    R2 "R2" "a stream that takes part in an open capture, valid or not, cannot begin another",
    R3 "R3" "a graph that an open capture is using cannot be captured into",
    R4 "R4" "a capture into a graph adds to it and starts with an empty dependency set",
    R5 "R5" "a capture that does not end well destroys its graph, the user's graph too",
    R6 "R6" "a node depends on the whole dependency set of its stream, which becomes just that node",
    R9a "R9a" "a stream that is not capturing has no capture to end",
    R9b "R9b" "a capture is ended on the stream that began it, not on one that was forked into it",
    R9c "R9c" "ending an invalid capture closes it and hands over no graph",
    R9d "R9d" "when a capture ends, the stream that began it must have waited for all captured work, directly or through other streams",
    R9e "R9e" "a capture that is not relaxed is ended by the thread that began it",
    R9f "R9f" "a capture whose work is all waited for ends and hands over its graph",
    R10 "R10" "nothing can be added to an invalid capture",
    R11 "R11" "work on a stream that is not capturing runs and is never unsafe",
    R12 "R12" "no capture can hold this call, so making it on a capturing stream breaks the capture",
    NeverCaptured "R12" "no capture can hold this call, and it breaks none either",
    LegacyBatch "R18" "a batch cannot be on the legacy stream",
    R13 "R13" "an event recorded in a capture is dead once that capture is closed or invalid, until it is recorded again",
    R14 "R14" "a record on a stream that is not capturing is an ordinary one",
    R15 "R15" "a record on a capturing stream remembers the capture and a copy of the dependency set; it makes no node",
    R16a "R16a" "waiting for an event that was never recorded, or outside captures for an ordinary one, has no effect on captures",
    R16b "R16b" "a capturing stream cannot wait for work from outside its capture",
    R16c "R16c" "the legacy stream cannot wait for captured work",
    R16d "R16d" "a stream that waits for a captured event joins that capture with the event's dependency set",
    R16e "R16e" "a wait inside one capture adds the event's dependency set to the stream's",
    R16f "R16f" "a wait must not merge two captures",
    R17a "R17a" "an external record or wait needs a capturing stream",
    R17b "R17b" "an external record or wait becomes a node and leaves the event as it is",
    R18 "R18" "a call on the legacy stream comes behind every blocking stream, so it cannot be mixed with a capture that a blocking stream takes part in",
    R19 "R19" "work on the legacy stream beside captures of nonblocking streams only runs, and is not captured",
    R20 "R20" "a potentially unsafe call is barred by every open capture that is not relaxed and was begun by the calling thread, or is global while the calling thread is in global mode",
    R21 "R21" "a potentially unsafe call that no capture bars has no effect on captures",
    R22 "R22" "an event that was last recorded in a live capture cannot be waited for or queried by the host",
    R23 "R23" "nothing may wait for the whole context while any capture is open",
    R24a "R24a" "an allocation on a stream that is not capturing comes from the pool",
    R24b "R24b" "an allocation on a capturing stream becomes a node, and the graph owns the memory",
    R25a "R25a" "outside captures only pool memory can be freed in stream order",
    R25b "R25b" "pool memory is freed in stream order",
    R25c "R25c" "a capture frees only what a graph that is there allocates: its own graph's if no graph has freed it, another graph's once, and nothing of an earlier capture into the same graph",
    R25d "R25d" "freeing a graph's allocation in a capture becomes a node",
    ElapsedCaptured "R22" "no time can be measured from or to an event that was last recorded in a live capture",
    R25e "R25e" "freeing null does nothing, in a valid capture too",
    R26a "R26a" "only a capturing stream has a dependency set to update",
    R26b "R26b" "setting the dependency set replaces it and takes the old set off the loose list",
    R26c "R26c" "adding to the dependency set makes it the union",
    R26x "R26" "a dependency set cannot come from another capture",
    R27 "R27" "a thread's mode may be exchanged at any time",
    R28 "R28" "a stream in no capture may be destroyed",
    R28a "R28a" "destroying the stream that began a capture closes the capture without a graph",
    R28b "R28b" "destroying a forked stream leaves the capture valid and its nodes in it",
    R29 "R29" "destroying an event affects no capture",
    FreesLaunched "R0" "what a launched graph allocated may be freed, at once or in stream order, once a launch",
    FreesUnlaunched "R0" "of what a graph allocates only what a launch has allocated and nothing has freed can be freed",
    Relaunch "R0" "a graph cannot be launched again while allocations of its last launch are not freed",
    Unseen "R0" "a call that is not in the trace broke the capture",
    Built "R0" "a graph that is built by hand takes nodes and edges at any time",
    BuildFrees "R0" "a graph frees only what a graph that is there allocates, and once",
    Bodies "R0" "an `if` has one body or two, a `while` one, a `switch` at least one",
    EdgeEnds "R0" "an edge leads from one node of a graph to another one of it",
    EdgeTwice "R0" "there is one edge at most from one node to another, whatever its data",
    WeakEdge "R0" "only an edge between kernels can be anything but full",
    Lossy "R0" "a query that has no room for edge data refuses if an edge has any",
    BodyHolds "R0" "a conditional's body holds kernels, copies without pageable memory, memsets, empty nodes, child graphs and conditionals, nothing else",
    ChildHolds "R0" "a child graph holds neither memory nodes nor conditionals",
    OneExecutable "R0" "a graph with memory nodes has one executable at a time",
    Circle "R0" "the edges of a graph must not lead in a circle",
    GraphInUse "R0" "a graph that an open capture adds to cannot be destroyed",
    Harmless "R0" "the call has nothing to do with captures",
    IsCapturing "R18" "whether the legacy stream is capturing cannot be answered while a blocking stream takes part in a capture",
    ExportsEvent "R0" "an event that was not created for other processes has no handle to give them",
    Dead "R0" "a stream or event that was destroyed, or a default stream that cannot be, is no valid handle",
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}
