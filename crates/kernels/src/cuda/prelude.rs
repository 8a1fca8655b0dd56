//! What every source begins with: types, conversions, integer arithmetic, the transcendental functions and Philox.
//!
//! Plain C++ but for the attributes, so that a test can compile it for the CPU and compare the bits.

/// The beginning of a source whose parameters end in a structure of so many words.
/// With `enter`, kernels can depend on others by weak edges.
pub(super) fn with_words(words: usize, enters: bool) -> String {
    let enter = if enters { ENTER } else { "" };
    format!("{TYPES}{enter}struct Words {{ u64 w[{words}]; }};\n\n")
}

/// As [`with_words`], with the functions that only expressions use: compiling them takes longer than all the rest.
pub(super) fn with_functions(words: usize, enters: bool) -> String {
    let float = |text: &str, float: &Float| {
        // Longer names first: some begin as others do.
        text.replace("$MANTISSA", float.mantissa)
            .replace("$BIAS", float.bias)
            .replace("$LN2_HI", float.ln2_hi)
            .replace("$LN2_LO", float.ln2_lo)
            .replace("$LOG2_E", float.log2_e)
            .replace("$EXP_MIN", float.exp_min)
            .replace("$EXP_MAX", float.exp_max)
            .replace("$TANH_MAX", float.tanh_max)
            .replace("$ERF_MAX", float.erf_max)
            .replace("$ROOT", float.root)
            .replace("$ONE", float.one)
            .replace("$TINY", float.tiny)
            .replace("$INFINITY", float.infinity)
            .replace("$NAN", float.nan)
            .replace("$EXP", &horner("r", float.exp))
            .replace("$LOG", &horner("z", float.log))
            .replace("$NEAR", &horner("z", float.near))
            .replace("$FAR", &horner("t", float.far))
            .replace("$F", float.name)
            .replace("$I", float.signed)
            .replace("$U", float.unsigned)
            .replace("$f", float.suffix)
    };
    [&with_words(words, enters), &float(MATH, &F32), &float(MATH, &F64), PHILOX].concat()
}

/// c₀ + x (c₁ + x (c₂ + …)).
fn horner(x: &str, coefficients: &[&str]) -> String {
    let (last, first) = coefficients.split_last().expect("a polynomial has coefficients");
    first.iter().rev().fold((*last).to_owned(), |inner, c| format!("{c} + {x} * ({inner})"))
}

const ENTER: &str = r#"// A kernel that depends on others by a weak edge waits here for them; one that others depend on so lets them start.
FN void enter() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

"#;

const TYPES: &str = r#"typedef float f32;
typedef double f64;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define FN static __device__ __forceinline__

FN f32 f32_of(u32 bits) { union { u32 u; f32 f; } x; x.u = bits; return x.f; }
FN f64 f64_of(u64 bits) { union { u64 u; f64 f; } x; x.u = bits; return x.f; }
FN u32 bits_of(f32 value) { union { u32 u; f32 f; } x; x.f = value; return x.u; }
FN u64 bits_of(f64 value) { union { u64 u; f64 f; } x; x.f = value; return x.u; }

FN u8 load_bool(u8 raw) { return raw != 0; }
FN f32 load_bf16(u16 raw) { return f32_of((u32)raw << 16); }
FN u16 store_bf16(f32 value) {
    const u32 bits = bits_of(value);
    const u32 rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return (u16)((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded);
}
FN f32 load_f16(u16 raw) {
    const u32 magnitude = raw & 0x7fffu, sign = (raw & 0x8000u) << 16;
    // The bits moved to their place in an f32 stand for 2^-112 of the value, subnormals included.
    const f32 finite = f32_of(magnitude << 13) * f32_of((127u + 112u) << 23);
    const u32 special = magnitude << 13 | 0x7f800000u;
    return f32_of((magnitude >= 0x7c00u ? special : bits_of(finite)) | sign);
}
FN u16 store_f16(f32 value) {
    const u32 bits = bits_of(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    const u32 normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    // One half has its last place where subnormal results have theirs, so adding it rounds there.
    const u32 subnormal = bits_of(f32_of(magnitude) + 0.5f) - 0x3f000000u;
    const u32 special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    const u32 finite = magnitude < 0x38800000u ? subnormal : normal;
    return (u16)((magnitude >= 0x47800000u ? special : finite) | sign);
}

FN i32 neg(i32 a) { return (i32)(0u - (u32)a); }
FN i64 neg(i64 a) { return (i64)(0ull - (u64)a); }
FN i32 quotient(i32 a, i32 b) { return b == 0 ? 0 : b == -1 ? neg(a) : a / b; }
FN i64 quotient(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? neg(a) : a / b; }
FN u32 quotient(u32 a, u32 b) { return b == 0 ? 0 : a / b; }
FN i32 modulo(i32 a, i32 b) { return b == 0 || b == -1 ? 0 : a % b; }
FN i64 modulo(i64 a, i64 b) { return b == 0 || b == -1 ? 0 : a % b; }
FN u32 modulo(u32 a, u32 b) { return b == 0 ? 0 : a % b; }

// Truncation that saturates; a comparison with NaN is false.
FN i32 to_i32(f64 a) { return a >= 2147483648.0 ? 0x7fffffff : a > -2147483649.0 ? (i32)a : a != a ? 0 : (i32)0x80000000u; }
FN u32 to_u32(f64 a) { return a >= 4294967296.0 ? 0xffffffffu : a > -1.0 ? (u32)a : 0u; }
FN i64 to_i64(f64 a) {
    return a >= 9223372036854775808.0 ? 0x7fffffffffffffffll
        : a >= -9223372036854775808.0 ? (i64)a : a != a ? 0ll : (i64)0x8000000000000000ull;
}

"#;

const MATH: &str = r#"// x = n ln 2 + r; adding 1.5 * 2^mantissa leaves n in the low bits.
FN $I $F_reduce($F x, $F *r) {
    const $F magic = ($F)(3ull << ($MANTISSA - 1));
    const $F shifted = x * $LOG2_E + magic, n = shifted - magic;
    *r = (x - n * $LN2_HI) - n * $LN2_LO;
    return ($I)(bits_of(shifted) - bits_of(magic));
}
FN $F $F_exp_m1($F r) { return r + r * r * ($EXP); }
FN $F $F_power($I n) { return $F_of(($U)(n + $BIAS) << $MANTISSA); }
FN $F $F_exp($F a) {
    $F x = a > $EXP_MAX ? $EXP_MAX : a, r;
    x = x < $EXP_MIN ? $EXP_MIN : x;
    const $I n = $F_reduce(x, &r), half = n >> 1;
    return (1.0$f + $F_exp_m1(r)) * $F_power(half) * $F_power(n - half);
}
FN $F $F_log($F a) {
    const bool subnormal = a < $F_of($TINY);
    const $F x = subnormal ? a * ($F)(1ull << ($MANTISSA + 1)) : a;
    const $U bits = bits_of(x) + ($ONE - $ROOT);
    const $F e = ($F)(($I)(bits >> $MANTISSA) - (subnormal ? $MANTISSA + 1 + $BIAS : $BIAS));
    const $F m = $F_of((bits & ((($U)1 << $MANTISSA) - 1)) + $ROOT);
    const $F f = m - 1.0$f, s = f / (2.0$f + f), z = s * s, p = z * ($LOG), half = 0.5$f * f * f;
    const $F log = e * $LN2_HI - ((half - (s * (half + p) + e * $LN2_LO)) - f);
    const $F limit = a == $F_of($INFINITY) ? a : a == 0.0$f ? -$F_of($INFINITY) : log;
    return a >= 0.0$f ? limit : $F_of($NAN);
}
FN $F $F_tanh($F a) {
    $F x = fabs$f(a), r;
    x = x > $TANH_MAX ? $TANH_MAX : x;
    const $I n = $F_reduce(x + x, &r);
    const $F scale = $F_power(n), t = scale * $F_exp_m1(r) + (scale - 1.0$f);
    return copysign$f(t / (t + 2.0$f), a);
}
FN $F $F_erf($F a) {
    const $F x = fabs$f(a), z = a * a, near = a * ($NEAR);
    const $F t = (x > $ERF_MAX ? $ERF_MAX : x) - 1.0$f, far = 1.0$f - $F_exp(-($FAR));
    return x < 1.0$f ? near : copysign$f(far, a);
}

"#;

const PHILOX: &str = r#"FN u32 philox(u32 index, u32 counter, u32 key) {
    u32 x0 = index / 4u, x1 = counter, x2 = 0u, x3 = 0u, k0 = key, k1 = 0u;
    for (int round = 0; round < 10; round++) {
        const u64 p = (u64)0xd2511f53u * x0, q = (u64)0xcd9e8d57u * x2;
        x0 = (u32)(q >> 32) ^ x1 ^ k0;
        x1 = (u32)q;
        x2 = (u32)(p >> 32) ^ x3 ^ k1;
        x3 = (u32)p;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    const u32 word = index % 4u;
    return word == 0u ? x0 : word == 1u ? x1 : word == 2u ? x2 : x3;
}

"#;

/// A float type and the coefficients of its functions: the CPU backend's, which explains them.
struct Float {
    name: &'static str,
    signed: &'static str,
    unsigned: &'static str,
    /// Suffix of literals and functions.
    suffix: &'static str,
    mantissa: &'static str,
    bias: &'static str,
    ln2_hi: &'static str,
    ln2_lo: &'static str,
    log2_e: &'static str,
    exp_min: &'static str,
    exp_max: &'static str,
    tanh_max: &'static str,
    erf_max: &'static str,
    /// Bits of the square root of one half, of 1, of the least normal number, of infinity and of a NaN.
    root: &'static str,
    one: &'static str,
    tiny: &'static str,
    infinity: &'static str,
    nan: &'static str,
    exp: &'static [&'static str],
    log: &'static [&'static str],
    near: &'static [&'static str],
    far: &'static [&'static str],
}

const F32: Float = Float {
    name: "f32",
    signed: "i32",
    unsigned: "u32",
    suffix: "f",
    mantissa: "23",
    bias: "127",
    ln2_hi: "0.6933594f",
    ln2_lo: "-2.1219444e-4f",
    log2_e: "1.44269504f",
    exp_min: "-104.0f",
    exp_max: "89.0f",
    tanh_max: "10.0f",
    erf_max: "4.0f",
    root: "0x3f3504f3u",
    one: "0x3f800000u",
    tiny: "0x00800000u",
    infinity: "0x7f800000u",
    nan: "0x7fc00000u",
    exp: &["0.5f", "1.6666577e-1f", "4.1666375e-2f", "8.363205e-3f", "1.3941166e-3f"],
    log: &["6.6666685e-1f", "3.998867e-1f", "2.9584266e-1f"],
    near: &[
        "1.12837917f",
        "-3.7612626e-1f",
        "1.1283585e-1f",
        "-2.6853812e-2f",
        "5.1883277e-3f",
        "-8.0101935e-4f",
        "7.853861e-5f",
    ],
    far: &[
        "1.8496055f",
        "2.638967f",
        "8.431176e-1f",
        "4.1503497e-2f",
        "-9.89546e-3f",
        "1.8293824e-3f",
        "-1.8637897e-4f",
    ],
};

const F64: Float = Float {
    name: "f64",
    signed: "i64",
    unsigned: "u64",
    suffix: "",
    mantissa: "52",
    bias: "1023",
    ln2_hi: "0.6931471803691238",
    ln2_lo: "1.9082149292705877e-10",
    log2_e: "1.4426950408889634",
    exp_min: "-746.0",
    exp_max: "710.0",
    tanh_max: "22.0",
    erf_max: "6.0",
    root: "0x3fe6a09e667f3bcdull",
    one: "0x3ff0000000000000ull",
    tiny: "0x0010000000000000ull",
    infinity: "0x7ff0000000000000ull",
    nan: "0x7ff8000000000000ull",
    exp: &[
        "0.5000000000000001",
        "0.16666666666666674",
        "0.04166666666662399",
        "0.00833333333332217",
        "0.0013888888917283474",
        "0.00019841269886701975",
        "2.480152118799987e-05",
        "2.7557242211534724e-06",
        "2.762013963881873e-07",
        "2.5110096949930776e-08",
    ],
    log: &[
        "0.666666666666667",
        "0.3999999999989718",
        "0.2857142862697128",
        "0.22222210979773685",
        "0.18182899979754816",
        "0.1533137280682971",
        "0.1462063680798987",
    ],
    near: &[
        "1.1283791670955126",
        "-0.3761263890318352",
        "0.11283791670944185",
        "-0.02686617064311146",
        "0.005223977606118426",
        "-0.0008548325929311893",
        "0.00012055293576816174",
        "-1.492471230029015e-05",
        "1.6447131549126013e-06",
        "-1.6206313583187198e-07",
        "1.3710979620445635e-08",
        "-7.779467009284168e-10",
    ],
    far: &[
        "1.8496055099332485",
        "2.638967514234732",
        "0.8431072563618531",
        "0.04156109797268619",
        "-0.010033824605615157",
        "0.0019778975192269324",
        "-0.00023730116063274797",
        "-2.6339040029148117e-05",
        "2.728274734820228e-05",
        "-9.789308188473948e-06",
        "2.2526998373524993e-06",
        "-2.952041476445358e-07",
        "-8.735050207324029e-09",
        "1.4101316329833382e-08",
        "-3.2508165415896526e-09",
        "3.685687927733754e-10",
        "-1.770541301539279e-11",
    ],
};
