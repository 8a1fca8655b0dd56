//! Placement of lifetimes: right always, as low as brute force finds, at the bound on the published instances.

use std::path::Path;

use arbtest::arbitrary::Unstructured;
use arbtest::arbtest;
use phonograph_plan::memory::{
    Budget, Lifetime, LifetimeId, Lifetimes, PlacementError, from_csv, greedy, place, prove,
};

fn live(lower: i64, upper: i64, bytes: u64) -> Lifetime {
    Lifetime { lower, upper, bytes }
}

/// The least peak of all placements: every order, each at the lowest free place. (Any placement pushed down is the
/// one that first fit makes of the order of its offsets.)
fn least_peak(lifetimes: &[Lifetime]) -> u64 {
    fn extend(lifetimes: &[Lifetime], offsets: &mut Vec<Option<u64>>, peak: u64, best: &mut u64) {
        if peak >= *best {
            return;
        }
        if offsets.iter().all(Option::is_some) {
            *best = peak;
            return;
        }
        for next in 0..lifetimes.len() {
            if offsets[next].is_some() {
                continue;
            }
            let mut taken: Vec<(u64, u64)> = (0..lifetimes.len())
                .filter(|&other| lifetimes[other].meets(&lifetimes[next]))
                .filter_map(|other| offsets[other].map(|at| (at, at + lifetimes[other].bytes)))
                .collect();
            taken.sort_unstable();
            let bytes = lifetimes[next].bytes;
            let at = taken.iter().fold(
                0,
                |at, &(start, end)| {
                    if at + bytes <= start { at } else { at.max(end) }
                },
            );
            offsets[next] = Some(at);
            extend(lifetimes, offsets, peak.max(at + bytes), best);
            offsets[next] = None;
        }
    }
    let mut best = u64::MAX;
    extend(lifetimes, &mut vec![None; lifetimes.len()], 0, &mut best);
    best
}

fn lifetimes(u: &mut Unstructured<'_>, most: usize) -> arbtest::arbitrary::Result<Vec<Lifetime>> {
    let moments = u.int_in_range(1..=8)?;
    let sizes = u.int_in_range(1..=12)?;
    (0..u.int_in_range(0..=most)?)
        .map(|_| {
            let lower = u.int_in_range(-2..=moments)?;
            let length = u.int_in_range(1..=moments)?;
            Ok(live(lower, lower + length, u.int_in_range(0..=sizes)?))
        })
        .collect()
}

#[test]
fn small_placements_are_as_low_as_any() {
    arbtest(|u| {
        let list = lifetimes(u, 7)?;
        let all = Lifetimes::new(list.clone()).unwrap();
        let placement = place(&all, None, &mut Budget::new(u64::MAX, &mut || false));
        assert_eq!(prove(&all, &placement.offsets), Ok(placement.peak));
        assert_eq!(placement.peak, least_peak(&list), "{list:?}");
        assert!(placement.complete && placement.lower_bound <= placement.peak);
        Ok(())
    })
    .budget_ms(1000);
}

#[test]
fn placements_are_right_at_any_budget_and_capacity() {
    arbtest(|u| {
        let list = Lifetimes::new(lifetimes(u, 60)?).unwrap();
        let steps = u.int_in_range(0..=2000)?;
        let capacity = u.arbitrary::<bool>()?.then(|| list.lower_bound() + steps % 7);
        for placement in [
            place(&list, capacity, &mut Budget::new(steps, &mut || false)),
            greedy(&list, &mut Budget::new(steps, &mut || false)),
        ] {
            assert_eq!(prove(&list, &placement.offsets), Ok(placement.peak));
            assert_eq!(placement.lower_bound, list.lower_bound());
        }
        Ok(())
    })
    .budget_ms(500);
}

#[test]
fn a_proof_finds_every_shared_byte() {
    let pair = |second| Lifetimes::new(vec![live(0, 4, 8), second]).unwrap();
    let overlap = Err(PlacementError::Overlap { first: LifetimeId(0), second: LifetimeId(1) });
    let check = |second, offset, expected| {
        assert_eq!(prove(&pair(second), &[8, offset]), expected, "{second:?} at {offset}");
    };
    check(live(3, 5, 8), 0, Ok(16));
    check(live(3, 5, 9), 0, overlap);
    check(live(3, 5, 1), 15, overlap);
    check(live(3, 5, 1), 8, overlap);
    check(live(3, 5, 1), 16, Ok(17));
    check(live(3, 5, 0), 8, Ok(16));
    check(live(4, 5, 8), 8, Ok(16));
    check(
        live(3, 5, 1),
        u64::MAX,
        Err(PlacementError::OutOfRange { id: LifetimeId(1), offset: u64::MAX }),
    );
    assert!(matches!(prove(&pair(live(3, 5, 1)), &[0]), Err(PlacementError::Count { .. })));
}

/// Cuts a rectangle of `bytes` by `moments` into this many lifetimes, which therefore fit it exactly.
fn cut(u: &mut Unstructured<'_>, pieces: usize) -> arbtest::arbitrary::Result<Vec<Lifetime>> {
    let mut whole = vec![live(0, 1024, 1 << 20)];
    while whole.len() < pieces {
        // The largest first, so that none ends up as a crumb of all the others.
        let area = |l: &Lifetime| (l.upper - l.lower) as u64 * l.bytes;
        let Some(at) = (0..whole.len()).max_by_key(|&at| area(&whole[at])) else { break };
        let Lifetime { lower, upper, bytes } = whole[at];
        let share = u.int_in_range(1..=7)?;
        let in_time = upper - lower >= 8 && (bytes < 2048 || u.arbitrary()?);
        let (first, second) = if in_time {
            let middle = lower + (upper - lower) * share / 8;
            (live(lower, middle, bytes), live(middle, upper, bytes))
        } else {
            let below = bytes / 8 * share as u64;
            (live(lower, upper, below), live(lower, upper, bytes - below))
        };
        whole[at] = first;
        whole.push(second);
    }
    Ok(whole)
}

#[test]
fn what_was_cut_from_a_rectangle_is_placed_in_it_again() {
    arbtest(|u| {
        let pieces = u.int_in_range(2..=60)?;
        let lifetimes = Lifetimes::new(cut(u, pieces)?).unwrap();
        assert_eq!(lifetimes.lower_bound(), 1 << 20);
        let placement = place(&lifetimes, None, &mut Budget::new(20_000, &mut || false));
        assert_eq!(prove(&lifetimes, &placement.offsets), Ok(placement.peak));
        // Few are always found; of many the search may run out of steps, and says so.
        let found = placement.peak == 1 << 20;
        assert!(found || pieces > 16 && !placement.complete, "{pieces}: {}", placement.peak);
        Ok(())
    })
    .budget_ms(1000);
}

/// One of the instances that the authors of MiniMalloc publish (<https://github.com/google/minimalloc>,
/// `benchmarks/challenging`), in the folder that `PHONOGRAPH_MINIMALLOC` names.
fn instance(name: &str) -> Option<Lifetimes> {
    let Some(folder) = std::env::var_os("PHONOGRAPH_MINIMALLOC") else {
        println!("skipped: PHONOGRAPH_MINIMALLOC names no folder with MiniMalloc's instances");
        return None;
    };
    let file = Path::new(&folder).join(format!("{name}.1048576.csv"));
    let bytes = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    Some(from_csv(&bytes).unwrap().lifetimes)
}

#[test]
fn published_instances_are_placed_at_their_bounds() {
    // Name, capacity asked for, steps that are enough.
    let cases = [
        ("A", 1_048_576, 20_000),
        ("B", 1_048_576, 20_000),
        ("C", 1_039_360, 20_000),
        ("D", 1_048_576, 50_000),
        ("E", 1_048_576, 200_000),
        ("F", 1_048_576, 50_000),
        ("G", 1_048_576, 20_000),
        ("H", 1_048_576, 50_000),
        ("J", 1_048_576, 50_000),
        ("K", 1_048_576, 50_000),
    ];
    for (name, capacity, steps) in cases {
        let Some(lifetimes) = instance(name) else { return };
        let placement = place(&lifetimes, Some(capacity), &mut Budget::new(steps, &mut || false));
        assert_eq!(prove(&lifetimes, &placement.offsets), Ok(placement.peak));
        assert!(placement.peak <= capacity && placement.complete, "{name}: {}", placement.peak);
    }
}

#[test]
fn greedy_placement_is_near_the_bounds_of_published_instances() {
    for name in ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"] {
        let Some(lifetimes) = instance(name) else { return };
        let placement = greedy(&lifetimes, &mut Budget::new(20_000, &mut || false));
        let peak = prove(&lifetimes, &placement.offsets).unwrap();
        assert!(peak * 4 <= placement.lower_bound * 5, "{name}: {peak}");
    }
}

#[test]
fn a_hundred_thousand_lifetimes_are_placed_in_time() {
    let list = (0..100_000i64).map(|at| {
        let length = if at % 50 == 0 { 20_000 } else { 1 + at * 37 % 211 };
        live(at, at + length, 64 * (1 + at as u64 * 7919 % 977))
    });
    let lifetimes = Lifetimes::new(list.collect()).unwrap();
    let placement = place(&lifetimes, None, &mut Budget::new(10_000, &mut || false));
    assert_eq!(prove(&lifetimes, &placement.offsets), Ok(placement.peak));
    assert!(placement.peak * 10 <= placement.lower_bound * 12, "{}", placement.peak);
}

#[test]
fn errors_in_files_tell_the_place() {
    let check = |text: &[u8], expected: &str| {
        assert_eq!(from_csv(text).unwrap_err().to_string(), expected, "{text:?}");
    };
    check(b"", "1:1: expected the header id,lower,upper,size; the file is empty");
    check(b"\n \n", "1:1: expected the header id,lower,upper,size; the file is empty");
    check(b"id,lower,upper\n", "1:15: column size is missing");
    check(b"id,lower,upper,upper\n", "1:16: column upper is named twice");
    check(
        b"id,lower,begin,size\n",
        "1:10: \"begin\" is no column of lifetimes, which are id, lower, upper and size",
    );
    let header = b"id,lower,upper,size\n";
    let with = |line: &[u8]| [header.as_slice(), line].concat();
    check(&with(b"a,0,1\n"), "2:6: expected 4 fields, found 3");
    check(&with(b"a,0,1,2,3\n"), "2:9: expected 4 fields, found 5");
    check(&with(b"a,0,1,2\n\na,1,2,2"), "4:1: id \"a\" is taken by line 2");
    check(&with(b"a,0,x,2\n"), "2:5: upper must be a whole number of 64 bits, found \"x\"");
    check(
        &with(b"a, 0, 1, -2\n"),
        "2:10: size must be a whole number from 0 on, of 64 bits, found \"-2\"",
    );
    check(&with(b"a,0,1,\xff\n"), "2:7: the text is not UTF-8");
    check(
        &with(b"a,0,1,2\nb,3,3,2\n"),
        "3:1: lifetime 1 ends at 3, which is not after its start at 3",
    );
    let large = u64::MAX / 2;
    let large = format!("a,0,1,2\nb,1,3,{large}\n");
    check(
        &with(large.as_bytes()),
        "3:1: up to lifetime 1 the sizes add up to more than 4611686018427387904 bytes",
    );
}

#[test]
fn columns_may_come_in_any_order() {
    let read = from_csv(b" size ,id,upper,lower\r\n7,x,3,-1\r\n").unwrap();
    assert_eq!(
        (read.ids, read.lifetimes.as_slice()),
        (vec!["x".to_owned()], &[live(-1, 3, 7)][..])
    );
}

#[test]
fn a_mark_of_utf_8_before_the_header_is_passed_over() {
    let read = from_csv("\u{feff}id,lower,upper,size\nx,-1,3,7\n".as_bytes()).unwrap();
    assert_eq!(read.lifetimes.as_slice(), &[live(-1, 3, 7)][..]);
}

#[test]
fn any_bytes_are_read_or_refused() {
    arbtest(|u| {
        let mut text = b"id,lower,upper,size\n".to_vec();
        while !u.is_empty() && text.len() < 400 {
            let piece: &[u8] = match u.int_in_range(0..=9)? {
                0 => b"\n",
                1..=3 => b",",
                4 => b"-",
                5 => b"18446744073709551615",
                6 => &[u.arbitrary()?],
                digit => &b"0123456789"[digit as usize..][..1],
            };
            text.extend_from_slice(piece);
            if u.ratio(1, 50)? {
                let at = u.choose_index(text.len())?;
                text[at] = u.arbitrary()?;
            }
        }
        match from_csv(&text) {
            Ok(read) => {
                let placement = place(&read.lifetimes, None, &mut Budget::new(50, &mut || false));
                assert_eq!(prove(&read.lifetimes, &placement.offsets), Ok(placement.peak));
            }
            Err(error) => {
                let lines = text.split(|&byte| byte == b'\n').collect::<Vec<_>>();
                assert!(error.column >= 1 && error.column <= lines[error.line - 1].len() + 1);
            }
        }
        Ok(())
    })
    .budget_ms(500);
}
