//! The functions that sources call: conversions, integer arithmetic that never traps, the transcendental functions, Philox.

/// The functions that `texts` call, and those that they call, in an order in which each comes after what it calls.
pub(super) fn needed(texts: &[&str]) -> String {
    let mut chosen: Vec<&str> = Vec::new();
    for (name, text) in FUNCTIONS.iter().rev() {
        let call = format!("{name}(");
        if texts.iter().chain(&chosen).any(|text| text.contains(&call)) {
            chosen.push(text);
        }
    }
    chosen.into_iter().rev().collect()
}

/// By name; each calls only earlier ones.
const FUNCTIONS: &[(&str, &str)] = &[
    // Not a literal: a device may make a NaN or an infinity that a compiler may not.
    ("f32_of", "fn f32_of(bits: u32) -> f32 { return bitcast<f32>(bits); }\n"),
    ("is_nan", "fn is_nan(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u; }\n"),
    (
        "bf16_from_f32",
        "fn bf16_from_f32(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, is_nan(value));
}
",
    ),
    (
        // Subnormals come from integers, since a device may take subnormal floats for zero.
        "f32_from_f16",
        "fn f32_from_f16(raw: u32) -> f32 {
    let magnitude = raw & 0x7fffu;
    let sign = (raw & 0x8000u) << 16u;
    let normal = (magnitude << 13u) + (112u << 23u);
    let special = (magnitude << 13u) | 0x7f800000u;
    let subnormal = bitcast<u32>(f32(magnitude) * 5.9604645e-8f);
    let finite = select(normal, subnormal, magnitude < 0x400u);
    return bitcast<f32>(select(finite, special, magnitude >= 0x7c00u) | sign);
}
",
    ),
    (
        "f16_from_f32",
        "fn f16_from_f32(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    let normal = (magnitude - (112u << 23u) + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
    // One half has its last place where subnormal results have theirs, so adding it rounds there.
    let subnormal = bitcast<u32>(bitcast<f32>(magnitude) + 0.5f) - 0x3f000000u;
    let special = select(0x7c00u, 0x7e00u, magnitude > 0x7f800000u);
    let finite = select(normal, subnormal, magnitude < 0x38800000u);
    return select(finite, special, magnitude >= 0x47800000u) | sign;
}
",
    ),
    (
        "i32_quotient",
        "fn i32_quotient(a: i32, b: i32) -> i32 {
    if b == 0 { return 0; }
    if b == -1 { return -a; }
    return a / b;
}
",
    ),
    (
        "u32_quotient",
        "fn u32_quotient(a: u32, b: u32) -> u32 {
    if b == 0u { return 0u; }
    return a / b;
}
",
    ),
    (
        "i32_remainder",
        "fn i32_remainder(a: i32, b: i32) -> i32 {
    if b == 0 || b == -1 { return 0; }
    return a % b;
}
",
    ),
    (
        "u32_remainder",
        "fn u32_remainder(a: u32, b: u32) -> u32 {
    if b == 0u { return 0u; }
    return a % b;
}
",
    ),
    (
        // Exact, by long division of the mantissas: the built-in remainder rounds the quotient.
        "f32_remainder",
        "fn f32_remainder(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a) & 0x7fffffffu;
    let y = bitcast<u32>(b) & 0x7fffffffu;
    if x >= 0x7f800000u || y > 0x7f800000u || y == 0u { return f32_of(0x7fc00000u); }
    if x < y { return a; }
    let sign = bitcast<u32>(a) & 0x80000000u;
    // Of mantissa times 2^exponent; subnormals have the exponent of the least normal numbers.
    var steps = max(x >> 23u, 1u) - max(y >> 23u, 1u);
    let divisor = (y & 0x7fffffu) | select(0u, 0x800000u, y >= 0x800000u);
    var rest = ((x & 0x7fffffu) | select(0u, 0x800000u, x >= 0x800000u)) % divisor;
    while steps > 0u {
        let by = min(steps, 8u);
        rest = (rest << by) % divisor;
        steps -= by;
    }
    let exponent = max(y >> 23u, 1u);
    if rest == 0u { return bitcast<f32>(sign); }
    let up = countLeadingZeros(rest) - 8u;
    if up < exponent {
        return bitcast<f32>(sign | ((exponent - up) << 23u) | ((rest << up) & 0x7fffffu));
    }
    return bitcast<f32>(sign | (rest << (exponent - 1u)));
}
",
    ),
    (
        "i32_from_f32",
        "fn i32_from_f32(a: f32) -> i32 {
    if is_nan(a) { return 0; }
    if a >= 2147483648.0f { return 2147483647; }
    if a <= -2147483648.0f { return -2147483647 - 1; }
    return i32(a);
}
",
    ),
    (
        "u32_from_f32",
        "fn u32_from_f32(a: f32) -> u32 {
    if is_nan(a) || a <= 0.0f { return 0u; }
    if a >= 4294967296.0f { return 4294967295u; }
    return u32(a);
}
",
    ),
    ("f32_power", "fn f32_power(n: i32) -> f32 { return bitcast<f32>(bitcast<u32>(n + 127) << 23u); }\n"),
    (
        "f32_with_sign",
        "fn f32_with_sign(a: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}
",
    ),
    (
        // x = n ln 2 + r. No magic number is added and taken away again: a compiler may see through that.
        "f32_reduced",
        "fn f32_reduced(x: f32, n: f32) -> f32 { return (x - n * 0.6933594f) - n * -2.1219444e-4f; }\n",
    ),
    (
        "f32_exp_m1",
        "fn f32_exp_m1(r: f32) -> f32 {
    return r + r * r * (0.5f + r * (1.6666577e-1f + r * (4.1666375e-2f + r * (8.363205e-3f + r * 1.3941166e-3f))));
}
",
    ),
    (
        "f32_exp",
        "fn f32_exp(a: f32) -> f32 {
    if is_nan(a) { return a; }
    let x = clamp(a, -104.0f, 89.0f);
    let whole = round(x * 1.44269504f);
    let n = i32(whole);
    let half = n >> 1u;
    return (1.0f + f32_exp_m1(f32_reduced(x, whole))) * f32_power(half) * f32_power(n - half);
}
",
    ),
    (
        "f32_log",
        "fn f32_log(a: f32) -> f32 {
    if is_nan(a) || a < 0.0f { return f32_of(0x7fc00000u); }
    if a == 0.0f { return f32_of(0xff800000u); }
    if bitcast<u32>(a) == 0x7f800000u { return a; }
    let subnormal = bitcast<u32>(a) < 0x800000u;
    // As an integer, since a device may take subnormal floats for zero.
    let x = select(a, f32(bitcast<u32>(a)), subnormal);
    let bits = bitcast<u32>(x) + (0x3f800000u - 0x3f3504f3u);
    let e = f32(bitcast<i32>(bits >> 23u) - select(127, 127 + 149, subnormal));
    let m = bitcast<f32>((bits & 0x7fffffu) + 0x3f3504f3u);
    let f = m - 1.0f;
    let s = f / (2.0f + f);
    let z = s * s;
    let p = z * (6.6666685e-1f + z * (3.998867e-1f + z * 2.9584266e-1f));
    let half = 0.5f * f * f;
    return e * 0.6933594f - ((half - (s * (half + p) + e * -2.1219444e-4f)) - f);
}
",
    ),
    (
        "f32_tanh",
        "fn f32_tanh(a: f32) -> f32 {
    if is_nan(a) { return a; }
    let x = min(abs(a), 10.0f);
    let whole = round((x + x) * 1.44269504f);
    let scale = f32_power(i32(whole));
    let t = scale * f32_exp_m1(f32_reduced(x + x, whole)) + (scale - 1.0f);
    return f32_with_sign(t / (t + 2.0f), a);
}
",
    ),
    (
        "f32_erf",
        "fn f32_erf(a: f32) -> f32 {
    if is_nan(a) { return a; }
    let x = abs(a);
    let z = a * a;
    if x < 1.0f {
        return a * (1.12837917f + z * (-3.7612626e-1f + z * (1.1283585e-1f + z * (-2.6853812e-2f
            + z * (5.1883277e-3f + z * (-8.0101935e-4f + z * 7.853861e-5f))))));
    }
    let t = min(x, 4.0f) - 1.0f;
    let far = 1.8496055f + t * (2.638967f + t * (8.431176e-1f + t * (4.1503497e-2f
        + t * (-9.89546e-3f + t * (1.8293824e-3f + t * -1.8637897e-4f)))));
    return f32_with_sign(1.0f - f32_exp(-far), a);
}
",
    ),
    (
        // The upper half of a product of 32 bits, of products of 16.
        "upper_product",
        "fn upper_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
}
",
    ),
    (
        "philox",
        "fn philox(index: u32, counter: u32, key: u32) -> u32 {
    var x = vec4<u32>(index / 4u, counter, 0u, 0u);
    var k = vec2<u32>(key, 0u);
    for (var round = 0u; round < 10u; round++) {
        let p = upper_product(0xd2511f53u, x.x);
        let q = upper_product(0xcd9e8d57u, x.z);
        x = vec4<u32>(q ^ x.y ^ k.x, 0xcd9e8d57u * x.z, p ^ x.w ^ k.y, 0xd2511f53u * x.x);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return x[index % 4u];
}
",
    ),
    (
        "note_fault",
        "fn note_fault(node: u32, position: u32, value: u32) {
    if atomicExchange(&fault_record[0], 1u) == 0u {
        atomicStore(&fault_record[1], node);
        atomicStore(&fault_record[2], position);
        atomicStore(&fault_record[3], value);
    }
}
",
    ),
];
