//! A device with its queue, and what has gone wrong on it.

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
            // Closing a device is told here as well.
            if reason != wgpu::DeviceLostReason::Destroyed {
                noted.note(GpuError::Lost(message));
            }
        });
        Ok(Arc::new(Self { device, queue, limits, failure }))
    }

    /// What has gone wrong since this was last asked. One atomic load where nothing has.
    pub fn check(&self) -> Result<(), GpuError> {
        if self.failure.any.load(Ordering::Acquire) {
            self.failure.take().map_or(Ok(()), Err)
        } else {
            Ok(())
        }
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
        self.check()?;
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
        let polled = self.device.poll(poll);
        self.check()?;
        polled.map(|_| ()).map_err(|error| GpuError::Internal(error.to_string()))
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
        self.wait(submission)?;
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
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
