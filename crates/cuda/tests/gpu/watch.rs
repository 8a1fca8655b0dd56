//! Foreign graphs run node by node, watched, put into another order.

use phonograph_cuda::{Block, CaptureMode, Imported, Watch, WatchError};
use phonograph_graph::NodeId;

use crate::case::cuda;
use crate::foreign::{launch, ready};

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

    let start: Vec<_> = (0..2).map(|block| watch.save(block).unwrap()).collect();
    for node in 0..4 {
        watch.run(NodeId(node)).unwrap();
        let block = node as usize % 2;
        let changed = watch.changed(&[(0, &start[0]), (1, &start[1])]).unwrap();
        assert_eq!(changed, [block], "kernel {node} writes what it says");
        watch.restore(block, &start[block]).unwrap();
    }
    watch.clear(0).unwrap();
    assert!(watch.changed(&[(0, &start[0])]).unwrap().is_empty(), "memory begins as zeros");

    let chain: Vec<(NodeId, NodeId)> = (0..3).map(|n| (NodeId(n), NodeId(n + 1))).collect();
    let apart = vec![(NodeId(0), NodeId(2)), (NodeId(1), NodeId(3))];
    let mut results = Vec::new();
    for edges in [&chain, &apart] {
        let mut arranged = watch.arrange(edges).unwrap();
        watch.replay(&mut arranged).unwrap();
        results.push((0..2).map(|block| watch.save(block).unwrap()).collect::<Vec<_>>());
        (0..2).for_each(|block| watch.restore(block, &start[block]).unwrap());
    }
    for block in 0..2 {
        watch.restore(block, &results[0][block]).unwrap();
        assert!(watch.changed(&[(block, &results[1][block])]).unwrap().is_empty());
        assert_eq!(
            watch.changed(&[(block, &start[block])]).unwrap(),
            [0],
            "by its place in the list"
        );
    }
    let circle = [(NodeId(0), NodeId(1)), (NodeId(1), NodeId(0))];
    assert!(matches!(watch.apply(&circle), Err(WatchError::Edit(_))));
    assert_eq!(watch.imported().graph().edge_count(), 3, "a refusal changes nothing");
    watch.apply(&apart).unwrap();
    let edges: Vec<_> = watch.imported().graph().edges().map(|e| (e.from, e.to)).collect();
    assert_eq!(edges, apart);
    assert_eq!(import().graph().edge_count(), 2, "the driver's graph itself is changed");
}
