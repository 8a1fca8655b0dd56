//! cuBLAS: matrix products by NVIDIA's kernels, where the library is there.
//!
//! Opened at run time like NVRTC, under the names that the toolkit and its packages use; `PHONOGRAPH_CUBLAS` names the file
//! outright. In: a product and where its operands lie. Out: the driver's graph of the kernels that cuBLAS launches for it,
//! captured from a stream on which nothing runs. Each has a workspace of its own, so that products may run at the same time
//! and a replay does the same operations every time.

use std::env;
use std::ffi::{OsString, c_int, c_longlong, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys::{CUgraph, CUstream, CUstreamCaptureMode};
use libloading::Library;

use crate::captures::{Capturing, relaxed};
use crate::device::Device;
use crate::error::{DriverError, call, log_drop};
use crate::loader::{function, lacks, library_names, open};
use crate::stream::Stream;
use crate::symbols;

/// Bytes of the workspace of a product.
pub(crate) const WORKSPACE: u64 = 4 << 20;

/// Why cuBLAS cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CublasError {
    /// No library.
    #[error(
        "there is no cuBLAS library (it comes with the CUDA toolkit and as nvidia-cublas from PyPI; PHONOGRAPH_CUBLAS names the file): {0}"
    )]
    NotFound(String),
    /// A library that lacks a function.
    #[error("the cuBLAS library {library} has no function {symbol}")]
    MissingSymbol {
        /// The library's name.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// cuBLAS refused.
    #[error("{call} failed with status {status}")]
    Call {
        /// The function called.
        call: &'static str,
        /// cuBLAS's number for the error.
        status: u32,
    },
    /// The driver refused.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

type Opaque = *mut c_void;
type Create = unsafe extern "C" fn(*mut Opaque) -> c_uint;
type Destroy = unsafe extern "C" fn(Opaque) -> c_uint;
type SetStream = unsafe extern "C" fn(Opaque, CUstream) -> c_uint;
type SetWorkspace = unsafe extern "C" fn(Opaque, Opaque, usize) -> c_uint;
type Gemm = unsafe extern "C" fn(
    Opaque,
    c_uint,
    c_uint,
    c_int,
    c_int,
    c_int,
    *const c_void,
    *const c_void,
    c_uint,
    c_int,
    c_longlong,
    *const c_void,
    c_uint,
    c_int,
    c_longlong,
    *const c_void,
    *mut c_void,
    c_uint,
    c_int,
    c_longlong,
    c_int,
    c_uint,
    c_int,
) -> c_uint;

/// The loaded library.
#[derive(Debug)]
pub struct Cublas {
    library: String,
    create: Create,
    destroy: Destroy,
    set_stream: SetStream,
    set_workspace: SetWorkspace,
    gemm: Gemm,
    /// Held so that the functions stay loaded.
    _handle: Library,
}

impl Cublas {
    /// Opens the library, once for the process. Later calls give the same answer.
    ///
    /// # Errors
    /// [`CublasError`] says what is missing.
    pub fn load() -> Result<&'static Cublas, CublasError> {
        static CUBLAS: OnceLock<Result<Cublas, CublasError>> = OnceLock::new();
        let names = || match env::var_os("PHONOGRAPH_CUBLAS") {
            Some(named) => vec![named],
            None => library_names("cublas"),
        };
        CUBLAS.get_or_init(|| probe(names())).as_ref().map_err(Clone::clone)
    }

    /// The name that the library was found by.
    pub fn library(&self) -> &str {
        &self.library
    }
}

fn probe(names: Vec<OsString>) -> Result<Cublas, CublasError> {
    let (library, handle) = open(names.into_iter()).map_err(CublasError::NotFound)?;
    if let Some(symbol) = lacks(&handle, symbols::CUBLAS.iter().copied()) {
        return Err(CublasError::MissingSymbol { library, symbol });
    }
    let missing = |symbol| {
        let library = library.clone();
        move || CublasError::MissingSymbol { library, symbol }
    };
    // SAFETY: these are the functions' signatures in every version of the library that has them.
    unsafe {
        Ok(Cublas {
            create: function(&handle, "cublasCreate_v2").ok_or_else(missing("cublasCreate_v2"))?,
            destroy: function(&handle, "cublasDestroy_v2")
                .ok_or_else(missing("cublasDestroy_v2"))?,
            set_stream: function(&handle, "cublasSetStream_v2")
                .ok_or_else(missing("cublasSetStream_v2"))?,
            set_workspace: function(&handle, "cublasSetWorkspace_v2")
                .ok_or_else(missing("cublasSetWorkspace_v2"))?,
            gemm: function(&handle, "cublasGemmStridedBatchedEx")
                .ok_or_else(missing("cublasGemmStridedBatchedEx"))?,
            library,
            _handle: handle,
        })
    }
}

/// A matrix in memory: columns one after the other, or, transposed, rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Matrix {
    pub address: u64,
    pub by_rows: bool,
    /// Elements from one column, or row, to the next.
    pub leading: i32,
    /// Elements from one matrix of a batch to the next.
    pub batch_stride: i64,
}

/// c = a b, for each of a batch: m × k times k × n.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Product {
    pub double: bool,
    pub batches: i32,
    pub m: i32,
    pub n: i32,
    pub k: i32,
    pub a: Matrix,
    pub b: Matrix,
    pub c: Matrix,
}

impl Product {
    /// The same with c by columns, as cuBLAS has it: cᵀ = bᵀ aᵀ.
    fn by_columns(self) -> Self {
        if !self.c.by_rows {
            return self;
        }
        let turned = |matrix: Matrix| Matrix { by_rows: !matrix.by_rows, ..matrix };
        let Self { m, n, a, b, c, .. } = self;
        Self { m: n, n: m, a: turned(b), b: turned(a), c: turned(c), ..self }
    }
}

/// cuBLAS on a device.
#[derive(Debug)]
pub(crate) struct Handle {
    cublas: &'static Cublas,
    handle: Opaque,
    /// Where launches are captured.
    stream: Stream,
}

// SAFETY: a handle may be used from any thread, one at a time, which `&mut` sees to.
unsafe impl Send for Handle {}
// SAFETY: a shared handle is only printed.
unsafe impl Sync for Handle {}

impl Handle {
    pub fn new(cublas: &'static Cublas, device: &Device) -> Result<Self, CublasError> {
        let stream = Stream::new(device)?;
        let _current = device.enter()?;
        let _relaxed = relaxed()?;
        let mut handle = ptr::null_mut();
        // SAFETY: a context is current.
        check("cublasCreate_v2", unsafe { (cublas.create)(&mut handle) })?;
        let this = Self { cublas, handle, stream };
        // SAFETY: handle and stream live.
        check("cublasSetStream_v2", unsafe {
            (cublas.set_stream)(this.handle, this.stream.handle())
        })?;
        Ok(this)
    }

    /// The graph of a product's launches, which is the caller's to destroy. The workspace has [`WORKSPACE`] bytes.
    pub fn capture(&mut self, product: &Product, workspace: u64) -> Result<CUgraph, CublasError> {
        let _current = self.stream.device().enter()?;
        let to = workspace as usize as *mut c_void;
        // SAFETY: the handle lives; the workspace is memory of that size, which lives as long as what is captured.
        check("cublasSetWorkspace_v2", unsafe {
            (self.cublas.set_workspace)(self.handle, to, WORKSPACE as usize)
        })?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let _capturing = Capturing::here();
        // SAFETY: the stream lives, and nobody else uses it.
        unsafe { call!(cuStreamBeginCapture_v2(self.stream.handle(), mode)) }?;
        let issued = self.issue(&product.by_columns());
        let mut graph = ptr::null_mut();
        // SAFETY: the capture was begun above, on this thread. It ends whatever cuBLAS said.
        let ended = unsafe { call!(cuStreamEndCapture(self.stream.handle(), &mut graph)) };
        match issued.and(ended.map_err(CublasError::from)) {
            Ok(()) => Ok(graph),
            Err(error) => {
                if !graph.is_null() {
                    // SAFETY: the graph is nobody else's.
                    log_drop(unsafe { call!(cuGraphDestroy(graph)) });
                }
                Err(error)
            }
        }
    }

    fn issue(&mut self, product: &Product) -> Result<(), CublasError> {
        let Product { double, batches, m, n, k, a, b, c } = *product;
        let (one, zero) = ([1f64], [0f64]);
        let (one_f32, zero_f32) = ([1f32], [0f32]);
        let (alpha, beta): (*const c_void, *const c_void) = match double {
            true => (one.as_ptr().cast(), zero.as_ptr().cast()),
            false => (one_f32.as_ptr().cast(), zero_f32.as_ptr().cast()),
        };
        // CUDA_R_64F and CUBLAS_COMPUTE_64F, CUDA_R_32F and CUBLAS_COMPUTE_32F: no narrower type in between.
        let (element, compute) = if double { (1, 70) } else { (0, 68) };
        let place = |matrix: Matrix| matrix.address as usize as *mut c_void;
        let turn = |matrix: Matrix| c_uint::from(matrix.by_rows);
        // CUBLAS_GEMM_DEFAULT: cuBLAS chooses.
        let algorithm = -1;
        // SAFETY: the handle lives; the matrices lie in memory that the graph's owner holds, within what the strides say; the
        // scalars are of the type computed in, and are read before the call returns.
        check("cublasGemmStridedBatchedEx", unsafe {
            (self.cublas.gemm)(
                self.handle,
                turn(a),
                turn(b),
                m,
                n,
                k,
                alpha,
                place(a),
                element,
                a.leading,
                a.batch_stride,
                place(b),
                element,
                b.leading,
                b.batch_stride,
                beta,
                place(c),
                element,
                c.leading,
                c.batch_stride,
                batches,
                compute,
                algorithm,
            )
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let current = self.stream.device().enter();
        // SAFETY: the handle is this value's own.
        let destroyed = check("cublasDestroy_v2", unsafe { (self.cublas.destroy)(self.handle) });
        if let Err(error) = destroyed {
            tracing::error!(%error, "a handle could not be released");
        }
        log_drop(current.map(drop));
    }
}

fn check(call: &'static str, status: c_uint) -> Result<(), CublasError> {
    if status == 0 { Ok(()) } else { Err(CublasError::Call { call, status }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::stub;

    #[test]
    fn a_library_that_is_missing_or_lacks_a_function_is_an_error_that_names_it() {
        let none = probe(vec!["/nowhere/libcublas.so".into()]);
        assert!(matches!(none, Err(CublasError::NotFound(_))));
        let folder = tempfile::tempdir().unwrap();
        let whole = stub(folder.path(), symbols::CUBLAS, None, &[]);
        assert_eq!(probe(vec![whole.clone()]).unwrap().library(), whole.to_string_lossy());
        let folder = tempfile::tempdir().unwrap();
        let without = symbols::CUBLAS[1];
        let path = stub(folder.path(), symbols::CUBLAS, Some(without), &[]);
        let library = path.to_string_lossy().into_owned();
        let error = probe(vec![path]).unwrap_err();
        assert_eq!(error, CublasError::MissingSymbol { library, symbol: without });
    }

    #[test]
    fn a_product_by_rows_is_the_transposed_one_by_columns() {
        let matrix =
            |address, by_rows, leading| Matrix { address, by_rows, leading, batch_stride: 0 };
        let (m, n, k) = (2, 3, 4);
        let (a, b, c) = (matrix(1, true, 4), matrix(2, true, 3), matrix(3, true, 3));
        let product = Product { double: false, batches: 1, m, n, k, a, b, c };
        let (a, b, c) = (matrix(2, false, 3), matrix(1, false, 4), matrix(3, false, 3));
        let expected = Product { m: 3, n: 2, a, b, c, ..product };
        assert_eq!(product.by_columns(), expected);
        assert_eq!(expected.by_columns(), expected);
    }
}
