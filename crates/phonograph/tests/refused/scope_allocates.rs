//! A scope takes nodes, and an allocation is none.
use phonograph::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    CapturedGraph::scope(&device.stream(0), |s| s.record(api::zeros::<f32>([4])))?;
    Ok(())
}
