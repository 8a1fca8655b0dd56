//! How much a file from elsewhere may ask for. A file is hostile until it is parsed; these bounds keep its cost proportional to its size.

/// Longest script or recording that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 30;
/// Longest line of a script, in bytes.
pub const MAX_LINE: usize = 1 << 16;
/// Longest name of a stream, event, thread, graph, kernel or piece of memory, in bytes.
pub const MAX_NAME: usize = 256;
/// Most streams or events that one recorded program may declare.
pub const MAX_DECLARED: usize = 1 << 16;
