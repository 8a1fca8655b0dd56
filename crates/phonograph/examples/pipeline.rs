//! An image pipeline that forks into three streams and joins: each colour is blurred and sharpened by itself, then they are
//! mixed to grey.
//!
//! `cargo run --release --example pipeline`, and with `-- --backend wgpu` on a GPU.

mod backend;

use backend::{Backend, Times};
use phonograph::prelude::*;

const HEIGHT: u64 = 48;
const WIDTH: u64 = 64;

kernel! {
    /// Mean of three neighbours.
    fn blur(a: &[f32], b: &[f32], c: &[f32], y: out [f32]) |_e| {
        y = (a + b + c) * (1.0 / 3.0);
    }
    /// y ← x + amount (x - blurred), within 0 and 1
    fn sharpen(amount: f32, x: &[f32], blurred: &[f32], y: out [f32]) |_e| {
        y = (x + amount * (x - blurred)).max(0.0).min(1.0);
    }
    /// Luminance of linear colours (ITU-R BT.709).
    fn mix(r: &[f32], g: &[f32], b: &[f32], y: out [f32]) |_e| {
        y = 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }
}

/// One colour: what comes in, between the passes, and what goes out.
struct Channel {
    image: Tensor<f32>,
    across: Tensor<f32>,
    down: Tensor<f32>,
    sharp: Tensor<f32>,
}

impl Channel {
    fn new(stream: &Stream, image: Vec<f32>) -> Result<Self> {
        let image = api::upload(image, [HEIGHT, WIDTH]).sync_on(stream)?;
        let copy = || api::dup(&image).sync_on(stream);
        Ok(Self { across: copy()?, down: copy()?, sharp: copy()?, image })
    }

    /// Blurs across and down (the border stays), then sharpens. Three nodes, one after another.
    fn enhance(&mut self, to: &impl Issue, amount: f32) -> Result<()> {
        let Self { image, across, down, sharp } = self;
        let columns = |from: u64| image.view().slice(1, from..from + WIDTH - 2);
        let inner = across.view_mut().slice(1, 1..WIDTH - 1)?;
        to.issue(blur(columns(0)?, columns(1)?, columns(2)?, inner))?;
        let rows = |from: u64| across.rows(from..from + HEIGHT - 2);
        let inner = down.view_mut().slice(0, 1..HEIGHT - 1)?;
        to.issue(blur(rows(0)?, rows(1)?, rows(2)?, inner))?;
        to.issue(sharpen(amount, &*image, &*down, sharp)).map(drop)
    }
}

/// A picture with edges, gradients and grain, the same every time.
fn picture(colour: u64) -> Vec<f32> {
    let pixel = |at: u64| {
        let (x, y) = (at % WIDTH, at / WIDTH);
        let edge = if (x / 9 + y / 7) % 2 == 0 { 0.6 } else { 0.1 };
        let grain = (at * 7919 + colour * 104_729) % 97;
        edge + x as f32 / 400.0 + grain as f32 / 970.0
    };
    (0..HEIGHT * WIDTH).map(pixel).collect()
}

/// The largest difference of a pixel between devices. No value here is as large as 1, so that each of the roundings of a pixel
/// is half a unit of 2^-23 of it, or of a sum of two or three; they come to less than ten such halves, on either device.
#[cfg(test)]
const TOLERANCE: f32 = 20.0 / (1 << 24) as f32;

struct Outcome {
    eager: Vec<f32>,
    replay: Vec<f32>,
    streams: usize,
    nodes: usize,
    times: Times,
}

/// Both ways, so many times.
fn run(device: &Device, rounds: u32) -> Result<Outcome> {
    let mut times = Times::new();
    let stream = device.stream(0);
    let channels = || -> Result<Vec<Channel>> {
        (0..3).map(|colour| Channel::new(&stream, picture(colour))).collect()
    };
    let mut grey = api::zeros::<f32>([HEIGHT, WIDTH]).sync_on(&stream)?;

    // Eagerly: each colour on a stream of its own; the mixing waits for all three, because it reads what they write.
    let mut colours = channels()?;
    for _ in 0..rounds {
        times.eagerly(|| {
            for (index, channel) in colours.iter_mut().enumerate() {
                channel.enhance(&device.stream(index as u32), 0.8)?;
            }
            let [r, g, b] = &colours[..] else { unreachable!("there are three") };
            mix(&r.sharp, &g.sharp, &b.sharp, &mut grey).sync_on(&device.stream(3)).map(drop)
        })?;
    }
    let eager = grey.to_vec()?;

    // Captured: the same calls. Nothing orders the colours, so they become branches.
    let mut colours = channels()?;
    let graph = CapturedGraph::scope(&stream, |s| {
        for channel in &mut colours {
            channel.enhance(s, 0.8)?;
        }
        let [r, g, b] = &colours[..] else { unreachable!("there are three") };
        s.record(mix(&r.sharp, &g.sharp, &b.sharp, &mut grey)).map(drop)
    })?;
    api::store(vec![0.0; (HEIGHT * WIDTH) as usize], &mut grey).sync_on(&stream)?;
    for _ in 0..rounds {
        times.replayed(|| graph.launch().sync_on(&stream))?;
    }
    let (streams, nodes) = (graph.plan().num_streams, graph.graph().node_count());
    Ok(Outcome { eager, replay: grey.to_vec()?, streams, nodes, times })
}

fn main() -> Result<()> {
    let Outcome { eager, replay, streams, nodes, times } = run(&Backend::asked_for().open(3)?, 20)?;
    let same = if eager == replay { "the same bits" } else { "different bits" };
    println!("{nodes} nodes on {streams} streams; eager and replay give {same}");
    times.tell("an image", 1);
    Ok(())
}

#[test]
fn three_colours_are_three_streams_and_replay_gives_the_eager_bits() -> Result<()> {
    let Outcome { eager, replay, streams, nodes, .. } = run(&Device::cpu(3)?, 1)?;
    assert_eq!((streams, nodes), (3, 10));
    assert_eq!(eager, replay);
    // Against the same arithmetic on the host, pixel by pixel.
    let (h, w) = (HEIGHT as usize, WIDTH as usize);
    let third = 1.0f32 / 3.0;
    let sharp: Vec<Vec<f32>> = (0..3)
        .map(|colour| {
            let image = picture(colour);
            let (mut across, mut down) = (image.clone(), image.clone());
            for at in (0..h * w).filter(|at| (1..w - 1).contains(&(at % w))) {
                across[at] = (image[at - 1] + image[at] + image[at + 1]) * third;
            }
            for at in w..(h - 1) * w {
                down[at] = (across[at - w] + across[at] + across[at + w]) * third;
            }
            let pixels = image.iter().zip(&down);
            pixels.map(|(x, blurred)| (x + 0.8 * (x - blurred)).clamp(0.0, 1.0)).collect()
        })
        .collect();
    for at in 0..h * w {
        let expected = sharp[0][at] * 0.2126 + sharp[1][at] * 0.7152 + sharp[2][at] * 0.0722;
        assert_eq!(replay[at], expected, "pixel {at}");
    }
    Ok(())
}

#[test]
fn other_devices_give_nearly_the_same_picture() -> Result<()> {
    let expected = run(&Device::cpu(1)?, 1)?;
    for device in backend::others() {
        let Outcome { eager, replay, nodes, .. } = run(&device, 1)?;
        assert_eq!((nodes, &eager), (10, &replay), "eager and replay give the same bits");
        for (at, (found, expected)) in replay.iter().zip(&expected.replay).enumerate() {
            assert!((found - expected).abs() <= TOLERANCE, "pixel {at}: {found}, not {expected}");
        }
    }
    Ok(())
}
