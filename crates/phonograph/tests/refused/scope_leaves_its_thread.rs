//! The lock is the thread's, so the scope stays on it.
use phonograph::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    CapturedGraph::scope(&device.stream(0), |s| {
        std::thread::scope(|threads| {
            threads.spawn(|| s.record(value(1)));
        });
        Ok(())
    })?;
    Ok(())
}
