//! A kernel assigns to each tensor that it writes.
use phonograph::prelude::*;

kernel! {
    fn forgets(x: &[f32], y: out [f32], z: out [f32]) |_e| { y = x; }
}

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    let make = || api::zeros::<f32>([4]).sync_on(&device.stream(0));
    forgets(make()?, make()?, make()?).sync_on(&device.stream(0)).map(drop)
}
