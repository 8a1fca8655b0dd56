//! A view borrows its tensor.
use phonograph::prelude::*;

fn main() -> Result<()> {
    let device = Device::cpu(1)?;
    let view = {
        let y = api::zeros::<f32>([4]).sync_on(&device.stream(0))?;
        y.view()
    };
    view.to_vec().map(drop)
}
