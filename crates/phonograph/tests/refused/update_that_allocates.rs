//! An update is what a replay could do: it does not allocate.
use phonograph::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    let graph = value(()).graph_on(&device.stream(0))?;
    graph.update(api::zeros::<f32>([4]).map(drop))
}
