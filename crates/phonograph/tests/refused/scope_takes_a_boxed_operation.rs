//! A boxed operation may be anything.
use phonograph::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    CapturedGraph::scope(&device.stream(0), |s| s.record(value(1).boxed()))?;
    Ok(())
}
