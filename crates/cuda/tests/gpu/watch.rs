//! Foreign graphs run node by node, watched, put into another order.

use cudarc::driver::sys;
use phonograph_cuda::{
    Arrangement, Block, CaptureMode, Diversion, Ends, Imported, Watch, WatchError,
};
use phonograph_graph::{Edge, NodeId};

use crate::case::{cuda, expect};
use crate::foreign::{launch, ready};

/// Bytes of a piece of a copy, which copies share.
const PIECE: u64 = 128 << 10;

#[test]
fn nodes_run_alone_and_the_order_that_was_found_replaces_the_captured_one() {
    let Some(mut cuda) = cuda() else { return };
    let (stream, function, first) = ready(&mut cuda);
    let second = cuda.alloc(256).unwrap();
    let memories = [&first, &second];
    // Two chains that one stream has made one of: x and y in turns.
    let captured = stream.capture(CaptureMode::Global, |raw| {
        for step in 0..4 {
            launch(&function, raw, memories[step % 2], step as u32);
        }
        Ok::<_, String>(())
    });
    let (captured, ()) = captured.unwrap();
    let device = stream.device().clone();
    let blocks = memories.map(|memory| Block { address: memory.address(), bytes: 256 });
    let import = || {
        // SAFETY: `captured` lives to the end and is not changed but through what reads it here.
        unsafe { Imported::read(captured.handle()) }.unwrap()
    };
    let overlapping = [blocks[0], Block { address: blocks[0].address + 4, bytes: 8 }];
    // SAFETY: both memories live to the end, and nothing else uses them.
    let refused = unsafe { Watch::new(import(), &device, &overlapping) };
    let other = blocks[0].address;
    assert_eq!(refused.err(), Some(WatchError::Overlap { index: 1, other }));
    // SAFETY: as above; the kernels do nothing else in any order.
    let mut watch = unsafe { Watch::new(import(), &device, &blocks) }.unwrap();

    assert_eq!(watch.named(NodeId(1)), [(1, 0)], "the second kernel works on the second block");
    // SAFETY: as above.
    let mut pieces = unsafe { Watch::new(import(), &device, &blocks) }.unwrap();
    pieces.cut(&[(0, 128), (1, 4), (1, 8)]);
    let lengths: Vec<u64> = pieces.blocks().iter().map(|block| block.bytes).collect();
    assert_eq!(lengths, [128, 128, 4, 4, 248]);
    let whole = pieces.save(&[0, 1]).unwrap();
    pieces.run(NodeId(0)).unwrap();
    let changed = pieces.changed(&[(0, &whole[0]), (1, &whole[1])]).unwrap();
    assert_eq!(changed, [(0, 0..128), (1, 0..128)], "the kernel writes all of the block");
    pieces.restore(&[(0, &whole[0]), (1, &whole[1])]).unwrap();
    drop((whole, pieces));
    let start = watch.save(&[0, 1]).unwrap();
    let begin = [(0, &start[0]), (1, &start[1])];
    for node in 0..4 {
        watch.run(NodeId(node)).unwrap();
        let changed = watch.changed(&begin).unwrap();
        let block = node as usize % 2;
        assert!(matches!(changed[..], [(at, _)] if at == block), "kernel {node}: {changed:?}");
        watch.restore(&begin[block..=block]).unwrap();
    }
    watch.fill(&[0], 0).unwrap();
    assert!(watch.changed(&begin[..1]).unwrap().is_empty(), "memory begins as zeros");

    // The bytes that differ are told to the word, also where pieces and rows of 16 bytes end.
    let spare = watch.spare(300 << 10).unwrap();
    let zeros = watch.save(&[spare]).unwrap().remove(0);
    let place = watch.spare_memory(spare).unwrap();
    for (first, last) in [(0, 0), (5, 131_072), (131_071, 307_199), (307_196, 307_196)] {
        device.synchronize().unwrap();
        for at in [first, last] {
            // SAFETY: the byte is the block's, and nothing that uses it is on its way.
            unsafe { expect(sys::cuMemsetD8Async(place.address() + at, 1, 1, stream.handle())) };
        }
        stream.synchronize().unwrap();
        let changed = watch.changed(&[(spare, &zeros)]).unwrap();
        let bytes = first / 4 * 4..last / 4 * 4 + 4;
        assert_eq!(changed, [(0, bytes.clone())]);
        // A copy of what has changed is one of the whole.
        let (saved, taken) = watch.save_changes(&[(spare, bytes, &zeros)]).unwrap().remove(0);
        assert_eq!(taken, (300 << 10).min((last / PIECE + 1) * PIECE) - first / PIECE * PIECE);
        watch.fill(&[spare], 7).unwrap();
        watch.restore(&[(spare, &saved)]).unwrap();
        assert!(watch.changed(&[(spare, &saved)]).unwrap().is_empty());
        assert_eq!(watch.changed(&[(spare, &zeros)]).unwrap(), changed);
        watch.restore(&[(spare, &zeros)]).unwrap();
        assert!(watch.changed(&[(spare, &zeros)]).unwrap().is_empty());
    }

    // A node that is diverted leaves the block alone and does there what it did here.
    watch.run(NodeId(0)).unwrap();
    let done = watch.save(&[0]).unwrap();
    watch.restore(&begin[..1]).unwrap();
    let own = watch.spare(256).unwrap();
    let (from, to) = (blocks[0].address, watch.blocks()[own].address);
    let elsewhere = Diversion { from: blocks[1].address, bytes: 256, to };
    assert!(!watch.divert(NodeId(0), &[elsewhere]).unwrap(), "it does not name that");
    assert!(watch.divert(NodeId(0), &[Diversion { from, bytes: 256, to }]).unwrap());
    watch.run(NodeId(0)).unwrap();
    assert!(watch.changed(&[begin[0], (own, &done[0])]).unwrap().is_empty());
    assert!(watch.divert(NodeId(0), &[]).unwrap());

    let nodes: Vec<NodeId> = (0..4).map(NodeId).collect();
    let full = |from, to| Edge::full(NodeId(from), NodeId(to));
    let chain = vec![full(0, 1), full(1, 2), full(2, 3)];
    let apart = vec![full(0, 2), full(1, 3)];
    let mut results = Vec::new();
    let order = |nodes: &[NodeId], edges: &[Edge], ends| Arrangement {
        nodes: nodes.to_vec(),
        edges: edges.to_vec(),
        ends,
    };
    let (none, both) = (Ends::default(), Ends { beginning: true, end: true });
    for (edges, ends) in [(&chain, none), (&apart, none), (&apart, both)] {
        let mut arranged = watch.arrange(&order(&nodes, edges, ends)).unwrap();
        watch.replay(&mut arranged).unwrap();
        results.push(watch.save(&[0, 1]).unwrap());
        watch.restore(&begin).unwrap();
    }
    watch.restore(&[(0, &results[0][0]), (1, &results[0][1])]).unwrap();
    for result in &results[1..] {
        assert!(watch.changed(&[(0, &result[0]), (1, &result[1])]).unwrap().is_empty());
    }
    let changed = watch.changed(&begin[1..]).unwrap();
    assert!(matches!(changed[..], [(0, _)]), "by its place in the list: {changed:?}");
    let circle = [full(0, 1), full(1, 0)];
    let strange = [full(0, 4)];
    for (nodes, edges) in
        [(&nodes[..], &circle[..]), (&nodes, &strange), (&nodes[..3], &[]), (&[NodeId(0); 4], &[])]
    {
        let refused = watch.apply(&order(nodes, edges, both));
        assert!(matches!(refused, Err(WatchError::Edit(_))));
    }
    assert_eq!(watch.imported().graph().edge_count(), 3, "a refusal changes nothing");
    assert_eq!(import().graph().node_count(), 4);
    watch.apply(&order(&[1, 3, 0, 2].map(NodeId), &apart, none)).unwrap();
    let graph = watch.imported().graph();
    let edges: Vec<_> = graph.edges().map(|edge| (edge.from, edge.to)).collect();
    assert_eq!(edges, [(NodeId(0), NodeId(1)), (NodeId(2), NodeId(3))], "made in that order");
    assert_eq!(import().graph().edge_count(), 2, "the driver's graph itself is changed");
    watch.run(NodeId(0)).unwrap();
    watch.apply(&order(&nodes, &[full(0, 1), full(2, 3)], both)).unwrap();
    let graph = watch.imported().graph();
    assert_eq!((graph.node_count(), graph.edge_count()), (6, 6), "between two kernels more");
    (0..6).for_each(|node| watch.run(NodeId(node)).unwrap());
    watch.wait().unwrap();
}
