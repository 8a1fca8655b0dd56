//! What the kernels of a foreign graph are called, and the bytes of their parameters.
//!
//! The driver says how the parameters of a function lie; that is asked once a function. The bytes of all kernels lie in
//! one table: about 8 bytes a kernel on top of them.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUfunction, CUkernel, CUresult};
use phonograph_graph::NodeId;
use rustc_hash::FxHashMap;

use super::ImportError;
use crate::error::{DriverError, call};

/// What the driver says of a function.
pub(super) struct FunctionInfo {
    pub name: Arc<str>,
    layout: Layout,
}

/// Offset in the parameter block and size of each parameter.
type Layout = Arc<[(usize, usize)]>;

/// The functions met so far.
#[derive(Default)]
pub(super) struct Functions {
    known: FxHashMap<(CUfunction, CUkernel), Rc<FunctionInfo>>,
}

impl Functions {
    /// The function of a kernel node.
    ///
    /// # Safety
    /// The parameters are those of a node of a graph that lives: their function or kernel is loaded.
    pub unsafe fn of(
        &mut self,
        params: &CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<Rc<FunctionInfo>, ImportError> {
        let key = (params.func, params.kern);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let mut name: *const c_char = ptr::null();
        // A kernel of a library that has not been loaded into a context has no function.
        let by_function = !params.func.is_null();
        // SAFETY: the caller's promise; the name is a constant of the module or library.
        let name = unsafe {
            if by_function {
                call!(cuFuncGetName(&mut name, params.func))?;
            } else {
                call!(cuKernelGetName(&mut name, params.kern))?;
            }
            CStr::from_ptr(name).to_string_lossy()
        };
        let name: Arc<str> = name.as_ref().into();
        let mut layout = Vec::new();
        loop {
            let (at, mut offset, mut size) = (layout.len(), 0, 0);
            // SAFETY: the caller's promise; both results are for this call to write.
            let found = unsafe {
                if by_function {
                    call!(cuFuncGetParamInfo(params.func, at, &mut offset, &mut size))
                } else {
                    call!(cuKernelGetParamInfo(params.kern, at, &mut offset, &mut size))
                }
            };
            match found {
                Ok(()) => layout.push((offset, size)),
                // This is how the driver says that there are no more.
                Err(DriverError { code, .. })
                    if code == CUresult::CUDA_ERROR_INVALID_VALUE as u32 =>
                {
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        let info = Rc::new(FunctionInfo { name, layout: layout.into() });
        self.known.insert(key, info.clone());
        Ok(info)
    }
}

/// One parameter of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter<'a> {
    /// Where it lies in the kernel's parameter block, in bytes.
    pub offset: usize,
    /// Its value, as the device gets it.
    pub bytes: &'a [u8],
}

/// The parameters of the kernels of one graph.
#[derive(Default, Debug)]
pub(super) struct Parameters {
    /// By node, in ascending order: how the parameters lie, and where their bytes start.
    rows: Vec<(NodeId, Layout, usize)>,
    bytes: Vec<u8>,
}

impl Parameters {
    /// Adds the parameters of a kernel whose id is above those before.
    ///
    /// # Safety
    /// The parameters are those of a node of a graph that lives, and the function is theirs.
    pub unsafe fn push(
        &mut self,
        node: NodeId,
        function: &FunctionInfo,
        params: &CUDA_KERNEL_NODE_PARAMS,
    ) {
        let start = self.bytes.len();
        if !params.kernelParams.is_null() {
            for (at, &(_, size)) in function.layout.iter().enumerate() {
                // SAFETY: the driver keeps a copy of each parameter, of the size that the function declares, behind an array
                // of as many pointers as there are parameters.
                let value = unsafe {
                    let pointer = (*params.kernelParams.add(at)).cast::<u8>();
                    std::slice::from_raw_parts(pointer, size)
                };
                self.bytes.extend_from_slice(value);
            }
        // SAFETY: the caller's promise.
        } else if let Some(block) = unsafe { packed(params.extra) } {
            for &(offset, size) in function.layout.iter() {
                let Some(value) = block.get(offset..offset + size) else {
                    // A block that is shorter than the function's parameters: what it holds of them is not known.
                    self.bytes.truncate(start);
                    return;
                };
                self.bytes.extend_from_slice(value);
            }
        } else if !function.layout.is_empty() {
            return;
        }
        self.rows.push((node, function.layout.clone(), start));
    }

    /// The parameters of a kernel, in order; `None` for other nodes.
    pub fn of(&self, node: NodeId) -> Option<impl ExactSizeIterator<Item = Parameter<'_>>> {
        let at = self.rows.binary_search_by_key(&node, |row| row.0).ok()?;
        let (_, layout, start) = &self.rows[at];
        let mut next = *start;
        Some(layout.iter().map(move |&(offset, size)| {
            let from = next;
            next += size;
            Parameter { offset, bytes: &self.bytes[from..from + size] }
        }))
    }
}

/// The block of parameters that a launch gave in one piece: a list of pairs that ends with 0.
///
/// # Safety
/// The list is null, or the driver's copy of one.
unsafe fn packed<'a>(extra: *mut *mut c_void) -> Option<&'a [u8]> {
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    if extra.is_null() {
        return None;
    }
    let (mut start, mut length) = (ptr::null::<u8>(), None);
    // There are two kinds of pairs.
    for pair in 0..2 {
        // SAFETY: the caller's promise: the list goes on until a 0, every other key has a value after it, and that of a size
        // is the address of a length.
        unsafe {
            match *extra.add(2 * pair) as usize {
                POINTER => start = (*extra.add(2 * pair + 1)).cast(),
                SIZE => length = Some(*(*extra.add(2 * pair + 1)).cast::<usize>()),
                _ => break,
            }
        }
    }
    // SAFETY: the list names a block of this length.
    (!start.is_null())
        .then_some(())
        .and(length)
        .map(|length| unsafe { std::slice::from_raw_parts(start, length) })
}
