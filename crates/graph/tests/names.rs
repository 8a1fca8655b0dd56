//! Symbols come from files: none may hang, overflow the stack or fill memory.

use phonograph_graph::display_name;

#[test]
fn hostile_symbols_are_shown_as_they_are() {
    let same = |name: &str| assert_eq!(display_name(name), name);
    same("");
    same("_Z");
    same("_RNvCs_kernel");
    same(&format!("_Z{}", "N".repeat(100_000)));
    same(&format!("_Z1fP{}i", "P".repeat(4000)));
    // The parser of the demangler takes five minutes for this one unless its depth is bounded.
    same(&format!("_Z1fI{}Evi", "IdtLSt".repeat(15)));
    // Each argument repeats all that came before: 2^n without a bound.
    let doubling = (0..60).fold("_Z1fIiiE".to_owned(), |name, _| name + "S_IS_S_E");
    assert!(display_name(&doubling).len() <= 16_384);
    arbtest::arbtest(|u| {
        let mut name = String::from("_Z");
        while !u.is_empty() && name.len() < 4000 {
            name += *u.choose(&[
                "N", "E", "I", "J", "S_", "S0_", "S1_", "T_", "T0_", "1f", "2ab", "i", "P", "K",
                "L", "X", "Dp", "sr", "cl", "Li4E", "_Z", "v", "St", "F", "U", "M", "l", "A", "_",
                "dt", "pl",
            ])?;
        }
        assert!(display_name(&name).len() <= 16_384.max(name.len()));
        Ok(())
    })
    .budget_ms(500);
}
