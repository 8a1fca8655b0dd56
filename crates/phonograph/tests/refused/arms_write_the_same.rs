//! The arms of a zip wait together, each with its borrows.
use phonograph::prelude::*;

kernel! {
    fn add(by: f32, y: &mut [f32]) |_e| { y = y + by; }
    fn sum(x: &[f32], y: &mut [f32]) |_e| { y = x + y; }
}

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    let mut y = api::zeros::<f32>([4]).sync_on(&device.stream(0))?;
    zip!(add(1.0, &mut y), add(2.0, &mut y)).sync_on(&device.stream(0))?;
    Ok(())
}
