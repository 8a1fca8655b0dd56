//! Streams and events.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstream_flags};

use crate::captures::relaxed;
use crate::device::Device;
use crate::error::{DriverError, call, log_drop};

/// A stream: work on it runs in the order it was issued. It does not synchronise with the legacy default stream. Clones
/// are handles of the same stream.
#[derive(Clone)]
pub struct Stream(Arc<StreamInner>);

struct StreamInner {
    handle: CUstream,
    device: Device,
}

// SAFETY: a stream handle may be used from any thread and from several at once.
unsafe impl Send for StreamInner {}
// SAFETY: as above.
unsafe impl Sync for StreamInner {}

impl Stream {
    /// A stream of normal priority.
    pub fn new(device: &Device) -> Result<Self, DriverError> {
        Self::with_priority(device, 0)
    }

    /// A stream with a priority from [`Device::priorities`]; the driver takes the nearest that there is.
    pub fn with_priority(device: &Device, priority: i32) -> Result<Self, DriverError> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is current.
        unsafe { call!(cuStreamCreateWithPriority(&mut handle, flags, priority)) }?;
        Ok(Self(Arc::new(StreamInner { handle, device: device.clone() })))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The driver's handle, for other users of the driver. Valid for as long as this stream.
    #[inline]
    pub fn handle(&self) -> CUstream {
        self.0.handle
    }

    /// The priority that the driver gave it.
    pub fn priority(&self) -> Result<i32, DriverError> {
        let _current = self.0.device.enter()?;
        let mut priority = 0;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamGetPriority(self.0.handle, &mut priority)) }?;
        Ok(priority)
    }

    /// Whether both handles are of the same stream.
    #[inline]
    pub(crate) fn is(&self, other: &Stream) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether somebody else has a handle of it.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Waits until everything on it is complete.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = self.0.device.enter()?;
        let _relaxed = relaxed()?;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamSynchronize(self.0.handle)) }
    }

    /// Orders what is issued from now on after what the event stands for.
    pub fn wait(&self, event: &Event) -> Result<(), DriverError> {
        let _current = self.0.device.enter()?;
        // SAFETY: both live.
        unsafe { event.wait_raw(self.0.handle) }
    }
}

impl Drop for StreamInner {
    fn drop(&mut self) {
        let current = self.device.enter();
        // SAFETY: the handle is this value's own. What is still running on it goes on to its end.
        log_drop(unsafe { call!(cuStreamDestroy_v2(self.handle)) });
        log_drop(current.map(drop));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.0.device).finish_non_exhaustive()
    }
}

/// A point in the work of a stream that others can wait for. Clones are handles of the same event.
#[derive(Clone)]
pub struct Event(Arc<EventInner>);

struct EventInner {
    handle: CUevent,
    device: Device,
}

// SAFETY: an event handle may be used from any thread and from several at once.
unsafe impl Send for EventInner {}
// SAFETY: as above.
unsafe impl Sync for EventInner {}

impl Event {
    /// An event that stands for nothing yet; waiting for it returns at once.
    pub fn new(device: &Device) -> Result<Self, DriverError> {
        // Without time stamps recording is cheaper.
        Self::with_flags(device, CUevent_flags::CU_EVENT_DISABLE_TIMING as u32)
    }

    /// As [`new`](Self::new), but a thread that waits for it sleeps until it is woken, where others spin.
    pub(crate) fn waited_for_asleep(device: &Device) -> Result<Self, DriverError> {
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        Self::with_flags(device, flags | CUevent_flags::CU_EVENT_BLOCKING_SYNC as u32)
    }

    /// An event that tells when it was recorded.
    pub(crate) fn with_time(device: &Device) -> Result<Self, DriverError> {
        Self::with_flags(device, CUevent_flags::CU_EVENT_DEFAULT as u32)
    }

    fn with_flags(device: &Device, flags: u32) -> Result<Self, DriverError> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: a context is current.
        unsafe { call!(cuEventCreate(&mut handle, flags)) }?;
        Ok(Self(Arc::new(EventInner { handle, device: device.clone() })))
    }

    /// The driver's handle, for other users of the driver. Valid for as long as this event.
    pub fn handle(&self) -> CUevent {
        self.0.handle
    }

    /// Makes it stand for everything issued to the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        let _current = self.0.device.enter()?;
        // SAFETY: both live.
        unsafe { self.record_raw(stream.0.handle) }
    }

    /// # Safety
    /// The handle is that of a stream of the event's context that lives, and a context is current.
    unsafe fn record_raw(&self, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { call!(cuEventRecord(self.0.handle, stream)) }
    }

    /// # Safety
    /// As for [`record_raw`](Self::record_raw), but the context may be another.
    unsafe fn wait_raw(&self, stream: CUstream) -> Result<(), DriverError> {
        // SAFETY: the caller's promise; 0 is the only plain flag.
        unsafe { call!(cuStreamWaitEvent(stream, self.0.handle, 0)) }
    }

    /// Waits until what it stands for is complete.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = self.0.device.enter()?;
        let _relaxed = relaxed()?;
        // SAFETY: the event lives.
        unsafe { call!(cuEventSynchronize(self.0.handle)) }
    }
}

/// What is issued to `later` from now on comes after what has been issued to `earlier` so far.
///
/// # Safety
/// The handles are those of streams of the device's context that live.
pub(crate) unsafe fn order(
    device: &Device,
    earlier: CUstream,
    later: CUstream,
) -> Result<(), DriverError> {
    let event = Event::new(device)?;
    let _current = device.enter()?;
    // SAFETY: the caller's promise.
    unsafe {
        event.record_raw(earlier)?;
        event.wait_raw(later)
    }
}

impl Drop for EventInner {
    fn drop(&mut self) {
        let current = self.device.enter();
        // SAFETY: the handle is this value's own. The driver frees a recorded event once it is complete.
        log_drop(unsafe { call!(cuEventDestroy_v2(self.handle)) });
        log_drop(current.map(drop));
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.0.device).finish_non_exhaustive()
    }
}
