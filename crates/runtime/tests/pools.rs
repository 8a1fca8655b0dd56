//! Pools of memory: slices never overlap, guarded pages serve nobody, the report adds up.

use std::collections::BTreeMap;

use arbtest::arbtest;
use phonograph_runtime::pool::{MAX_ALLOCATION, PageId, Pools, SizeClass, Slice};
use phonograph_runtime::streams::PooledStreamId;

#[test]
fn classes_hold_what_they_are_asked_for_and_waste_at_most_a_quarter() {
    for bytes in (0..70_000).chain([1 << 20, (1 << 20) + 1, 5 << 30, MAX_ALLOCATION]) {
        let class = SizeClass::of(bytes).unwrap();
        let slice = class.bytes();
        assert!(slice >= bytes && slice.is_multiple_of(256), "{bytes}: {slice}");
        assert!(bytes <= 1024 || (slice - bytes) * 4 <= bytes, "{bytes}: {slice}");
        assert_eq!(SizeClass::of(slice), Some(class), "{bytes}");
        assert_eq!(class.page_bytes(), class.slices() * slice);
    }
    assert_eq!(SizeClass::of(MAX_ALLOCATION + 1), None);
}

#[test]
fn fragmentation_is_reported_by_class() {
    let mut pools = Pools::default();
    let on = PooledStreamId(0);
    let class = SizeClass::of(1000).unwrap();
    let page = pools.grow(on, class, ());
    let slices: Vec<Slice> = (0..48).map(|_| pools.take(on, class, 1000).unwrap()).collect();
    let report = pools.report()[&(on, class)];
    assert_eq!((report.pages, report.page_bytes), (1, 64 * 1024));
    assert_eq!((report.held_bytes, report.requested_bytes), (48 * 1024, 48_000));
    assert_eq!((report.free_bytes, report.guarded_free_bytes), (16 * 1024, 0));
    assert_eq!(report.internal_fragmentation(), 24.0 / 1024.0);
    assert_eq!(report.external_fragmentation(), 0.25);
    pools.guard(page, None);
    let report = pools.report()[&(on, class)];
    assert_eq!((report.free_bytes, report.guarded_free_bytes), (0, 16 * 1024));
    assert_eq!(pools.take(on, class, 1000), None);
    pools.unguard(page, None);
    for slice in slices {
        pools.give_back(slice, 1000);
    }
    assert_eq!(pools.report()[&(on, class)].external_fragmentation(), 1.0);
    assert_eq!(pools.trim(|stream| stream == on), []);
    assert_eq!(pools.trim(|_| false), [(page, class, ())]);
    assert!(pools.report().is_empty());
}

#[test]
fn any_calls_keep_slices_apart_and_the_books_right() {
    arbtest(|u| {
        let mut pools: Pools<u64> = Pools::default();
        let mut held: Vec<(Slice, PooledStreamId, SizeClass, u64)> = Vec::new();
        let mut guards: BTreeMap<PageId, u32> = BTreeMap::new();
        let mut pages: Vec<PageId> = Vec::new();
        for _ in 0..u.int_in_range(0..=120)? {
            let on = PooledStreamId(u.int_in_range(0..=1)?);
            let bytes = *u.choose(&[1, 300, 40_000, 2 << 20])?;
            let class = SizeClass::of(bytes).unwrap();
            match u.int_in_range(0..=9)? {
                0..=4 => {
                    let available = pools.available(on, class);
                    match pools.take(on, class, bytes) {
                        Some(slice) => {
                            assert!(available > 0);
                            assert_eq!(pools.stream(slice.page), on);
                            assert_eq!(
                                guards.get(&slice.page),
                                None,
                                "a guarded page serves nobody"
                            );
                            assert!(slice.offset + bytes <= pools.bytes(slice.page));
                            assert!(held.iter().all(|(other, ..)| *other != slice));
                            held.push((slice, on, class, bytes));
                        }
                        None => {
                            assert_eq!(available, 0);
                            pages.push(pools.grow(on, class, class.page_bytes()));
                        }
                    }
                }
                5 | 6 if !held.is_empty() => {
                    let (slice, _, _, bytes) = held.swap_remove(u.choose_index(held.len())?);
                    pools.give_back(slice, bytes);
                }
                7 if !pages.is_empty() => {
                    let page = *u.choose(&pages)?;
                    pools.guard(page, None);
                    *guards.entry(page).or_default() += 1;
                }
                8 if !guards.is_empty() => {
                    let at = u.choose_index(guards.len())?;
                    let page = *guards.keys().nth(at).unwrap();
                    pools.unguard(page, None);
                    let left = guards[&page] - 1;
                    if left == 0 {
                        guards.remove(&page)
                    } else {
                        guards.insert(page, left)
                    };
                }
                9 => {
                    let kept = |page: &PageId| {
                        guards.contains_key(page)
                            || held.iter().any(|(slice, ..)| slice.page == *page)
                    };
                    let before = pages.len();
                    let keep = u.arbitrary::<bool>()?;
                    let idle = |page: &PageId| !(kept(page) || (keep && pools.stream(*page) == on));
                    pages.retain(|page| !idle(page));
                    let freed = pools.trim(|stream| keep && stream == on);
                    assert_eq!(freed.len(), before - pages.len());
                }
                _ => {}
            }
            let report = pools.report();
            let total = |of: fn(&phonograph_runtime::pool::ClassReport) -> u64| {
                report.values().map(of).sum::<u64>()
            };
            assert_eq!(total(|c| c.pages), pages.len() as u64);
            let requested: u64 = held.iter().map(|(.., bytes)| bytes).sum();
            assert_eq!(total(|c| c.requested_bytes), requested);
            assert_eq!(
                total(|c| c.held_bytes),
                held.iter().map(|(_, _, class, _)| class.bytes()).sum::<u64>()
            );
            let free = total(|c| c.free_bytes) + total(|c| c.guarded_free_bytes);
            assert_eq!(total(|c| c.page_bytes), total(|c| c.held_bytes) + free);
        }
        Ok(())
    })
    .budget_ms(500);
}
