//! Cases by hand, and what becomes of them.

use phonograph_plan::recover::{Limits, Opaque, Recovered};

use crate::machine::{Kernel, Machine, Naming, open_conflicts};
use crate::observe_on;

/// What becomes of cases that watching memory cannot, or can only just, tell apart.
#[test]
fn adversarial_cases() {
    let (read, write) = (0, 2);
    let to = |read: usize, write: usize| Kernel::Mix { reads: vec![read], writes: vec![write] };
    let lower = |read, write| Kernel::Half { read, write, upper: false };
    let upper = |read, write| Kernel::Half { read, write, upper: true };
    let cases: Vec<(&str, Vec<Kernel>)> = vec![
        (
            "two branches and a join",
            vec![to(0, 2), to(1, 3), Kernel::Mix { reads: vec![2, 3], writes: vec![4] }],
        ),
        ("in place", vec![to(0, 2), Kernel::InPlace { reads: vec![], block: 2 }, to(2, 3)]),
        ("read, then overwritten", vec![to(0, 2), to(2, 3), to(1, 2), to(2, 4)]),
        (
            "scratch that both leave full",
            vec![
                Kernel::Through { read: 0, scratch: 5, write: 2 },
                Kernel::Through { read: 1, scratch: 5, write: 3 },
            ],
        ),
        (
            "scratch that both leave as it was",
            vec![
                Kernel::Tidy { read: 0, scratch: 5, write: 2 },
                Kernel::Tidy { read: 1, scratch: 5, write: 3 },
            ],
        ),
        (
            "a read that hides small differences",
            vec![to(0, 2), Kernel::Clamp { read: 2, write: 3, least: 200 }, to(3, 4)],
        ),
        (
            "a read that hides all differences",
            vec![to(0, 2), Kernel::Clamp { read: 2, write: 3, least: 255 }, to(3, 4)],
        ),
        (
            "a read that the data seldom asks for",
            vec![to(0, 2), Kernel::Rarely { read: 1, rare: 2, write: 3, below: 2 }],
        ),
        (
            "the same bytes at every replay",
            vec![Kernel::Constant { write: 2 }, Kernel::Mix { reads: vec![0, 2], writes: vec![3] }],
        ),
        (
            "the same bytes at every replay, beside something else",
            vec![
                to(0, 2),
                to(2, 3),
                Kernel::Constant { write: 4 },
                Kernel::Mix { reads: vec![1, 4], writes: vec![5] },
            ],
        ),
        (
            "a counter that is cleared, in front of what differs",
            vec![
                to(0, 5),
                to(5, 2),
                Kernel::Clear { write: 5 },
                Kernel::Counted { read: 1, counter: 5, write: 3 },
            ],
        ),
        ("writes nothing", vec![to(0, 2), Kernel::Silent { read: 2 }, to(1, 3)]),
        ("never twice the same", vec![to(0, 2), Kernel::Random { write: 3 }, to(1, 4)]),
        ("half a block over a whole one", vec![to(0, 2), upper(1, 2), to(2, 3)]),
        ("half a block each", vec![lower(0, 2), upper(1, 2), to(2, 3)]),
        ("half a block each, read by one of them", vec![lower(0, 2), upper(2, 2), to(2, 3)]),
        (
            "half a block each, one of them twice",
            vec![lower(0, 2), upper(1, 2), to(1, 4), upper(4, 2), to(2, 3)],
        ),
    ];
    let mut told = String::new();
    for (name, kernels) in cases {
        for zeros in [false, true] {
            let mut machine = Machine::new(kernels.clone(), read + write, 6);
            let recovered = observe_on(&mut machine, Limits { zeros, ..Limits::default() });
            told += &tell(name, zeros, &machine, &recovered);
        }
    }
    insta::assert_snapshot!(told);
}

/// Zeros over zeros are seen where nobody has written before, so that anything may lie there.
#[test]
fn zeros_in_fresh_memory() {
    let kernels = vec![
        Kernel::Mix { reads: vec![0], writes: vec![3] },
        Kernel::Clear { write: 2 },
        Kernel::Counted { read: 1, counter: 2, write: 4 },
    ];
    let edges = |fresh: bool| {
        let mut machine = Machine::new(kernels.clone(), 2, 5);
        machine.memory[2].fill(0);
        machine.fresh[2] = fresh;
        let recovered = observe_on(&mut machine, Limits::default());
        let edges: Vec<_> = recovered.graph.edges().map(|edge| (edge.from.0, edge.to.0)).collect();
        (recovered.observed[1].opaque, edges)
    };
    assert_eq!(edges(false), (Some(Opaque::NothingWritten), vec![(0, 1), (1, 2)]));
    assert_eq!(edges(true), (None, vec![(1, 2)]));
}

/// What becomes of kernels that share scratch memory: block 5.
#[test]
fn scratch_memory() {
    use Naming::{All, Nothing, Writes};
    let through = |read, write| Kernel::Through { read, scratch: 5, write };
    let to = |read: usize, write: usize| Kernel::Mix { reads: vec![read], writes: vec![write] };
    let pair = || vec![through(0, 2), to(2, 3), to(2, 3), through(1, 4)];
    let calls = || vec![to(0, 5), to(5, 2), to(2, 3), to(2, 3), to(1, 5), to(5, 4)];
    let close = vec![to(0, 5), to(5, 2), to(2, 3), to(1, 5), to(5, 4), to(3, 5), to(5, 2)];
    let counting = |read, write| Kernel::Counting { read, counter: 5, write };
    let clear = || Kernel::Clear { write: 5 };
    let counts =
        vec![clear(), to(0, 3), counting(0, 2), to(2, 3), clear(), to(1, 2), counting(1, 4)];
    let gap = vec![to(0, 5), to(0, 2), to(5, 3), to(3, 2), to(3, 2), through(1, 4)];
    let cases: Vec<(&str, Vec<Kernel>, Naming)> = vec![
        ("two kernels", pair(), All),
        ("two kernels, and no parameter names it", pair(), Nothing),
        ("two kernels, and where they read from is not named", pair(), Writes),
        ("two calls of two kernels", calls(), All),
        ("two calls of two kernels, and where they read from is not named", calls(), Writes),
        ("three calls with nothing or one node between them", close, All),
        ("two calls that only count there", counts, All),
        ("a call with something else in between", gap, All),
        (
            "a result that waits there for long",
            vec![
                to(0, 5),
                to(0, 2),
                to(0, 3),
                to(2, 4),
                to(5, 4),
                to(4, 3),
                to(4, 3),
                through(1, 2),
            ],
            All,
        ),
        (
            "something that waits there for the next replay",
            vec![to(5, 2), to(2, 3), to(1, 4), to(0, 5)],
            All,
        ),
        (
            "half of it each",
            vec![
                Kernel::Half { read: 0, write: 5, upper: true },
                to(5, 2),
                to(2, 3),
                to(2, 3),
                to(1, 5),
                to(5, 4),
            ],
            All,
        ),
        (
            "left as it was found",
            vec![
                Kernel::Tidy { read: 0, scratch: 5, write: 2 },
                to(2, 3),
                to(2, 3),
                Kernel::Tidy { read: 1, scratch: 5, write: 4 },
            ],
            All,
        ),
    ];
    let mut told = String::new();
    for (name, kernels, naming) in cases {
        let mut machine = Machine::new(kernels, 2, 6);
        machine.scratch[5] = true;
        machine.naming.fill(naming);
        let recovered = observe_on(&mut machine, Limits::default());
        assert!(!machine.endless, "{name}");
        told += &tell(name, false, &machine, &recovered);
        for private in &recovered.private {
            let nodes: Vec<_> = private.nodes.iter().map(|node| node.index()).collect();
            told += &format!("  {nodes:?} have a copy: {:?}\n", private.instead.own);
        }
    }
    insta::assert_snapshot!(told);
}

fn tell(name: &str, zeros: bool, machine: &Machine, recovered: &Recovered) -> String {
    let list = |pairs: &[(usize, usize)]| -> String {
        let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}→{b}")).collect();
        if pairs.is_empty() { "none".to_owned() } else { pairs.join(" ") }
    };
    let edges: Vec<_> =
        recovered.graph.edges().map(|edge| (edge.from.index(), edge.to.index())).collect();
    let missed: Vec<_> =
        recovered.missed.iter().map(|m| (m.before.index(), m.after.index())).collect();
    let open = open_conflicts(machine, &recovered.graph, |_| true);
    let mut told = format!("{name}{}\n", if zeros { ", zeros allowed" } else { "" });
    told += &format!("  order: {}; found by verification: {}\n", list(&edges), list(&missed));
    for (node, seen) in recovered.observed.iter().enumerate() {
        if let Some(opaque) = seen.opaque {
            told += &format!("  {node} keeps its place: {opaque}\n");
        }
        if !seen.assumed.is_empty() {
            told += &format!("  {node} may read {:?}\n", seen.assumed);
        }
    }
    told += &format!("  {:?}; conflicts left open: {}\n", recovered.verdict, list(&open));
    told
}

/// What was not seen is found by running other orders, and only what is needed is added.
#[test]
fn verification_finds_missing_orders() {
    let kernels = vec![
        Kernel::Mix { reads: vec![0], writes: vec![1] },
        Kernel::Mix { reads: vec![0], writes: vec![2] },
        Kernel::Rarely { read: 0, rare: 1, write: 3, below: 20 },
        Kernel::Mix { reads: vec![0], writes: vec![1] },
    ];
    let limits = Limits { rounds: 40, ..Limits::default() };
    let mut machine = Machine::new(kernels, 1, 4);
    let recovered = observe_on(&mut machine, limits);
    insta::assert_snapshot!(tell("rarely seen", false, &machine, &recovered));
}

/// A kernel that is excluded sees nothing but what captured order gives it; others are observed as ever.
#[test]
fn excluded_kernels_keep_their_place_and_their_bytes() {
    let to = |read: usize, write: usize| Kernel::Mix { reads: vec![read], writes: vec![write] };
    let waiting = |flag| Kernel::Waiting { read: 1, flag, write: 3 };
    let check = |what: &str, kernels: Vec<Kernel>, zeros, scratch, waits: usize| {
        for excluded in [false, true] {
            let mut machine = Machine::new(kernels.clone(), 2, 7);
            machine.excluded[waits] = excluded;
            machine.scratch[5] = scratch;
            let recovered = observe_on(&mut machine, Limits { zeros, ..Limits::default() });
            assert_eq!(machine.endless, !excluded, "{what}: {recovered:?}");
            let open = open_conflicts(&machine, &recovered.graph, |_| true);
            assert!(!excluded || open.is_empty(), "{what}: {open:?}");
        }
    };
    let reads = vec![to(0, 2), waiting(2), to(2, 4), to(3, 6)];
    check("zeros are tried", reads, true, false, 1);
    let both = Kernel::Mix { reads: vec![0], writes: vec![2, 5] };
    let late = vec![both, to(2, 4), to(2, 4), to(2, 4), waiting(5)];
    check("scratch is cleared", late, false, true, 4);
}
