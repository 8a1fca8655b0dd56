//! Greedy decoding with a small transformer: keys and values are cached in place, the position is a slot, and every length of
//! the cache has a graph of its own.
//!
//! `cargo run --release --example decode`, and with `-- --backend wgpu` on a GPU.

mod backend;

use backend::{Backend, Times};
use phonograph::IntoSlot;
use phonograph::kernels::expr;
use phonograph::prelude::*;

const WIDTH: u64 = 16;
const HIDDEN: u64 = 32;
const VOCABULARY: u64 = 32;
const LAYERS: usize = 2;
/// Tokens that the caches hold.
const LENGTH: u64 = 48;
/// How much of the caches a step looks at: the smallest of these that holds its position.
const BUCKETS: [u64; 3] = [8, 16, 48];

kernel! {
    /// Puts a row at a position.
    fn put(position: slot u32, row: &[f32], rows: &mut [f32]) |e| {
        rows = e.index(0).equal(position).select(row, rows);
    }
    /// Where the step is, for those who look it up.
    fn here(position: slot u32, at: out [u32]) |_e| { at = position; }
    /// Scores of the past and the present; the future has none.
    fn mask(position: slot u32, scores: &mut [f32]) |e| {
        scores = e.index(1).less_equal(position).select(scores, e.f32(-1e30));
    }
}

struct Layer {
    /// Query, key, value, output: `[WIDTH, WIDTH]` each.
    attention: [Tensor<f32>; 4],
    up: Tensor<f32>,
    down: Tensor<f32>,
    keys: Tensor<f32>,
    values: Tensor<f32>,
}

struct Decoder {
    embedding: Tensor<f32>,
    positions: Tensor<f32>,
    head: Tensor<f32>,
    layers: Vec<Layer>,
    /// The last token; a step replaces it by the next one.
    token: Tensor<i32>,
    at: Tensor<u32>,
    x: Tensor<f32>,
    q: Tensor<f32>,
    k: Tensor<f32>,
    v: Tensor<f32>,
    scores: Tensor<f32>,
}

/// Weights without randomness: the fractional parts of multiples of the golden ratio, centred.
fn weights(stream: &Stream, extents: [u64; 2], seed: u64, scale: f32) -> Result<Tensor<f32>> {
    let count = extents[0] * extents[1];
    let draw = |at: u64| ((at + 977 * seed) as f64 * 0.618_033_988_749_895).fract() as f32 - 0.5;
    api::upload((0..count).map(|at| scale * draw(at)).collect::<Vec<_>>(), extents).sync_on(stream)
}

impl Decoder {
    fn new(stream: &Stream) -> Result<Self> {
        let zeros = |extents: [u64; 2]| api::zeros::<f32>(extents).sync_on(stream);
        let layer = |index: usize| -> Result<Layer> {
            let seed = 10 * index as u64;
            let square = |which| weights(stream, [WIDTH, WIDTH], seed + which, 0.9);
            Ok(Layer {
                attention: [square(1)?, square(2)?, square(3)?, square(4)?],
                up: weights(stream, [WIDTH, HIDDEN], seed + 5, 0.9)?,
                down: weights(stream, [HIDDEN, WIDTH], seed + 6, 0.9)?,
                keys: zeros([LENGTH, WIDTH])?,
                values: zeros([LENGTH, WIDTH])?,
            })
        };
        Ok(Self {
            embedding: weights(stream, [VOCABULARY, WIDTH], 99, 4.0)?,
            positions: weights(stream, [LENGTH, WIDTH], 98, 4.0)?,
            head: weights(stream, [WIDTH, VOCABULARY], 97, 1.0)?,
            layers: (0..LAYERS).map(layer).collect::<Result<_>>()?,
            token: api::full([1], 3i32).sync_on(stream)?,
            at: api::zeros([1]).sync_on(stream)?,
            x: zeros([1, WIDTH])?,
            q: zeros([1, WIDTH])?,
            k: zeros([1, WIDTH])?,
            v: zeros([1, WIDTH])?,
            scores: zeros([1, LENGTH])?,
        })
    }

    /// One token, looking at `bucket` positions of the caches.
    fn step(
        &mut self,
        to: &impl Issue,
        bucket: u64,
        position: impl IntoSlot<u32> + Copy + Send,
    ) -> Result<()> {
        let Self { embedding, positions, head, layers, token, at, x, q, k, v, scores } = self;
        let mut scores = scores.view_mut().slice(1, 0..bucket)?;
        to.issue(here(position, &mut *at))?;
        let operands = (&*embedding, &*token, &*positions, &*at, &mut *x);
        to.issue(compose("embed", operands, |ops, [words, token, places, at, x]| {
            let word = ops.gather("word", words, token)?;
            let place = ops.gather("place", places, at)?;
            ops.map_into("x", expr::binary(|_, a, b| a + b), &[word, place], &[], &[x]).map(drop)
        }))?;
        for layer in layers {
            let [wq, wk, wv, wo] = &layer.attention;
            to.issue(zip!(
                api::matmul(&*x, wq, &mut *q),
                api::matmul(&*x, wk, &mut *k),
                api::matmul(&*x, wv, &mut *v),
            ))?;
            to.issue(put(position, &*k, layer.keys.view_mut().slice(0, 0..bucket)?))?;
            to.issue(put(position, &*v, layer.values.view_mut().slice(0, 0..bucket)?))?;
            let keys = layer.keys.rows(0..bucket)?.transpose(0, 1)?;
            to.issue(api::matmul(&*q, keys, &mut scores))?;
            to.issue(mask(position, &mut scores))?;
            let values = layer.values.rows(0..bucket)?;
            let operands = (&scores, values, wo, &layer.up, &layer.down, &mut *x);
            to.issue(compose("mix", operands, |ops, [scores, values, wo, up, down, x]| {
                let scaled = ops.scale("scaled", scores, (WIDTH as f32).sqrt().recip())?;
                let shares = ops.softmax("shares", scaled)?;
                let seen = ops.matmul("seen", shares, values)?;
                let mixed = ops.matmul("mixed", seen, wo)?;
                let after = ops.add("after", x, mixed)?;
                let inner = ops.matmul("inner", after, up)?;
                let hidden = ops.relu("hidden", inner)?;
                let out = ops.matmul("out", hidden, down)?;
                ops.map_into("x", expr::binary(|_, a, b| a + b), &[after, out], &[], &[x]).map(drop)
            }))?;
        }
        to.issue(compose("choose", (&*head, &*x, token), |ops, [head, x, token]| {
            let logits = ops.matmul("logits", x, head)?;
            let best = ops.argmax("best", logits, 1)?;
            ops.map_into("token", expr::identity(best.dtype), &[best], &[], &[token]).map(drop)
        }))
        .map(drop)
    }

    fn caches(&self) -> Result<Vec<Vec<f32>>> {
        let caches = self.layers.iter().flat_map(|layer| [&layer.keys, &layer.values]);
        caches.map(Tensor::to_vec).collect()
    }
}

fn bucket_of(position: u64) -> Option<usize> {
    BUCKETS.iter().position(|&bucket| position < bucket)
}

/// The largest difference of a cached value between devices, relative to the largest value of its cache. A value has passed
/// through sums of at most 48 terms, twice in each layer, with an exponential and a division in between; each adds some units
/// of 2^-24, and this is four hundred of them.
#[cfg(test)]
const TOLERANCE: f32 = 400.0 / (1 << 24) as f32;

/// The tokens, and what the caches hold after them.
type Decoded = (Vec<i32>, Vec<Vec<f32>>);

fn eager(stream: &Stream, times: &mut Times) -> Result<Decoded> {
    let mut decoder = Decoder::new(stream)?;
    let mut tokens = Vec::new();
    times.eagerly(|| {
        for position in 0..LENGTH {
            let Some(bucket) = bucket_of(position) else { break };
            decoder.step(stream, BUCKETS[bucket], position as u32)?;
            tokens.extend(decoder.token.to_vec()?);
        }
        Ok(())
    })?;
    Ok((tokens, decoder.caches()?))
}

fn replayed(stream: &Stream, times: &mut Times) -> Result<(Decoded, usize)> {
    let mut decoder = Decoder::new(stream)?;
    let position = Slot::new("position", 0u32);
    let graphs =
        BUCKETS.map(|bucket| CapturedGraph::scope(stream, |s| decoder.step(s, bucket, &position)));
    let mut tokens = Vec::new();
    let mut nodes = 0;
    times.replayed(|| {
        for at in 0..LENGTH {
            let Some(bucket) = bucket_of(at) else { break };
            let graph = graphs[bucket].as_ref().map_err(Clone::clone)?;
            graph.launch().with(&position, at as u32).sync_on(stream)?;
            nodes = graph.graph().node_count();
            tokens.extend(decoder.token.to_vec()?);
        }
        Ok(())
    })?;
    Ok(((tokens, decoder.caches()?), nodes))
}

fn main() -> Result<()> {
    let device = Backend::asked_for().open(2)?;
    let mut times = Times::new();
    let ((tokens, caches), nodes) = replayed(&device.stream(0), &mut times)?;
    let same = eager(&device.stream(1), &mut times)? == (tokens.clone(), caches);
    for _ in 0..4 {
        replayed(&device.stream(0), &mut times)?;
        eager(&device.stream(1), &mut times)?;
    }
    println!("{tokens:?}");
    println!(
        "one launch of {nodes} nodes a token; eager gives {}the same",
        if same { "" } else { "not " }
    );
    times.tell("a token", LENGTH as u32);
    Ok(())
}

#[test]
fn every_bucket_decodes_what_eager_decodes() -> Result<()> {
    let device = Device::cpu(2)?;
    let mut times = Times::new();
    let (tokens, caches) = eager(&device.stream(0), &mut times)?;
    assert_eq!(replayed(&device.stream(1), &mut times)?.0, (tokens.clone(), caches.clone()));
    assert_eq!(tokens.len() as u64, LENGTH);
    let distinct: std::collections::BTreeSet<_> = tokens.iter().collect();
    assert!(distinct.len() > 2, "{tokens:?}: it says more than one word");
    assert!(caches.iter().all(|cache| cache.iter().all(|v| v.is_finite() && *v != 0.0)));
    Ok(())
}

#[test]
fn other_devices_choose_the_same_words() -> Result<()> {
    let mut times = Times::new();
    let (tokens, caches) = eager(&Device::cpu(2)?.stream(0), &mut times)?;
    for device in backend::others() {
        let (found, nodes) = replayed(&device.stream(0), &mut times)?;
        assert_eq!(
            found,
            eager(&device.stream(1), &mut times)?,
            "eager and replay give the same bits"
        );
        assert_eq!((&found.0, nodes > 20), (&tokens, true));
        for (cache, expected) in found.1.iter().zip(&caches) {
            let largest = expected.iter().fold(0f32, |most, v| most.max(v.abs()));
            for (at, (found, expected)) in cache.iter().zip(expected).enumerate() {
                let off = (found - expected).abs() / largest;
                assert!(off <= TOLERANCE, "value {at}: {found}, not {expected}");
            }
        }
    }
    Ok(())
}
