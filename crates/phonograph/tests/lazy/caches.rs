//! Graphs by the shapes of their inputs.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;

use phonograph::cache::{Buckets, Cached, GraphCache};
use phonograph::prelude::*;

use crate::common::*;

struct Doubler {
    x: Tensor<f32>,
    y: Tensor<f32>,
    graph: CapturedGraph<()>,
}

impl Cached for Doubler {
    fn bytes(&self) -> u64 {
        100 * self.x.elements()
    }
}

/// A cache of doublers, and how often it has captured.
fn cache(device: &Device, budget: u64) -> (GraphCache<Doubler>, Arc<AtomicU32>) {
    let captured = Arc::new(AtomicU32::new(0));
    let (counter, stream) = (captured.clone(), device.stream(0));
    let buckets = Buckets::new().powers_of_two(16);
    let cache = GraphCache::new(buckets, budget, move |bucket| {
        if counter.fetch_add(1, Ordering::Relaxed) == 0 && bucket == [16] {
            return Err(Error::other(std::io::Error::other("the first of sixteen")));
        }
        let x = api::zeros::<f32>(bucket).sync_on(&stream)?;
        let mut y = api::zeros::<f32>(bucket).sync_on(&stream)?;
        let graph = double(&x, &mut y).map(drop).graph_on(&stream)?;
        Ok(Doubler { x, y, graph })
    });
    (cache, captured)
}

fn serve(cache: &GraphCache<Doubler>, input: &[f32]) -> Result<Vec<f32>> {
    let entry = cache.get(&[input.len() as u64])?;
    let Doubler { x, y, graph } = &mut *entry.lock();
    let mut padded = input.to_vec();
    padded.resize(entry.bucket()[0] as usize, f32::NAN);
    graph.update(api::store(padded, x))?;
    graph.launch().sync_on(graph.stream())?;
    Ok(y.to_vec()?[..input.len()].to_vec())
}

#[test]
fn shapes_share_the_graph_of_their_bucket_and_padding_does_not_show() {
    let device = device();
    let (cache, captured) = cache(&device, u64::MAX);
    for len in [3, 4, 3, 1, 2, 7, 8, 5] {
        let input: Vec<f32> = (0..len).map(|at| at as f32).collect();
        let expected: Vec<f32> = input.iter().map(|x| 2.0 * x).collect();
        assert_eq!(serve(&cache, &input).unwrap(), expected);
    }
    assert_eq!(captured.load(Ordering::Relaxed), 4);
    assert_eq!(cache.buckets(), [[1], [2], [4], [8]].map(Box::<[u64]>::from));
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.hits, stats.captures, stats.entries), (4, 4, 4, 4));
    assert_eq!(stats.bytes, 1500);
    assert_eq!((stats.elements, stats.padded_elements), (4 + 3 + 8 + 5, 4 + 4 + 8 + 8));
    let error = serve(&cache, &[0.0; 17]).unwrap_err();
    assert!(matches!(&error, Error::NoBucket { extents } if extents == &[17]), "{error}");
}

#[test]
fn what_was_used_longest_ago_makes_room_and_lives_while_somebody_has_it() {
    let device = device();
    let (cache, _) = cache(&device, 600);
    serve(&cache, &[0.0; 2]).unwrap();
    let held = cache.get(&[4]).unwrap();
    serve(&cache, &[0.0; 2]).unwrap(); // now 4 is the oldest
    serve(&cache, &[0.0; 1]).unwrap();
    assert_eq!(cache.buckets(), [[1], [2]].map(Box::<[u64]>::from));
    {
        let Doubler { x, y, graph } = &mut *held.lock();
        graph.update(api::store(vec![3.0; 4], x)).unwrap();
        graph.launch().sync_on(graph.stream()).unwrap();
        assert_eq!(value_of(y), 6.0);
    }
    assert_eq!(device.report().graphs, 3);
    drop(held);
    assert_eq!(device.report().graphs, 2);
    let stats = cache.stats();
    assert_eq!((stats.evictions, stats.entries, stats.bytes), (1, 2, 300));
    // Larger than the budget all by itself: kept, alone.
    serve(&cache, &[0.0; 8]).unwrap();
    assert_eq!(cache.buckets(), [[8]].map(Box::<[u64]>::from));
}

#[test]
fn many_threads_capture_a_bucket_once() {
    let device = device();
    let (cache, captured) = cache(&device, u64::MAX);
    thread::scope(|scope| {
        for at in 0..8 {
            let cache = &cache;
            scope.spawn(move || {
                assert_eq!(serve(cache, &[at as f32; 3]).unwrap(), [2.0 * at as f32; 3])
            });
        }
    });
    assert_eq!(captured.load(Ordering::Relaxed), 1);
    let stats = cache.stats();
    assert_eq!((stats.captures, stats.hits + stats.misses), (1, 8));
}

#[test]
fn a_capture_in_the_background_is_there_later() {
    let device = device();
    let (cache, captured) = cache(&device, u64::MAX);
    assert!(cache.get_or_capture_later(&[3]).unwrap().is_none());
    // Waits for the one in the background.
    assert_eq!(cache.get(&[4]).unwrap().bucket(), [4]);
    assert!(cache.get_or_capture_later(&[3]).unwrap().is_some());
    assert_eq!(captured.load(Ordering::Relaxed), 1);
}

#[test]
fn a_failed_capture_is_told_and_tried_again() {
    let device = device();
    let (cache, _) = cache(&device, u64::MAX);
    assert!(serve(&cache, &[1.0; 16]).unwrap_err().to_string().contains("first of sixteen"));
    assert_eq!(serve(&cache, &[1.0; 16]).unwrap(), [2.0; 16]);
    assert_eq!((cache.stats().failures, cache.stats().captures), (1, 1));
}

#[test]
fn inside_a_capture_the_cache_is_refused() {
    let device = device();
    let (cache, captured) = cache(&device, u64::MAX);
    CapturedGraph::scope(&device.stream(0), |_| {
        non_reentrant(cache.get(&[3]));
        Ok(())
    })
    .unwrap();
    assert_eq!(captured.load(Ordering::Relaxed), 0);
}

/// The shape, and no graph.
struct Shape;

impl Cached for Shape {
    fn bytes(&self) -> u64 {
        0
    }
}

#[test]
fn captures_that_ask_for_one_another_are_refused_and_no_deadlock() {
    let both = Arc::new(Barrier::new(2));
    let itself: Arc<OnceLock<GraphCache<Shape>>> = Arc::default();
    let cache = GraphCache::new(Buckets::new().exact(), 0, {
        let itself = itself.clone();
        move |bucket| {
            both.wait();
            itself.get().unwrap().get(&[1 - bucket[0]]).map(|_| Shape)
        }
    });
    let cache = itself.get_or_init(|| cache);
    thread::scope(|scope| {
        let asked = [0, 1].map(|bucket| scope.spawn(move || cache.get(&[bucket]).map(drop)));
        asked.into_iter().for_each(|thread| non_reentrant(thread.join().unwrap()));
    });
}

#[test]
fn elements_that_no_number_holds_are_the_largest_number() {
    let cache = GraphCache::new(Buckets::new().exact().exact(), 0, |_| Ok(Shape));
    for _ in 0..3 {
        cache.get(&[1 << 63, 3]).unwrap();
    }
    assert_eq!((cache.stats().hits, cache.stats().elements), (2, u64::MAX));
}
