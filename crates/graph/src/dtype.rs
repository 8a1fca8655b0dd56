//! Element types and typed scalars.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use half::{bf16, f16};

/// Type of one element in memory.
///
/// `F16`, `BF16` and `U8` are storage types: expressions load them as `F32` (or `U32`) and round on store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// Two's complement, 32 bits.
    I32,
    /// Two's complement, 64 bits.
    I64,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 8 bits.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// Every type, in declaration order.
    pub const ALL: [DType; 9] = [
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::I64,
        DType::U32,
        DType::U8,
        DType::Bool,
    ];

    /// Size of one element in bytes; also its alignment.
    pub const fn size(self) -> u64 {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// The type that expressions compute with after loading this one.
    pub const fn computed(self) -> DType {
        match self {
            DType::F16 | DType::BF16 => DType::F32,
            DType::U8 => DType::U32,
            other => other,
        }
    }

    /// Whether values of this type are floating point.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// The name used in files and messages: `f32`, `bool`, ….
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U32 => "u32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A string that names no [`DType`] or is no value of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not {1}")]
pub struct ParseScalarError(String, String);

impl FromStr for DType {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DType::ALL
            .into_iter()
            .find(|t| t.name() == text)
            .ok_or_else(|| ParseScalarError(text.to_owned(), "an element type".to_owned()))
    }
}

/// One value with its type: a kernel argument, a constant of an expression, the value of a slot.
///
/// Values are equal if they are of one type and have the same bits: 0 is not -0, for what is computed from it differs, and a
/// NaN is itself, so that a graph equals its copy.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The variants are the types of `DType`, one each.
pub enum Scalar {
    F32(f32),
    F64(f64),
    F16(f16),
    BF16(bf16),
    I32(i32),
    I64(i64),
    U32(u32),
    U8(u8),
    Bool(bool),
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        (self.dtype(), self.to_bits()) == (other.dtype(), other.to_bits())
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.dtype(), self.to_bits()).hash(state);
    }
}

impl Scalar {
    /// The type of this value.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::F32(_) => DType::F32,
            Scalar::F64(_) => DType::F64,
            Scalar::F16(_) => DType::F16,
            Scalar::BF16(_) => DType::BF16,
            Scalar::I32(_) => DType::I32,
            Scalar::I64(_) => DType::I64,
            Scalar::U32(_) => DType::U32,
            Scalar::U8(_) => DType::U8,
            Scalar::Bool(_) => DType::Bool,
        }
    }

    /// The element of `dtype` that these bytes hold, as devices lay it out (little endian); `None` if their number is wrong.
    pub fn from_le_bytes(dtype: DType, bytes: &[u8]) -> Option<Scalar> {
        fn of<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.try_into().ok()
        }
        Some(match dtype {
            DType::F32 => Scalar::F32(f32::from_le_bytes(of(bytes)?)),
            DType::F64 => Scalar::F64(f64::from_le_bytes(of(bytes)?)),
            DType::F16 => Scalar::F16(f16::from_le_bytes(of(bytes)?)),
            DType::BF16 => Scalar::BF16(bf16::from_le_bytes(of(bytes)?)),
            DType::I32 => Scalar::I32(i32::from_le_bytes(of(bytes)?)),
            DType::I64 => Scalar::I64(i64::from_le_bytes(of(bytes)?)),
            DType::U32 => Scalar::U32(u32::from_le_bytes(of(bytes)?)),
            DType::U8 => Scalar::U8(u8::from_le_bytes(of(bytes)?)),
            DType::Bool => Scalar::Bool(of::<1>(bytes)? != [0]),
        })
    }

    /// The bits of the value, in the low bytes.
    pub const fn to_bits(self) -> u64 {
        match self {
            Scalar::F32(v) => v.to_bits() as u64,
            Scalar::F64(v) => v.to_bits(),
            Scalar::F16(v) => v.to_bits() as u64,
            Scalar::BF16(v) => v.to_bits() as u64,
            Scalar::I32(v) => v as u32 as u64,
            Scalar::I64(v) => v as u64,
            Scalar::U32(v) => v as u64,
            Scalar::U8(v) => v as u64,
            Scalar::Bool(v) => v as u64,
        }
    }

    /// The zero of `dtype`.
    pub fn zero(dtype: DType) -> Scalar {
        match dtype {
            DType::F32 => Scalar::F32(0.0),
            DType::F64 => Scalar::F64(0.0),
            DType::F16 => Scalar::F16(f16::ZERO),
            DType::BF16 => Scalar::BF16(bf16::ZERO),
            DType::I32 => Scalar::I32(0),
            DType::I64 => Scalar::I64(0),
            DType::U32 => Scalar::U32(0),
            DType::U8 => Scalar::U8(0),
            DType::Bool => Scalar::Bool(false),
        }
    }
}

macro_rules! scalar_from {
    ($($t:ty => $v:ident),*) => {$(
        impl From<$t> for Scalar {
            fn from(value: $t) -> Self {
                Scalar::$v(value)
            }
        }
    )*};
}
scalar_from!(f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i32 => I32, i64 => I64, u32 => U32, u8 => U8, bool => Bool);

/// Written as `type value`, as in `f32 1.5`; reading it back gives the same value (of NaN, a NaN).
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.dtype())?;
        match self {
            Scalar::F32(v) => write!(f, "{v:?}"),
            Scalar::F64(v) => write!(f, "{v:?}"),
            Scalar::F16(v) => write!(f, "{:?}", v.to_f32()),
            Scalar::BF16(v) => write!(f, "{:?}", v.to_f32()),
            Scalar::I32(v) => write!(f, "{v}"),
            Scalar::I64(v) => write!(f, "{v}"),
            Scalar::U32(v) => write!(f, "{v}"),
            Scalar::U8(v) => write!(f, "{v}"),
            Scalar::Bool(v) => write!(f, "{v}"),
        }
    }
}

impl FromStr for Scalar {
    type Err = ParseScalarError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || ParseScalarError(text.to_owned(), "a scalar such as `f32 1.5`".to_owned());
        let (dtype, value) = text.split_once(' ').ok_or_else(form)?;
        let of = dtype.parse()?;
        fn parse<T: FromStr>(value: &str, of: DType) -> Result<T, ParseScalarError> {
            let refused = |_| ParseScalarError(value.to_owned(), format!("a value of type {of}"));
            value.parse().map_err(refused)
        }
        Ok(match of {
            DType::F32 => Scalar::F32(parse(value, of)?),
            DType::F64 => Scalar::F64(parse(value, of)?),
            DType::F16 => Scalar::F16(f16::from_f32(parse(value, of)?)),
            DType::BF16 => Scalar::BF16(bf16::from_f32(parse(value, of)?)),
            DType::I32 => Scalar::I32(parse(value, of)?),
            DType::I64 => Scalar::I64(parse(value, of)?),
            DType::U32 => Scalar::U32(parse(value, of)?),
            DType::U8 => Scalar::U8(parse(value, of)?),
            DType::Bool => Scalar::Bool(parse(value, of)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_survive_their_text_form() {
        for scalar in [
            Scalar::F32(1.5e-9),
            Scalar::F32(f32::NEG_INFINITY),
            Scalar::F64(0.1),
            Scalar::F16(f16::from_f32(65504.0)),
            Scalar::BF16(bf16::from_f32(3.0)),
            Scalar::I32(i32::MIN),
            Scalar::I64(i64::MAX),
            Scalar::U32(7),
            Scalar::U8(255),
            Scalar::Bool(true),
        ] {
            assert_eq!(scalar.to_string().parse::<Scalar>(), Ok(scalar));
        }
        assert!("f32 abc".parse::<Scalar>().is_err());
        assert!("f31 1".parse::<Scalar>().is_err());
        assert!("u8 256".parse::<Scalar>().is_err());
    }

    #[test]
    fn scalars_are_equal_by_their_bits() {
        let bits = f16::from_bits;
        let zeros = [
            [Scalar::F32(0.0), Scalar::F32(-0.0)],
            [Scalar::F64(0.0), Scalar::F64(-0.0)],
            [Scalar::F16(bits(0)), Scalar::F16(bits(0x8000))],
            [Scalar::I32(0), Scalar::U32(0)],
        ];
        zeros.iter().for_each(|[zero, other]| assert_ne!(zero, other));
        for nan in [Scalar::F32(f32::NAN), Scalar::F64(-f64::NAN), Scalar::F16(f16::NAN)] {
            assert_eq!(nan, nan);
        }
    }
}
