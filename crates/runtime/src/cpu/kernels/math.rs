//! exp, log, tanh and erf for f32 and f64, branch-free so that loops over them vectorise.
//!
//! No fused multiply-add and no table: every operation is a correctly rounded IEEE one, so that an element's
//! result depends on neither its place in a block nor the instructions that a CPU has. Coefficients are minimax
//! fits (Remez exchange in 50 digits) made for these reductions.
//!
//! | function | method |
//! | --- | --- |
//! | exp | x = n ln 2 + r; eʳ = 1 + r + r² q(r); 2ⁿ applied in two factors, so that subnormal results round once |
//! | log | x = 2ᵉ m, m in [√½, √2); f = m − 1, s = f / (2 + f); log m = f − (f²/2 − s (f²/2 + s² p(s²))) |
//! | tanh | t / (t + 2) with t = exp(2⎸x⎸) − 1, from the reduction of exp |
//! | erf | ⎸x⎸ < 1: x p(x²); else 1 − exp(−p(⎸x⎸ − 1)), p fitted to −log erfc |
//!
//! Largest errors over every f32, in units of the last place: exp 1.05, log 0.84, tanh 2.52, erf 2.76.

/// The functions, for one float type. NaN gives NaN; infinities and zeros give the limits.
pub(super) trait Math: Copy {
    fn exp(self) -> Self;
    fn log(self) -> Self;
    fn tanh(self) -> Self;
    fn erf(self) -> Self;
    fn floor(self) -> Self;
}

/// c₀ + x (c₁ + x (c₂ + …)), written out, because the vectoriser wants no inner loop.
macro_rules! horner {
    ($x:expr; $last:expr) => { $last };
    ($x:expr; $first:expr, $($rest:expr),+) => { $first + $x * horner!($x; $($rest),+) };
}

macro_rules! math {
    (
        $float:ident as $int:ident $uint:ident, mantissa $mantissa:literal, bias $bias:literal,
        ln2 $ln2_hi:literal + $ln2_lo:literal,
        exp within $exp_min:literal .. $exp_max:literal [$($exp:literal),+],
        log [$($log:literal),+],
        tanh is 1 from $tanh_max:literal,
        erf [$($near:expr),+] [$($far:literal),+] is 1 from $erf_max:literal
    ) => {
        const _: () = {
            /// x = n ln 2 + r with ⎸r⎸ at most ½ ln 2 (and a rounding). The product with the high part is exact.
            #[inline(always)]
            fn reduce(x: $float) -> ($int, $float) {
                // Adding 1.5 × 2^mantissa leaves the nearest integer in the low bits, in the rounding mode at hand.
                const MAGIC: $float = (3u64 << ($mantissa - 1)) as $float;
                let shifted = x * std::$float::consts::LOG2_E + MAGIC;
                let n = shifted - MAGIC;
                let bits = shifted.to_bits().wrapping_sub(MAGIC.to_bits()) as $int;
                (bits, (x - n * $ln2_hi) - n * $ln2_lo)
            }

            /// exp(r) - 1 for a reduced r.
            #[inline(always)]
            fn exp_m1(r: $float) -> $float {
                r + r * r * (horner!(r; $($exp),+))
            }

            /// 2ⁿ, for n that a normal number has.
            #[inline(always)]
            fn power(n: $int) -> $float {
                $float::from_bits((n.wrapping_add($bias) as $uint) << $mantissa)
            }

            impl Math for $float {
                #[inline(always)]
                fn exp(self) -> Self {
                    let x = if self > $exp_max { $exp_max } else { self };
                    let x = if x < $exp_min { $exp_min } else { x };
                    let (n, r) = reduce(x);
                    let half = n >> 1;
                    (1.0 + exp_m1(r)) * power(half) * power(n.wrapping_sub(half))
                }

                #[inline(always)]
                fn log(self) -> Self {
                    const NORMALISE: $float = (1u64 << ($mantissa + 1)) as $float;
                    const ROOT: $uint = std::$float::consts::FRAC_1_SQRT_2.to_bits();
                    const ONE: $uint = (1.0 as $float).to_bits();
                    let subnormal = self < $float::MIN_POSITIVE;
                    let x = if subnormal { self * NORMALISE } else { self };
                    let shift: $int = if subnormal { $mantissa + 1 + $bias } else { $bias };
                    // The exponent steps at √½ instead of at 1, so that m is as near to 1 as it can be.
                    let bits = x.to_bits().wrapping_add(ONE - ROOT);
                    let e = ((bits >> $mantissa) as $int).wrapping_sub(shift) as $float;
                    let m = $float::from_bits((bits & ((1 << $mantissa) - 1)).wrapping_add(ROOT));
                    let f = m - 1.0;
                    let s = f / (2.0 + f);
                    let z = s * s;
                    let p = z * (horner!(z; $($log),+));
                    let half = 0.5 * f * f;
                    let log = e * $ln2_hi - ((half - (s * (half + p) + e * $ln2_lo)) - f);
                    let log = if self == $float::INFINITY { self } else { log };
                    let log = if self == 0.0 { $float::NEG_INFINITY } else { log };
                    if self >= 0.0 { log } else { $float::NAN }
                }

                #[inline(always)]
                fn tanh(self) -> Self {
                    let x = self.abs();
                    let x = if x > $tanh_max { $tanh_max } else { x };
                    let (n, r) = reduce(x + x);
                    let scale = power(n);
                    let t = scale * exp_m1(r) + (scale - 1.0);
                    (t / (t + 2.0)).copysign(self)
                }

                #[inline(always)]
                fn erf(self) -> Self {
                    let x = self.abs();
                    let z = self * self;
                    let near = self * (horner!(z; $($near),+));
                    let x = if x > $erf_max { $erf_max } else { x };
                    let t = x - 1.0;
                    let far = 1.0 - Math::exp(-(horner!(t; $($far),+)));
                    if x < 1.0 { near } else { far.copysign(self) }
                }

                #[inline(always)]
                fn floor(self) -> Self {
                    // From 2^mantissa on, every number is whole; below, adding and subtracting it rounds to the nearest
                    // whole number without an instruction that the oldest CPUs lack.
                    const WHOLE: $float = (1u64 << $mantissa) as $float;
                    let x = self.abs();
                    let nearest = ((x + WHOLE) - WHOLE).copysign(self);
                    let below = if nearest > self { nearest - 1.0 } else { nearest };
                    if x < WHOLE { below } else { self }
                }
            }
        };
    };
}

math! {
    f32 as i32 u32, mantissa 23, bias 127,
    ln2 0.693_359_4 + -2.1219444e-4,
    exp within -104.0 .. 89.0 [0.5, 1.6666577e-1, 4.1666375e-2, 8.363205e-3, 1.3941166e-3],
    log [6.6666685e-1, 3.998867e-1, 2.9584266e-1],
    tanh is 1 from 10.0,
    erf [std::f32::consts::FRAC_2_SQRT_PI, -3.7612626e-1, 1.1283585e-1, -2.6853812e-2, 5.1883277e-3, -8.0101935e-4, 7.853861e-5]
        [1.8496055, 2.638967, 8.431176e-1, 4.1503497e-2, -9.89546e-3, 1.8293824e-3, -1.8637897e-4]
        is 1 from 4.0
}

math! {
    f64 as i64 u64, mantissa 52, bias 1023,
    ln2 0.6931471803691238 + 1.9082149292705877e-10,
    exp within -746.0 .. 710.0 [
        0.5000000000000001, 0.16666666666666674, 0.04166666666662399, 0.00833333333332217,
        0.0013888888917283474, 0.00019841269886701975, 2.480152118799987e-05, 2.7557242211534724e-06,
        2.762013963881873e-07, 2.5110096949930776e-08
    ],
    log [
        0.666666666666667, 0.3999999999989718, 0.2857142862697128, 0.22222210979773685,
        0.18182899979754816, 0.1533137280682971, 0.1462063680798987
    ],
    tanh is 1 from 22.0,
    erf [
        std::f64::consts::FRAC_2_SQRT_PI, -0.3761263890318352, 0.11283791670944185, -0.02686617064311146,
        0.005223977606118426, -0.0008548325929311893, 0.00012055293576816174, -1.492471230029015e-05,
        1.6447131549126013e-06, -1.6206313583187198e-07, 1.3710979620445635e-08, -7.779467009284168e-10
    ] [
        1.8496055099332485, 2.638967514234732, 0.8431072563618531, 0.04156109797268619,
        -0.010033824605615157, 0.0019778975192269324, -0.00023730116063274797, -2.6339040029148117e-05,
        2.728274734820228e-05, -9.789308188473948e-06, 2.2526998373524993e-06, -2.952041476445358e-07,
        -8.735050207324029e-09, 1.4101316329833382e-08, -3.2508165415896526e-09, 3.685687927733754e-10,
        -1.770541301539279e-11
    ] is 1 from 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance of `value` from `exact` in units of the last place that f32 has there.
    fn ulps_f32(value: f32, exact: f64) -> f64 {
        if value.is_nan() && exact.is_nan() || f64::from(value) == exact {
            return 0.0;
        }
        if value.is_infinite() && exact.abs() > f32::MAX.into() {
            return 0.0;
        }
        let exponent = libm::frexp(exact).1.max(-125);
        (f64::from(value) - exact).abs() / libm::ldexp(1.0, exponent - 24)
    }

    /// As above for f64, against a reference that is itself rounded.
    fn ulps_f64(value: f64, reference: f64) -> f64 {
        if value.is_nan() && reference.is_nan() || value == reference {
            return 0.0;
        }
        let exponent = libm::frexp(reference).1.max(-1021);
        (value - reference).abs() / libm::ldexp(1.0, exponent - 53)
    }

    /// A sample of all f32, every exponent and both signs.
    const STEP: usize = 4093;

    #[test]
    #[cfg_attr(miri, ignore = "too many elements to interpret")]
    fn f32_errors_are_bounded() {
        let check = |name: &str, ours: fn(f32) -> f32, exact: fn(f64) -> f64, bound: f64| {
            let worst = (0..=u32::MAX)
                .step_by(STEP)
                .map(f32::from_bits)
                .map(|x| (ulps_f32(ours(x), exact(x.into())), x))
                .fold((0.0, 0.0), |a, b| if b.0 <= a.0 { a } else { b });
            assert!(worst.0 <= bound, "{name}({:e}) is {} ulp off", worst.1, worst.0);
        };
        check("exp", Math::exp, libm::exp, 1.1);
        check("log", Math::log, libm::log, 1.0);
        check("tanh", Math::tanh, libm::tanh, 3.0);
        check("erf", Math::erf, libm::erf, 3.0);
        check("floor", Math::floor, libm::floor, 0.0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many elements to interpret")]
    fn f64_errors_are_bounded() {
        let check = |name: &str, ours: fn(f64) -> f64, reference: fn(f64) -> f64, bound: f64| {
            // All exponents coarsely, and the ranges where the functions are interesting finely.
            let coarse =
                (0..400_000u64).map(|i| f64::from_bits(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let fine = (-400_000..400_000i64).map(|i| i as f64 * 1.000_037e-3 * 1.9);
            let small = (-200_000..200_000i64).map(|i| i as f64 * 3.1e-5);
            let worst = coarse
                .chain(fine)
                .chain(small)
                .map(|x| (ulps_f64(ours(x), reference(x)), x))
                .fold((0.0, 0.0), |a, b| if b.0 <= a.0 { a } else { b });
            assert!(worst.0 <= bound, "{name}({:e}) is {} ulp off", worst.1, worst.0);
        };
        check("exp", Math::exp, libm::exp, 2.0);
        check("log", Math::log, libm::log, 2.0);
        check("tanh", Math::tanh, libm::tanh, 4.0);
        check("erf", Math::erf, libm::erf, 3.0);
        check("floor", Math::floor, libm::floor, 0.0);
    }

    #[test]
    fn special_values_are_the_limits() {
        macro_rules! check {
            ($($t:ident)*) => {$(
                let (inf, nan) = ($t::INFINITY, $t::NAN);
                let tiny = $t::from_bits(1);
                for (function, x, y) in [
                    (Math::exp as fn($t) -> $t, inf, inf),
                    (Math::exp, -inf, 0.0),
                    (Math::exp, 0.0, 1.0),
                    (Math::exp, nan, nan),
                    (Math::exp, $t::MAX, inf),
                    (Math::exp, $t::MIN, 0.0),
                    (Math::log, inf, inf),
                    (Math::log, 0.0, -inf),
                    (Math::log, -0.0, -inf),
                    (Math::log, 1.0, 0.0),
                    (Math::log, -tiny, nan),
                    (Math::log, -inf, nan),
                    (Math::log, nan, nan),
                    (Math::tanh, inf, 1.0),
                    (Math::tanh, -inf, -1.0),
                    (Math::tanh, -0.0, -0.0),
                    (Math::tanh, tiny, tiny),
                    (Math::tanh, nan, nan),
                    (Math::erf, inf, 1.0),
                    (Math::erf, -inf, -1.0),
                    (Math::erf, -0.0, -0.0),
                    (Math::erf, tiny, tiny),
                    (Math::erf, nan, nan),
                    (Math::floor, -0.0, -0.0),
                    (Math::floor, -inf, -inf),
                    (Math::floor, nan, nan),
                ] {
                    let value = function(x);
                    let same = value.to_bits() == y.to_bits() || value.is_nan() && y.is_nan();
                    assert!(same, "{} of {x}: {value} instead of {y}", stringify!($t));
                }
            )*};
        }
        check!(f32 f64);
    }
}
