//! A device with its queue, and what has gone wrong on it.
//!
//! wgpu tells errors in four ways: to the scope around a call, to a handler, to a callback when the device is lost, and by a
//! panic when the driver does not answer a wait. What comes of the last three is noted as a [`Failure`], which every call
//! here looks at; a call on a lost device does nothing and says nothing, so the loss is asked for as well.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::adapter::Adapter;
use crate::error::{GpuError, OpenError};
use crate::wait::wait;

/// What everything that belongs to a device shares, and is told apart by.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub limits: wgpu::Limits,
    failure: Arc<Failure>,
}

/// The first failure that nobody was waiting for.
#[derive(Debug, Default)]
struct Failure {
    /// Set once there is one, so that asking takes no lock.
    any: AtomicBool,
    first: Mutex<Option<GpuError>>,
}

impl Failure {
    fn note(&self, error: GpuError) {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*first, &error) {
            // A loss is the cause of all that comes with it.
            (Some(GpuError::Lost(_)), _) => {}
            (None, _) | (_, GpuError::Lost(_)) => *first = Some(error),
            _ => {}
        }
        self.any.store(true, Ordering::Release);
    }

    /// A loss is for ever; anything else is told once.
    fn take(&self) -> Option<GpuError> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(GpuError::Lost(_)) = &*first {
            return first.clone();
        }
        self.any.store(false, Ordering::Release);
        first.take()
    }
}

impl Gpu {
    pub fn open(adapter: &Adapter) -> Result<Arc<Self>, OpenError> {
        let flags = adapter.0.get_downlevel_capabilities().flags;
        if !flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
            return Err(OpenError::NoCompute { adapter: adapter.name() });
        }
        let limits = adapter.0.limits();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("phonograph"),
            required_limits: limits.clone(),
            ..Default::default()
        };
        let opened = wait(adapter.0.request_device(&descriptor));
        let (device, queue) = opened.map_err(|error| OpenError::Device {
            adapter: adapter.name(),
            message: error.to_string(),
        })?;
        let failure = Arc::new(Failure::default());
        let noted = failure.clone();
        device.on_uncaptured_error(Arc::new(move |error| noted.note(GpuError::from(error))));
        let noted = failure.clone();
        device.set_device_lost_callback(move |reason, message| {
            let destroyed = reason == wgpu::DeviceLostReason::Destroyed;
            let message = if destroyed { "it was destroyed".to_owned() } else { message };
            noted.note(GpuError::Lost(message));
        });
        Ok(Arc::new(Self { device, queue, limits, failure }))
    }

    /// What has gone wrong since this was last asked. One atomic load where nothing has.
    pub fn check(&self) -> Result<(), GpuError> {
        if self.failure.any.load(Ordering::Acquire) { self.look() } else { Ok(()) }
    }

    /// As [`check`](Self::check), having asked wgpu whether the device is lost.
    pub fn look(&self) -> Result<(), GpuError> {
        let polled = self.try_poll(wgpu::PollType::Poll);
        self.failure.take().map_or(polled, Err)
    }

    /// Does something and says what wgpu thought of it.
    pub fn scoped<T>(&self, work: impl FnOnce() -> T) -> Result<T, GpuError> {
        self.check()?;
        let filters = [
            wgpu::ErrorFilter::Internal,
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Validation,
        ];
        let mut scopes = filters.map(|filter| Some(self.device.push_error_scope(filter)));
        let done = work();
        let mut first = None;
        for scope in scopes.iter_mut().rev() {
            let popped = scope.take().map(|scope| wait(scope.pop()));
            first = first.or(popped.flatten());
        }
        self.look()?;
        first.map_or(Ok(done), |error| Err(error.into()))
    }

    /// Zeroed memory for at least so many bytes.
    pub fn buffer(&self, bytes: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, GpuError> {
        let size = bytes.checked_next_multiple_of(4).map_or(u64::MAX, |size| size.max(4));
        if size > self.limits.max_buffer_size {
            let most = self.limits.max_buffer_size;
            let message = format!("{bytes} bytes in one buffer; this device takes {most}");
            return Err(GpuError::OutOfMemory(message));
        }
        let descriptor =
            wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
        self.scoped(|| self.device.create_buffer(&descriptor))
    }

    /// Waits until a submission is done.
    pub fn wait(&self, submission: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission), timeout: None })
    }

    /// Waits until all submissions are done.
    pub fn wait_for_all(&self) -> Result<(), GpuError> {
        self.poll(wgpu::PollType::wait_indefinitely())
    }

    fn poll(&self, poll: wgpu::PollType) -> Result<(), GpuError> {
        let polled = self.try_poll(poll);
        // What the device refused was never submitted, and waiting for it tells nothing: wait for what was.
        let polled = polled.or_else(|error| {
            self.try_poll(wgpu::PollType::wait_indefinitely())?;
            Err(error)
        });
        self.check()?;
        polled
    }

    /// Polls, where wgpu panics if the driver has lost the device: it does so after its locks are given back.
    fn try_poll(&self, poll: wgpu::PollType) -> Result<(), GpuError> {
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(poll))) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(GpuError::Internal(error.to_string())),
            Err(_) => Err(GpuError::Lost("the driver does not answer".to_owned())),
        }
    }

    /// The bytes of a mappable buffer after a submission.
    pub fn mapped<T>(
        &self,
        buffer: &wgpu::Buffer,
        submission: wgpu::SubmissionIndex,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, GpuError> {
        let failed = |error: &dyn std::fmt::Display| GpuError::Internal(error.to_string());
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        buffer.map_async(wgpu::MapMode::Read, .., move |result| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        });
        let waited = self.wait(submission);
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Err(error), Some(Ok(()))) = (&waited, &answer) {
            // Something else has failed meanwhile. The next one who maps it must find it unmapped.
            buffer.unmap();
            return Err(error.clone());
        }
        waited?;
        match answer {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(failed(&error)),
            None => return Err(failed(&"a buffer was not mapped when its submission was done")),
        }
        let view = buffer.get_mapped_range(..).map_err(|error| failed(&error))?;
        let value = read(&view);
        drop(view);
        buffer.unmap();
        Ok(value)
    }
}
