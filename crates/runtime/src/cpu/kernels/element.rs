//! The Rust types of elements and scalars, and their bytes.

use std::{ptr, slice};

use half::{bf16, f16};
use phonograph_graph::{DType, Scalar};

/// A Rust type that tensor elements and scalars can be used as.
///
/// Bool is used as `u8`, because memory may hold any byte.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// The type in memory.
    const DTYPE: DType;
    /// The value, if the scalar is of this type.
    fn of(scalar: Scalar) -> Option<Self>;

    /// The bytes of values.
    fn bytes(values: &[Self]) -> &[u8] {
        // SAFETY: the trait is sealed, and its types are plain numbers without padding: initialised bytes.
        unsafe { slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
    }

    /// As many values as the bytes fill.
    fn values(bytes: &[u8]) -> Vec<Self> {
        let count = bytes.len() / size_of::<Self>();
        let mut values = Vec::<Self>::with_capacity(count);
        // SAFETY: the vector has room for so many values, there are bytes for them, and any bytes are a value of these types.
        unsafe {
            let to = values.as_mut_ptr().cast::<u8>();
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, count * size_of::<Self>());
            values.set_len(count);
        }
        values
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($t:ty => $v:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$v;
            fn of(scalar: Scalar) -> Option<Self> {
                match scalar {
                    Scalar::$v(value) => Some(value),
                    _ => None,
                }
            }
        }
    )*};
}
elements!(f32 => F32, f64 => F64, f16 => F16, bf16 => BF16, i32 => I32, i64 => I64, u32 => U32);

impl sealed::Sealed for u8 {}
impl Element for u8 {
    const DTYPE: DType = DType::U8;
    fn of(scalar: Scalar) -> Option<Self> {
        match scalar {
            Scalar::U8(value) => Some(value),
            Scalar::Bool(value) => Some(value.into()),
            _ => None,
        }
    }
}
