//! Where each step of a program with captures may fail, and what that leaves: the same in every mode of the CPU.

use crate::faults::check;

#[test]
fn every_step_fails_once_in_every_mode() {
    let software = check(crate::modes::software, "software graphs");
    let driver = check(crate::modes::driver, "driver");
    assert_eq!(software, driver);
    assert_eq!(driver, check(crate::modes::late, "driver that tells late"));
    insta::assert_snapshot!(software);
}
