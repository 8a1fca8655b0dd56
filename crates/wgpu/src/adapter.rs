//! The adapters that this machine's drivers offer.

use std::fmt;

use crate::wait::wait;

/// A GPU, or a driver that computes on the CPU, that a device can be opened on.
#[derive(Clone, Debug)]
pub struct Adapter(pub(crate) wgpu::Adapter);

/// All adapters of Vulkan, Metal and Direct3D 12, as their drivers list them; real GPUs before drivers that compute on
/// the CPU. Empty where there is no driver.
pub fn adapters() -> Vec<Adapter> {
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return Vec::new();
    }
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    // Debug layers are for those who ask for them in wgpu's environment variables.
    descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    let instance = wgpu::Instance::new(descriptor);
    let found = wait(instance.enumerate_adapters(wgpu::Backends::all()));
    let mut found: Vec<Adapter> = found.into_iter().map(Adapter).collect();
    found.sort_by_key(Adapter::is_software);
    found
}

impl Adapter {
    /// The name that the driver gives.
    pub fn name(&self) -> String {
        self.0.get_info().name
    }

    /// Whether it is the CPU that computes.
    pub fn is_software(&self) -> bool {
        self.0.get_info().device_type == wgpu::DeviceType::Cpu
    }
}

impl fmt::Display for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.0.get_info();
        write!(f, "{}, {:?} through {:?}", info.name, info.device_type, info.backend)?;
        if !info.driver_info.is_empty() {
            write!(f, ", driver {}", info.driver_info)?;
        }
        Ok(())
    }
}
