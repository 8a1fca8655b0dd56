//! A scope ends with its recording.
use phonograph::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    let mut kept = None;
    CapturedGraph::scope(&device.stream(0), |s| {
        kept = Some(s);
        Ok(())
    })?;
    Ok(())
}
