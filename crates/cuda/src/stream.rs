//! Streams and events.

use std::fmt;
use std::ptr;

use cudarc::driver::sys::{CUevent, CUevent_flags, CUstream, CUstream_flags};

use crate::device::Device;
use crate::error::{DriverError, call, log_drop};

/// A stream: work on it runs in the order it was issued. It does not synchronise with the legacy default stream.
pub struct Stream {
    handle: CUstream,
    device: Device,
}

// SAFETY: a stream handle may be used from any thread and from several at once.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

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
        Ok(Self { handle, device: device.clone() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The driver's handle, for other users of the driver. Valid for as long as this stream.
    pub fn handle(&self) -> CUstream {
        self.handle
    }

    /// The priority that the driver gave it.
    pub fn priority(&self) -> Result<i32, DriverError> {
        let _current = self.device.enter()?;
        let mut priority = 0;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamGetPriority(self.handle, &mut priority)) }?;
        Ok(priority)
    }

    /// Waits until everything on it is complete.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: the stream lives.
        unsafe { call!(cuStreamSynchronize(self.handle)) }
    }

    /// Orders what is issued from now on after what the event stands for.
    pub fn wait(&self, event: &Event) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: both handles live; 0 is the only plain flag.
        unsafe { call!(cuStreamWaitEvent(self.handle, event.handle, 0)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let current = self.device.enter();
        // SAFETY: the handle is this value's own. What is still running on it goes on to its end.
        log_drop(unsafe { call!(cuStreamDestroy_v2(self.handle)) });
        log_drop(current.map(drop));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("device", &self.device).finish_non_exhaustive()
    }
}

/// A point in the work of a stream that others can wait for.
pub struct Event {
    handle: CUevent,
    device: Device,
}

// SAFETY: an event handle may be used from any thread and from several at once.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that stands for nothing yet; waiting for it returns at once.
    pub fn new(device: &Device) -> Result<Self, DriverError> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        // Without time stamps recording is cheaper, and nothing here measures with events.
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: a context is current.
        unsafe { call!(cuEventCreate(&mut handle, flags)) }?;
        Ok(Self { handle, device: device.clone() })
    }

    /// The driver's handle, for other users of the driver. Valid for as long as this event.
    pub fn handle(&self) -> CUevent {
        self.handle
    }

    /// Makes it stand for everything issued to the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: both handles live.
        unsafe { call!(cuEventRecord(self.handle, stream.handle)) }
    }

    /// Waits until what it stands for is complete.
    pub fn synchronize(&self) -> Result<(), DriverError> {
        let _current = self.device.enter()?;
        // SAFETY: the event lives.
        unsafe { call!(cuEventSynchronize(self.handle)) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let current = self.device.enter();
        // SAFETY: the handle is this value's own. The driver frees a recorded event once it is complete.
        log_drop(unsafe { call!(cuEventDestroy_v2(self.handle)) });
        log_drop(current.map(drop));
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("device", &self.device).finish_non_exhaustive()
    }
}
