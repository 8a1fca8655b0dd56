//! Where each step of a program with captures may fail, and what that leaves: the same in both modes of the CPU.

use crate::faults::check;

#[test]
fn every_step_fails_once_in_both_modes() {
    let software = check(crate::modes::software, "software graphs");
    let driver = check(crate::modes::driver, "driver");
    assert_eq!(software, driver);
    insta::assert_snapshot!(software);
}
