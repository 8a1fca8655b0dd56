//! Invariants of layout on random and on recorded graphs.

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_report::layout::{Layout, Link, Route, Size, layout};
use phonograph_report::picture::NodeIx;

/// What holds for every layout.
fn check(sizes: &[Size], links: &[Link]) -> Layout {
    let plan = layout(sizes, links).expect("no cycle");
    assert_eq!(plan.boxes.len(), sizes.len());
    assert_eq!(plan.routes.len(), links.len());
    const SLIP: f64 = 1e-6;

    for (placed, size) in plan.boxes.iter().zip(sizes) {
        assert_eq!(placed.size, *size);
        let (x, y) = (placed.corner.x, placed.corner.y);
        assert!(x >= -SLIP && y >= -SLIP, "{placed:?}");
        assert!(x + size.width <= plan.size.width + SLIP, "{placed:?} {:?}", plan.size);
        assert!(y + size.height <= plan.size.height + SLIP, "{placed:?} {:?}", plan.size);
    }

    // No two boxes overlap: compare each with those that begin before it ends, from left to right.
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    let left = |i: usize| plan.boxes[i].corner.x;
    order.sort_by(|&a, &b| left(a).total_cmp(&left(b)));
    for (at, &i) in order.iter().enumerate() {
        let a = &plan.boxes[i];
        for &j in &order[at + 1..] {
            let b = &plan.boxes[j];
            if b.corner.x >= a.corner.x + a.size.width - SLIP {
                break;
            }
            let apart = a.corner.y + a.size.height <= b.corner.y + SLIP
                || b.corner.y + b.size.height <= a.corner.y + SLIP;
            assert!(apart, "boxes {i} and {j} overlap: {a:?} {b:?}");
        }
    }

    for (link, route) in links.iter().zip(&plan.routes) {
        let (from, to) = (&plan.boxes[link.from.index()], &plan.boxes[link.to.index()]);
        assert!(from.layer < to.layer, "{link:?} leads from {from:?} to {to:?}");
        assert!(from.column <= to.column, "{link:?}");
        if from.column == to.column {
            assert!(from.corner.y + from.size.height < to.corner.y, "{link:?} does not lead down");
        }
        let (start, end) = match route {
            Route::Path { start, pieces, .. } => (*start, pieces.last().expect("a way").end()),
            Route::Jump { leave, arrive } => (*leave, *arrive),
        };
        assert!((start.y - from.corner.y - from.size.height).abs() < SLIP, "{link:?} {route:?}");
        assert!((end.y - to.corner.y).abs() < SLIP, "{link:?} {route:?}");
        for (x, placed) in [(start.x, from), (end.x, to)] {
            let inside = placed.corner.x - SLIP..=placed.corner.x + placed.size.width + SLIP;
            assert!(inside.contains(&x), "{link:?} {route:?} {placed:?}");
        }
    }
    assert_eq!(plan, layout(sizes, links).expect("no cycle"), "layout is not deterministic");
    plan
}

fn link(from: u32, to: u32) -> Link {
    Link { from: NodeIx(from), to: NodeIx(to), bundle: 0, weak: false }
}

fn same(n: usize) -> Vec<Size> {
    let size = Size { width: 120.0, height: 40.0 };
    vec![size; n]
}

fn links(pairs: &[(u32, u32)]) -> Vec<Link> {
    pairs.iter().map(|&(a, b)| link(a, b)).collect()
}

/// A random graph; nodes are renamed, so that their numbers are no topological order.
fn random(u: &mut Unstructured<'_>, most: usize) -> Result<(Vec<Size>, Vec<Link>)> {
    let n = u.int_in_range(1..=most)?;
    let mut sizes = Vec::with_capacity(n);
    for _ in 0..n {
        sizes.push(Size {
            width: f64::from(u.int_in_range(20..=300u32)?),
            height: f64::from(u.int_in_range(10..=90u32)?),
        });
    }
    let mut names: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        names.swap(i, u.int_in_range(0..=i)?);
    }
    let mut links = Vec::new();
    if n > 1 {
        let reach = u.int_in_range(1..=n - 1)?;
        for _ in 0..u.int_in_range(0..=3 * n)? {
            let a = u.int_in_range(0..=n - 2)?;
            let b = u.int_in_range(a + 1..=(a + reach).min(n - 1))?;
            let weak = u.arbitrary()?;
            links.push(Link { bundle: u.int_in_range(0..=2)?, weak, ..link(names[a], names[b]) });
        }
    }
    Ok((sizes, links))
}

#[test]
fn random_graphs() {
    arbtest::arbtest(|u| {
        let (sizes, links) = random(u, 60)?;
        check(&sizes, &links);
        Ok(())
    })
    .budget_ms(1_000);
}

#[test]
fn deep_random_graphs_are_broken_into_columns_correctly() {
    arbtest::arbtest(|u| {
        let n = u.int_in_range(40..=200u32)?;
        let mut pairs: Vec<(u32, u32)> = (1..n).map(|i| (i - 1, i)).collect();
        for _ in 0..u.int_in_range(0..=20)? {
            let a = u.int_in_range(0..=n - 2)?;
            pairs.push((a, u.int_in_range(a + 1..=n - 1)?));
        }
        let plan = check(&same(n as usize), &links(&pairs));
        let columns = plan.boxes.iter().map(|b| b.column).max().expect("boxes");
        assert!(columns.index() > 0, "{n} boxes in one column");
        Ok(())
    })
    .budget_ms(1_000);
}

#[test]
fn nothing_at_all() {
    assert_eq!(check(&[], &[]).size, Size::default());
}

#[test]
fn parallel_branches_are_straight_columns_side_by_side() {
    // A fork, three branches of four, a join.
    let mut pairs = Vec::new();
    for branch in 0..3 {
        let first = 1 + 4 * branch;
        pairs.push((0, first));
        pairs.extend((first..first + 3).map(|i| (i, i + 1)));
        pairs.push((first + 3, 13));
    }
    let plan = check(&same(14), &links(&pairs));
    for branch in 0..3 {
        let first = 1 + 4 * branch;
        for i in first..first + 4 {
            assert_eq!(
                plan.boxes[i].corner.x, plan.boxes[first].corner.x,
                "branch {branch} is not straight"
            );
            assert_eq!(
                plan.boxes[i].corner.y,
                plan.boxes[i - first + 1].corner.y,
                "branch {branch} is not level"
            );
        }
    }
    assert_eq!(
        plan.boxes[0].corner.x, plan.boxes[5].corner.x,
        "the fork is above the middle branch"
    );
    assert_eq!(
        plan.boxes[13].corner.x, plan.boxes[5].corner.x,
        "the join is below the middle branch"
    );
}

#[test]
fn a_link_past_a_chain_leaves_the_chain_straight() {
    // Residual connections.
    let pairs: Vec<(u32, u32)> = (0..12)
        .flat_map(|i| [Some((i, i + 1)), (i % 3 == 0).then_some((i, i + 3))])
        .flatten()
        .collect();
    let plan = check(&same(13), &links(&pairs));
    for placed in &plan.boxes {
        assert_eq!(placed.corner.x, plan.boxes[0].corner.x);
    }
}

#[test]
fn long_chains_have_the_shape_of_a_screen() {
    for n in [114, 1_000, 10_000] {
        let pairs: Vec<(u32, u32)> = (1..n).map(|i| (i - 1, i)).collect();
        let plan = check(&same(n as usize), &links(&pairs));
        let shape = plan.size.width / plan.size.height;
        assert!((0.8..3.0).contains(&shape), "{n} boxes: {:?}", plan.size);
    }
}

#[test]
fn wide_forks_are_set_in_several_rows() {
    let n = 2_000;
    let pairs: Vec<(u32, u32)> = (1..=n).flat_map(|i| [(0, i), (i, n + 1)]).collect();
    let plan = check(&same(n as usize + 2), &links(&pairs));
    assert!(plan.size.width < 20_000.0, "{:?}", plan.size);
}

#[test]
fn boxes_without_links_are_packed() {
    let plan = check(&same(400), &[]);
    let shape = plan.size.width / plan.size.height;
    assert!((0.8..3.0).contains(&shape), "{:?}", plan.size);
}

#[test]
fn hubs_and_far_links_stay_within_the_budget() {
    let n = 4_000;
    let mut pairs: Vec<(u32, u32)> = (1..n).map(|i| (i - 1, i)).collect();
    for hub in [0, 1, 2] {
        pairs.extend((hub + 2..n).map(|i| (hub, i)));
    }
    let plan = check(&same(n as usize), &links(&pairs));
    let jumps = plan.routes.iter().filter(|r| matches!(r, Route::Jump { .. })).count();
    assert!(jumps > 0 && jumps < plan.routes.len(), "{jumps} jumps");
}

#[test]
fn a_cycle_is_named() {
    let sizes = same(5);
    for (pairs, cycle) in [
        (vec![(0, 1), (1, 2), (2, 3), (3, 1), (3, 4)], vec![1, 2, 3]),
        (vec![(2, 2)], vec![2]),
        (vec![(0, 4), (4, 0)], vec![0, 4]),
    ] {
        let mut found = layout(&sizes, &links(&pairs)).expect_err("a cycle");
        // It may begin anywhere.
        let least = (0..found.len()).min_by_key(|&i| found[i]).expect("not empty");
        found.rotate_left(least);
        assert_eq!(found, cycle.into_iter().map(NodeIx).collect::<Vec<_>>());
    }
}

#[test]
fn recorded_graphs() {
    for (name, text) in [
        ("multistream_3x4", include_str!("../data/multistream_3x4.txt")),
        ("resnet18_infer_b1", include_str!("../data/resnet18_infer_b1.txt")),
        ("gpt2_4layer_prefill16", include_str!("../data/gpt2_4layer_prefill16.txt")),
    ] {
        let picture = crate::common::recorded(name, text);
        let group = &picture.groups[0];
        let pairs: Vec<(u32, u32)> = group.edges.iter().map(|e| (e.from.0, e.to.0)).collect();
        // Names of kernels are long.
        let size = Size { width: 260.0, height: 40.0 };
        let plan = check(&vec![size; group.nodes.len()], &links(&pairs));
        if name == "multistream_3x4" {
            // Nodes 2 to 17, 18 to 33 and 34 to 49 ran on three streams.
            for first in [2, 18, 34] {
                for node in first..first + 16 {
                    assert_eq!(
                        plan.boxes[node].corner.x, plan.boxes[first].corner.x,
                        "node {node}"
                    );
                }
            }
        }
    }
}
