//! In-place updates, case by case: which results are written over which inputs, why others are not, and what that saves.

use std::collections::BTreeMap;

use phonograph_graph::{
    Access, ComputeGraph, DType, Expr, GraphBuilder, Region, View, check_rewrite,
};
use phonograph_plan::memory::{MemoryOptions, plan};
use phonograph_plan::passes::{Pass, optimize};

/// Elements of a tensor.
const ELEMENTS: u64 = 64;

/// A graph from lines. `x y -> t` is an expression over whole tensors, with `'` behind a name one over the tensor transposed;
/// `use x -> t` a kernel known by name; `host x` a host function. A name in capitals is the user's memory, edges are inferred.
fn graph(lines: &[&str]) -> ComputeGraph {
    let mut b = GraphBuilder::new();
    let mut known = BTreeMap::new();
    for line in lines {
        let (left, right) = line.split_once("->").unwrap_or((line, ""));
        let mut words: Vec<&str> = left.split_whitespace().collect();
        let what = words.first().copied().filter(|word| ["use", "host"].contains(word));
        words.drain(..usize::from(what.is_some()));
        let mut tensor = |word: &str| {
            let name = word.trim_end_matches('\'');
            let buffer = *known.entry(name.to_owned()).or_insert_with(|| {
                let bytes = ELEMENTS as usize * 4;
                match name.chars().all(|c| !c.is_lowercase()) {
                    true => b.external_buffer(name, bytes),
                    false => b.alloc_buffer(name, bytes),
                }
            });
            let view = View::contiguous(buffer, DType::F32, &[ELEMENTS / 4, 4]).unwrap();
            if word.ends_with('\'') {
                let square = View::contiguous(buffer, DType::F32, &[4, ELEMENTS / 4]).unwrap();
                return square.transpose(0, 1).unwrap();
            }
            view
        };
        let inputs: Vec<View> = words.iter().map(|word| tensor(word)).collect();
        let outputs: Vec<View> = right.split_whitespace().map(&mut tensor).collect();
        let buffers = |views: &[View]| views.iter().map(|view| view.buffer).collect::<Vec<_>>();
        match what {
            Some("use") => {
                let (inputs, outputs) = (buffers(&inputs), buffers(&outputs));
                b.add_kernel(line, 1, 32, 0).inputs(inputs).outputs(outputs).finish();
            }
            Some(_) => {
                let whole: Vec<(Region, Access)> =
                    inputs.iter().map(|view| (view.region(), Access::ReadWrite)).collect();
                b.add_host(line, "look", &whole);
            }
            None => {
                let expr = Expr::build(|e| {
                    let mut sum = e.f32(1.0);
                    for _ in &inputs {
                        sum = sum + e.input(DType::F32);
                    }
                    outputs.iter().for_each(|_| e.output(sum));
                });
                b.add_elementwise(line, expr.unwrap().into(), &inputs, &[], &outputs);
            }
        }
    }
    b.build().unwrap()
}

/// The graph's lines with the names of the buffers that are used, what is left and why, and the pool before and after.
#[track_caller]
fn check(lines: &[&str], expected: &[&str], left: &[&str], pools: [u64; 2]) {
    let before = graph(lines);
    let done = Pass::InPlace.run(&before).unwrap();
    assert_eq!(check_rewrite(&before, &done.graph, &done.image), []);
    let operands = |node| {
        let named = done.graph.operands(node).into_iter().map(|(region, access)| {
            let arrow = if access.writes() { "-> " } else { "" };
            format!("{arrow}{}", done.graph.buffer(region.buffer).name)
        });
        named.collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<String> = done.graph.node_ids().map(operands).collect();
    assert_eq!(lines, expected);
    let why: Vec<String> =
        done.report.left.iter().map(|left| format!("{} {}", left.node, left.why)).collect();
    assert_eq!(why, left);
    let pool = |graph| plan(graph, &MemoryOptions::default()).unwrap().memory.pool_bytes();
    assert_eq!([pool(&before), pool(&done.graph)], pools);
    // Nothing is left to do.
    let again = Pass::InPlace.run(&done.graph).unwrap();
    assert!(again.report.is_unchanged(), "{}", again.report);
}

#[test]
fn a_chain_ends_up_in_one_buffer() {
    check(
        &["X -> a", "a -> b", "b -> c", "c -> Y"],
        &["X -> a", "a -> a", "a -> a", "a -> Y"],
        &["n0 reads b0, which is to be kept"],
        [512, 256],
    );
}

#[test]
fn an_input_that_is_read_before_may_go() {
    check(
        &["use X -> a", "use a -> Y", "Y a -> b", "use b -> Z"],
        &["X -> a", "a -> Y", "Y a -> a", "a -> Z"],
        &[],
        [512, 256],
    );
    // Here nothing makes the second reader wait for the first.
    check(
        &["use X -> a", "use a -> Y", "a -> b", "use b -> Z"],
        &["X -> a", "a -> Y", "a -> b", "b -> Z"],
        &["n2 n1 may still use what it reads"],
        [512, 512],
    );
}

#[test]
fn an_input_that_is_still_read_stays() {
    check(
        &["use X -> a", "a -> b", "use a b -> Y"],
        &["X -> a", "a -> b", "a b -> Y"],
        &["n1 n2 may still use what it reads"],
        [512, 512],
    );
}

#[test]
fn of_two_inputs_one_goes() {
    check(
        &["use X -> a b", "a b -> c", "use c -> Y"],
        &["X -> a -> b", "a b -> a", "a -> Y"],
        &[],
        [768, 512],
    );
    check(
        &["use X -> a b", "a b -> c d", "use c d -> Y"],
        &["X -> a -> b", "a b -> a -> b", "a b -> Y"],
        &[],
        [1024, 512],
    );
    check(
        &["use X -> a", "a -> c d", "use c d -> Y"],
        &["X -> a", "a -> a -> d", "a d -> Y"],
        &["n1 another result is written over b1"],
        [768, 512],
    );
}

#[test]
fn other_elements_stay_apart() {
    check(
        &["use X -> a", "a' -> b", "use b -> Y"],
        &["X -> a", "a -> b", "b -> Y"],
        &["n1 reads b1 otherwise than it writes"],
        [512, 512],
    );
    check(
        &["use X -> a", "a a' -> b", "use b -> Y"],
        &["X -> a", "a a -> b", "b -> Y"],
        &["n1 reads b1 otherwise than it writes"],
        [512, 512],
    );
}

#[test]
fn what_the_user_sees_or_the_next_round_reads_stays() {
    check(
        &["X -> a", "use a -> Y"],
        &["X -> a", "a -> Y"],
        &["n0 reads b0, which is to be kept"],
        [256, 256],
    );
    check(
        &["use s -> Y", "s -> a", "use a -> s"],
        &["s -> Y", "s -> a", "a -> s"],
        &["n1 reads b0, which is to be kept"],
        [512, 512],
    );
}

#[test]
fn a_buffer_written_twice_stays() {
    check(
        &["use X -> b", "use b -> Y", "use X -> a", "a -> b", "use b -> Z"],
        &["X -> b", "b -> Y", "X -> a", "a -> b", "b -> Z"],
        &["n3 n0 may use what it writes before it"],
        [512, 512],
    );
}

#[test]
fn who_cannot_name_another_buffer_draws_the_others_to_its_own() {
    check(&["use X -> a", "a -> b", "host b"], &["X -> b", "b -> b", "-> b"], &[], [512, 256]);
    check(
        &["use X -> a", "host a", "a -> b", "host b"],
        &["X -> a", "-> a", "a -> b", "-> b"],
        &["n2 n3 cannot name another buffer"],
        [512, 512],
    );
}

#[test]
fn after_fusion_groups_are_updated_in_place_too() {
    let before = graph(&["use X -> a", "a -> b", "b -> c", "use c -> Y"]);
    let (after, reports) = optimize(&before, &[Pass::Fusion, Pass::InPlace], |before, done| {
        assert_eq!(check_rewrite(before, &done.graph, &done.image), []);
    })
    .unwrap();
    assert_eq!(after.node_count(), 3);
    assert_eq!(reports[1].counts()["updated in place"], 1);
}
