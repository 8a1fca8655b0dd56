//! What others hold too is not written.
use phonograph::prelude::*;

kernel! {
    fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; }
    fn sum(x: &[f32], y: &mut [f32]) |_e| { y = x + y; }
}

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    let y = std::sync::Arc::new(api::zeros::<f32>([4]).sync_on(&device.stream(0))?);
    add(1.0, y).sync_on(&device.stream(0))?;
    Ok(())
}
