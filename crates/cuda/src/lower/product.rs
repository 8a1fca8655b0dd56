//! Matrix products: by cuBLAS where it can, else by a generated kernel; which, and why, is noted for each.

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::CUgraphNode;
use phonograph_graph::{
    Arg, DType, FusedKernel, KernelNode, KernelRef, LibraryKernel, NodeId, View,
};
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::Lowering;
use super::bases::Base;
use super::scope::Scope;
use crate::bindings::InstantiateError;
use crate::cublas::{Cublas, CublasError, Handle, Matrix, Product, WORKSPACE};
use crate::device::Device;
use crate::error::{call, log_drop};
use crate::graph::{Dependencies, add_child};
use crate::memory::Memory;

/// Up to so many multiplications a generated kernel is as fast or faster (128³ on an H200), and there is nothing to capture.
const SMALL: i64 = 1 << 21;

/// What computes a matrix product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProductBy {
    /// The kernels that cuBLAS chose.
    Cublas,
    /// A generated kernel.
    Generated {
        /// Why not cuBLAS.
        why: String,
    },
}

/// cuBLAS on each device that products were lowered for.
#[derive(Debug)]
pub(crate) struct Blas {
    pub wanted: bool,
    /// Shared with what was captured through them: its kernels may refer to what a handle owns.
    handles: FxHashMap<u32, Arc<Mutex<Handle>>>,
}

impl Blas {
    pub fn new() -> Self {
        Self { wanted: true, handles: FxHashMap::default() }
    }

    fn on(&mut self, device: &Device) -> Result<Arc<Mutex<Handle>>, CublasError> {
        if let Some(known) = self.handles.get(&device.ordinal()) {
            return Ok(known.clone());
        }
        let made = Arc::new(Mutex::new(Handle::new(Cublas::load()?, device)?));
        self.handles.insert(device.ordinal(), made.clone());
        Ok(made)
    }
}

/// Whether a kernel is a matrix product, whatever is done to it.
pub(super) fn is_product(kernel: &KernelRef) -> bool {
    match kernel {
        KernelRef::Library(library) => *library == LibraryKernel::MatMul,
        KernelRef::Fused(fused) => {
            let FusedKernel { library, .. } = &**fused;
            *library == LibraryKernel::MatMul
        }
        KernelRef::Named(_) | KernelRef::Elementwise(_) => false,
    }
}

impl Lowering<'_> {
    /// Lowers a product through cuBLAS, or says that it is for a generated kernel.
    pub(super) fn product(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
        after: &Dependencies,
    ) -> Result<Option<SmallVec<[CUgraphNode; 1]>>, InstantiateError> {
        let problem = match self.for_cublas(scope, id, node)? {
            Ok((product, device)) => {
                let node = self.by_cublas(scope, id, &product, &device, after)?;
                self.held.products.push((scope.path(id), ProductBy::Cublas));
                return Ok(Some(smallvec![node]));
            }
            Err(why) => why,
        };
        self.held.products.push((scope.path(id), ProductBy::Generated { why: problem }));
        Ok(None)
    }

    /// The product as cuBLAS is given it, and where; or why it is not.
    pub(super) fn for_cublas(
        &self,
        scope: &Scope<'_>,
        id: NodeId,
        node: &KernelNode,
    ) -> Result<Result<(Product, Device), String>, InstantiateError> {
        let not = |why: &str| Ok(Err(why.to_owned()));
        if !self.target.blas.wanted {
            return not("cuBLAS is not wanted");
        }
        if !matches!(node.kernel, KernelRef::Library(_)) {
            return not("work is done to the result");
        }
        if node.config.priority != 0 {
            return not("it has a priority");
        }
        if scope.has_weak_edges(id) {
            return not("it has a weak edge");
        }
        let views: SmallVec<[View; 3]> = node.args.iter().filter_map(Arg::view).copied().collect();
        let mut matrices: SmallVec<[Matrix; 3]> = SmallVec::new();
        for view in &views {
            let Base::Address(base) = scope.bases[view.buffer.index()] else {
                return not("an operand is a slot");
            };
            self.check_aligned(scope, id, view)?;
            match matrix(view, base) {
                Some(matrix) => matrices.push(matrix),
                None => return not("an operand has neither rows nor columns without gaps"),
            }
        }
        let extents = views[0].shape();
        let extents = extents.extents();
        let (rank, columns) = (extents.len(), views[1].shape().extents()[extents.len() - 1]);
        let batches = if rank == 3 { extents[0] } else { 1 };
        let sizes = [batches, extents[rank - 2], columns, extents[rank - 1]].map(i32::try_from);
        let [Ok(batches), Ok(m), Ok(n), Ok(k)] = sizes else { return not("it is too large") };
        if [batches, m, n, k].contains(&0) {
            return not("it is empty");
        }
        let terms = [batches, m, n, k]
            .map(i64::from)
            .iter()
            .fold(1i64, |all, &size| all.saturating_mul(size));
        if terms <= SMALL {
            return not("it is small");
        }
        if let Err(error) = Cublas::load() {
            return not(&error.to_string());
        }
        let home = views[2].buffer;
        let device = self.device_of(home, scope.graph.buffer(home))?.clone();
        let (double, [a, b, c]) = (views[0].dtype == DType::F64, [0, 1, 2].map(|at| matrices[at]));
        Ok(Ok((Product { double, batches, m, n, k, a, b, c }, device)))
    }

    fn by_cublas(
        &mut self,
        scope: &Scope<'_>,
        id: NodeId,
        product: &Product,
        device: &Device,
        after: &Dependencies,
    ) -> Result<CUgraphNode, InstantiateError> {
        self.check_body(scope, id, device.ordinal())?;
        let workspace = Memory::on_device(self.target.owner, device, WORKSPACE)?;
        let failed =
            |source: CublasError| InstantiateError::Cublas { node: scope.path(id), source };
        let handle = self.target.blas.on(device).map_err(failed)?;
        let mut locked = handle.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = locked.capture(product, workspace.address()).map_err(failed)?;
        drop(locked);
        // SAFETY: the captured graph lives until the node has its clone; its kernels are of a library that is never unloaded,
        // and work on memory that the `Exec` holds.
        let node = unsafe { add_child(scope.driver, after, graph) };
        // SAFETY: the captured graph is this function's own.
        log_drop(unsafe { call!(cuGraphDestroy(graph)) });
        self.held.arenas.push(workspace);
        if !self.blas.iter().any(|known| Arc::ptr_eq(known, &handle)) {
            self.blas.push(handle);
        }
        node.map_err(scope.refused(id))
    }
}

/// A view as cuBLAS takes matrices, if one of its two last axes is dense. An axis of one element has any stride.
fn matrix(view: &View, base: u64) -> Option<Matrix> {
    let (shape, strides) = (view.shape(), view.strides());
    let (extents, rank) = (shape.extents(), strides.len());
    let ([rows, columns], [down, along]) =
        ([extents[rank - 2], extents[rank - 1]], [strides[rank - 2], strides[rank - 1]]);
    let fits = |inner: u64, outer: u64, length: u64, count: u64| {
        (inner == 1 || length == 1) && (outer >= length.max(1) || count == 1)
    };
    let (by_rows, leading, length) = if fits(along, down, columns, rows) {
        (true, down, columns)
    } else if fits(down, along, rows, columns) {
        (false, along, rows)
    } else {
        return None;
    };
    let address = base + view.offset;
    let leading = i32::try_from(leading.max(length).max(1)).ok()?;
    let batch_stride = if rank == 3 { i64::try_from(strides[0]).ok()? } else { 0 };
    Some(Matrix { address, by_rows, leading, batch_stride })
}

#[cfg(test)]
mod tests {
    use phonograph_graph::BufferId;

    use super::*;

    fn check(extents: &[u64], strides: &[u64], expected: Option<(bool, i32, i64)>) {
        let view = View::strided(BufferId(0), DType::F32, 8, extents, strides).unwrap();
        let found = matrix(&view, 256);
        let expected = expected.map(|(by_rows, leading, batch_stride)| Matrix {
            address: 264,
            by_rows,
            leading,
            batch_stride,
        });
        assert_eq!(found, expected, "{extents:?} {strides:?}");
    }

    #[test]
    fn matrices_have_rows_or_columns_without_gaps() {
        check(&[3, 5], &[5, 1], Some((true, 5, 0)));
        check(&[3, 5], &[8, 1], Some((true, 8, 0)));
        check(&[3, 5], &[1, 3], Some((false, 3, 0)));
        check(&[2, 3, 5], &[15, 5, 1], Some((true, 5, 15)));
        // One matrix for the whole batch.
        check(&[2, 3, 5], &[0, 5, 1], Some((true, 5, 0)));
        check(&[3, 5], &[10, 2], None);
        // Rows that overlap, or are all the same one.
        check(&[3, 5], &[4, 1], None);
        check(&[3, 5], &[0, 1], None);
        // A single row or column.
        check(&[1, 5], &[9, 1], Some((true, 9, 0)));
        check(&[1, 5], &[0, 1], Some((true, 5, 0)));
        check(&[3, 1], &[1, 7], Some((true, 1, 0)));
        check(&[3, 1], &[4, 9], Some((true, 4, 0)));
        check(&[1, 5], &[1, 3], Some((false, 3, 0)));
    }
}
