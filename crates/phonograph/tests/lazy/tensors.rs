//! Tensors, views, and parts that share nothing.

use phonograph::graph::NodeKind;
use phonograph::prelude::*;

use crate::common::*;

#[test]
fn disjoint_parts_are_written_side_by_side() {
    let device = device();
    let stream = device.stream(0);
    let mut y = api::zeros::<f32>([6, 2]).sync_on(&stream).unwrap();
    let parts = y.chunks_mut(4).unwrap();
    assert_eq!(parts.iter().map(|part| part.shape().extents()[0]).collect::<Vec<_>>(), [4, 2]);
    let [first, second] = <[_; 2]>::try_from(parts).map_err(drop).unwrap();
    let graph = zip!(add(1.0, first), add(2.0, second)).map(drop).graph_on(&stream).unwrap();
    let ids: Vec<_> = graph.graph().node_ids().collect();
    assert!(!graph.graph().is_reachable(ids[0], ids[1]), "they share a buffer, but no byte");
    graph.launch().sync_on(&stream).unwrap();
    assert_eq!(y.to_vec().unwrap(), [[1.0; 8].as_slice(), &[2.0; 4]].concat());
}

#[test]
fn views_slice_transpose_and_broadcast() {
    let device = device();
    let stream = device.stream(0);
    let x = api::upload((0..6).map(|v| v as f32).collect::<Vec<_>>(), [2, 3]);
    let x = x.sync_on(&stream).unwrap();
    let mut y = api::zeros::<f32>([3, 2]).sync_on(&stream).unwrap();
    api::memcpy(x.view().transpose(0, 1).unwrap(), &mut y).sync_on(&stream).unwrap();
    assert_eq!(y.to_vec().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    let row = x.rows(1..2).unwrap().reshape([3]).unwrap();
    assert_eq!(row.to_vec().unwrap(), [3.0, 4.0, 5.0]);
    let mut z = api::zeros::<f32>([2, 3]).sync_on(&stream).unwrap();
    sum(&row, &mut z).sync_on(&stream).unwrap();
    assert_eq!(z.to_vec().unwrap(), [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
    let column = x.view().slice(1, 2..3).unwrap();
    assert!(column.to_vec().is_err(), "not dense");
    let dense = api::dup(&column).sync_on(&stream).unwrap();
    assert_eq!(dense.to_vec().unwrap(), [2.0, 5.0]);
    // A window that is lent is there again afterwards.
    let mut window = z.view_mut();
    let (upper, _) = window.reborrow().split_at(1).unwrap();
    api::store(vec![7.0; 3], upper).sync_on(&stream).unwrap();
    let (_, lower) = window.split_at(1).unwrap();
    api::store(vec![8.0; 3], lower).sync_on(&stream).unwrap();
    assert_eq!(z.to_vec().unwrap(), [7.0, 7.0, 7.0, 8.0, 8.0, 8.0]);
}

/// A GPU compiles each kernel once, and would keep one for each value.
#[test]
fn fills_with_other_values_are_the_same_kernel() {
    let device = device();
    let kernel = |value: f32| {
        let mut graph = api::full([3], value).graph_on(&device.stream(0)).unwrap();
        graph.launch().sync_on(graph.stream()).unwrap();
        assert_eq!(value_of(&graph.take_output().unwrap()), value);
        match &graph.graph().nodes()[0].kind {
            NodeKind::Kernel(kernel) => kernel.kernel.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(kernel(1.5), kernel(-2.5));
}

#[test]
#[cfg_attr(miri, ignore = "looking for the snapshot starts a process")]
fn wrong_shapes_are_errors_with_their_place() {
    let device = device();
    let stream = device.stream(0);
    let mut y = four(&stream, 1.0);
    let x = api::zeros::<f32>([3]).sync_on(&stream).unwrap();
    let errors = [
        sum(&x, &mut y).map(drop).sync_on(&stream).unwrap_err().to_string(),
        api::store(vec![1.0f32; 3], &mut y).sync_on(&stream).unwrap_err().to_string(),
        api::matmul(&x, &x, &mut y).map(drop).sync_on(&stream).unwrap_err().to_string(),
        x.rows(1..5).map(drop).unwrap_err().to_string(),
        y.split_at_mut(5).map(drop).unwrap_err().to_string(),
        y.chunks_mut(0).map(drop).unwrap_err().to_string(),
        api::zeros::<f32>([1; 7]).map(drop).sync_on(&stream).unwrap_err().to_string(),
    ];
    // Beside the code, since these tests also run where the sources are not.
    insta::assert_debug_snapshot!(errors, @r#"
    [
        "sum: shape [3] cannot be broadcast to [4]",
        "store: 3 elements for a tensor of 4",
        "matmul: operand 0 has rank 1, not 2 or 3",
        "elements 1..5 reach past the end of an axis of 3",
        "elements 0..5 reach past the end of an axis of 4",
        "chunks_mut: parts of no rows",
        "7 axes; a view has at most 6",
    ]
    "#);
}

#[test]
fn matrices_multiply() {
    let device = device();
    let stream = device.stream(0);
    let a = api::upload(vec![1.0f32, 2.0, 3.0, 4.0], [2, 2]).sync_on(&stream).unwrap();
    let c = api::matmul(&a, a.view().transpose(0, 1).unwrap(), api_zeros(&stream));
    assert_eq!(c.sync_on(&stream).unwrap().to_vec().unwrap(), [5.0, 11.0, 11.0, 25.0]);
}

fn api_zeros(stream: &Stream) -> Tensor<f32> {
    api::zeros::<f32>([2, 2]).sync_on(stream).unwrap()
}

#[test]
fn a_conflict_across_streams_becomes_a_wait() {
    let device = device();
    let mut y = four(&device.stream(0), 0.0);
    let graph = triple(&mut y).map(drop).graph_on(&device.stream(1)).unwrap();
    for round in 0..20u32 {
        // Not waited for: each is behind the other because they touch the same tensor.
        graph.update(add(1.0, &mut y).map(drop)).unwrap();
        let policy = Policy::single(&device.stream(round));
        let started = graph.launch().schedule(policy);
        if round % 2 == 0 {
            block_on(started).unwrap();
        } else {
            drop(started);
        }
    }
    let mut expected = 0.0f32;
    for round in 0..20 {
        expected += 1.0;
        if round % 2 == 0 {
            expected *= 3.0;
        }
    }
    assert_eq!(value_of(&y), expected);
}
