//! The file that is written: a window of it is mapped, and moves on when it is full.
//!
//! What is in the window is in the file, whatever becomes of the program: no system call for each record, and nothing is lost when
//! it is killed. The blocks are allocated before they are mapped, so that a full disk is an error here and no signal there.

use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes that are mapped at a time; more than the longest record, and a multiple of every page size in use.
const WINDOW: usize = 1 << 20;
/// What is kept free for the record that says why the trace ends.
const RESERVE: u64 = 16;

/// An open file with a window of it in memory.
pub struct Sink {
    file: File,
    window: *mut u8,
    /// Where the window begins in the file.
    start: u64,
    /// Where the next record goes, from the window's start.
    at: usize,
    limit: u64,
}

// SAFETY: the window belongs to the sink alone, and is used through `&mut` only.
unsafe impl Send for Sink {}

/// Why a record was not written.
pub enum Refused {
    /// The file reached its limit.
    Full,
    /// The system has no room, or no memory.
    System(io::Error),
}

impl Sink {
    /// Opens the file that the variable names, or, if another process has that one, one beside it.
    pub fn open(variable: &str, limit: u64) -> Result<Self, String> {
        let named = env::var_os(variable).ok_or_else(|| format!("{variable} names no file"))?;
        let path = PathBuf::from(&named);
        let new = |path: &Path| {
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o644).open(path)
        };
        let file = new(&path).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                let mut beside = OsString::from(&named);
                beside.push(format!(".{}", std::process::id()));
                new(beside.as_ref())
            }
            _ => Err(error),
        });
        let file =
            file.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        let mut sink = Self { file, window: std::ptr::null_mut(), start: 0, at: 0, limit };
        sink.map(0).map_err(|error| format!("{} cannot be mapped: {error}", path.display()))?;
        // The header has no tag; a file that ends within it is no trace.
        sink.copy(&phonograph_trace::live::header());
        Ok(sink)
    }

    /// Appends a whole record.
    pub fn write(&mut self, record: &[u8]) -> Result<(), Refused> {
        if self.start + (self.at + record.len()) as u64 + RESERVE > self.limit {
            return Err(Refused::Full);
        }
        self.put(record)
    }

    /// Appends the last record, for which there is always room under the limit, and cuts the file to its length.
    pub fn finish(mut self, record: &[u8]) -> Result<(), Refused> {
        self.put(record)?;
        self.file.set_len(self.start + self.at as u64).map_err(Refused::System)
    }

    fn put(&mut self, record: &[u8]) -> Result<(), Refused> {
        if self.at + record.len() > WINDOW {
            let position = self.start + self.at as u64;
            let page = position & !0xffff;
            self.map(page).map_err(Refused::System)?;
            self.at = (position - page) as usize;
        }
        self.copy(record);
        Ok(())
    }

    /// Copies bytes to where the next record goes, their first byte last: until it is there, the trace ends before it.
    fn copy(&mut self, bytes: &[u8]) {
        let Some((first, rest)) = bytes.split_first() else { return };
        assert!(self.at + bytes.len() <= WINDOW, "a record is shorter than the window");
        // SAFETY: the window is mapped, readable, writable and large enough, as just asserted.
        unsafe {
            let place = self.window.add(self.at);
            std::ptr::copy_nonoverlapping(rest.as_ptr(), place.add(1), rest.len());
            AtomicU8::from_ptr(place).store(*first, Ordering::Release);
        }
        self.at += bytes.len();
    }

    fn map(&mut self, start: u64) -> io::Result<()> {
        let offset = libc::off_t::try_from(start).map_err(io::Error::other)?;
        let descriptor = self.file.as_raw_fd();
        // SAFETY: the descriptor is open.
        let answer = unsafe { libc::posix_fallocate(descriptor, offset, WINDOW as libc::off_t) };
        if answer != 0 {
            return Err(io::Error::from_raw_os_error(answer));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of an open file, at an offset that is a multiple of the page size.
        let window = unsafe {
            libc::mmap(std::ptr::null_mut(), WINDOW, access, libc::MAP_SHARED, descriptor, offset)
        };
        if window == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.unmap();
        (self.window, self.start) = (window.cast(), start);
        Ok(())
    }

    fn unmap(&mut self) {
        if !self.window.is_null() {
            // SAFETY: the mapping that `map` made, which nothing else refers to.
            unsafe { libc::munmap(self.window.cast(), WINDOW) };
            self.window = std::ptr::null_mut();
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.unmap();
    }
}
