//! A captured chain on each side: recorded, made ready, launched, waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuda_async::cuda_graph::CudaGraph;
use cuda_async::device_operation::DeviceOp as _;
use cuda_core::{Function, IntoResult, Stream as TheirStream, sys};
use phonograph::prelude::*;

use crate::Failure;
use crate::ops::{self, BYTES, ELEMENTS, OurFill, TheirFill, Written};

#[derive(Clone, Copy, PartialEq)]
pub enum Work {
    Fills,
    Kernels,
}

/// How long it took to record the operations, and from there until the executable was on the device.
pub struct Captured<G> {
    pub record: Duration,
    pub ready: Duration,
    pub graph: G,
}

/// One way to capture and replay a chain of operations on one buffer.
pub trait Side {
    type Graph;

    fn capture(&mut self, work: Work, nodes: u32) -> Result<Captured<Self::Graph>, Failure>;
    /// Hands a replay over.
    fn launch(&mut self, graph: &Self::Graph) -> Result<(), Failure>;
    /// Waits for what was handed over.
    fn finish(&mut self) -> Result<(), Failure>;
    /// A replay, from the call to its end, as a program would write it.
    fn replay(&mut self, graph: &Self::Graph) -> Result<(), Failure>;
    fn contents(&mut self) -> Result<Vec<u32>, Failure>;
}

fn contents(stream: &TheirStream, to: &Written) -> Result<Vec<u32>, Failure> {
    let mut host = vec![0u32; ELEMENTS as usize];
    stream.synchronize()?;
    // SAFETY: as many bytes on both sides; nothing writes them meanwhile.
    unsafe { sys::cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), to.address(), BYTES).result()? };
    Ok(host)
}

/// The driver's calls and nothing else.
pub struct Driver {
    pub stream: Arc<TheirStream>,
    pub to: Written,
    pub function: Arc<Function>,
}

pub struct Executable(sys::CUgraph, sys::CUgraphExec);

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: both are of `Driver::capture`, and no launch is under way.
        let destroyed = unsafe { (sys::cuGraphExecDestroy(self.1), sys::cuGraphDestroy(self.0)) };
        assert_eq!(destroyed, (0, 0));
    }
}

impl Side for Driver {
    type Graph = Executable;

    fn capture(&mut self, work: Work, nodes: u32) -> Result<Captured<Executable>, Failure> {
        let raw = self.stream.cu_stream();
        let mut address = self.to.address();
        let mut arguments = [(&raw mut address).cast()];
        let began = Instant::now();
        // SAFETY: live handles; the kernel takes one address, and the buffer has what is filled.
        unsafe {
            sys::cuStreamBeginCapture_v2(raw, 2).result()?;
            for _ in 0..nodes {
                match work {
                    Work::Fills => sys::cuMemsetD8Async(address, 7, BYTES, raw).result()?,
                    Work::Kernels => sys::cuLaunchKernel(
                        self.function.cu_function(),
                        1,
                        1,
                        1,
                        ELEMENTS,
                        1,
                        1,
                        0,
                        raw,
                        arguments.as_mut_ptr(),
                        std::ptr::null_mut(),
                    )
                    .result()?,
                }
            }
            let record = began.elapsed();
            let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
            sys::cuStreamEndCapture(raw, &mut graph).result()?;
            sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0).result()?;
            sys::cuGraphUpload(exec, raw).result()?;
            sys::cuStreamSynchronize(raw).result()?;
            let ready = began.elapsed();
            Ok(Captured { record, ready, graph: Executable(graph, exec) })
        }
    }

    fn launch(&mut self, graph: &Executable) -> Result<(), Failure> {
        // SAFETY: live handles.
        unsafe { sys::cuGraphLaunch(graph.1, self.stream.cu_stream()).result()? };
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        // SAFETY: a live handle.
        unsafe { sys::cuStreamSynchronize(self.stream.cu_stream()).result()? };
        Ok(())
    }

    fn replay(&mut self, graph: &Executable) -> Result<(), Failure> {
        self.launch(graph)?;
        self.finish()
    }

    fn contents(&mut self) -> Result<Vec<u32>, Failure> {
        contents(&self.stream, &self.to)
    }
}

pub struct CudaAsync {
    pub stream: Arc<TheirStream>,
    pub to: Written,
    pub function: Arc<Function>,
}

impl Side for CudaAsync {
    type Graph = CudaGraph<()>;

    fn capture(&mut self, work: Work, nodes: u32) -> Result<Captured<CudaGraph<()>>, Failure> {
        let began = Instant::now();
        let mut record = Duration::ZERO;
        let graph = CudaGraph::scope(&self.stream, |scope| {
            for _ in 0..nodes {
                match work {
                    Work::Fills => scope.record(TheirFill { to: self.to.clone(), byte: 7 })?,
                    Work::Kernels => {
                        scope.record(ops::their_add_one(&self.function, self.to.clone()))?;
                    }
                }
            }
            record = began.elapsed();
            Ok(())
        })?;
        Ok(Captured { record, ready: began.elapsed(), graph })
    }

    fn launch(&mut self, graph: &CudaGraph<()>) -> Result<(), Failure> {
        // SAFETY: the graph lives until `finish`, and nothing else touches the buffer.
        unsafe { graph.launch().async_on(&self.stream)? };
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.stream.synchronize()?)
    }

    fn replay(&mut self, graph: &CudaGraph<()>) -> Result<(), Failure> {
        Ok(graph.launch().sync_on(&self.stream)?)
    }

    fn contents(&mut self) -> Result<Vec<u32>, Failure> {
        contents(&self.stream, &self.to)
    }
}

pub struct Ours {
    pub stream: Stream,
    pub to: Tensor<u32>,
}

impl Side for Ours {
    type Graph = CapturedGraph<()>;

    fn capture(&mut self, work: Work, nodes: u32) -> Result<Captured<CapturedGraph<()>>, Failure> {
        let began = Instant::now();
        let mut record = Duration::ZERO;
        let graph = CapturedGraph::scope(&self.stream, |scope| {
            for _ in 0..nodes {
                match work {
                    Work::Fills => scope.record(OurFill { to: &mut self.to, byte: 7 })?,
                    Work::Kernels => scope.record(ops::add_one(&mut self.to)).map(drop)?,
                }
            }
            record = began.elapsed();
            Ok(())
        })?;
        // The upload was handed over, and is waited for on the other sides.
        self.stream.sync()?;
        Ok(Captured { record, ready: began.elapsed(), graph })
    }

    fn launch(&mut self, graph: &CapturedGraph<()>) -> Result<(), Failure> {
        // A launch is an operation that can be handed over without waiting.
        Ok(graph.update(graph.launch())?)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.stream.sync()?)
    }

    fn replay(&mut self, graph: &CapturedGraph<()>) -> Result<(), Failure> {
        Ok(graph.launch().sync_on(&self.stream)?)
    }

    fn contents(&mut self) -> Result<Vec<u32>, Failure> {
        Ok(self.to.to_vec()?)
    }
}
