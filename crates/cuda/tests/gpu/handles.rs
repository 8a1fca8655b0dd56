//! The thin rung: devices, streams, events, modules.

use phonograph_cuda::{
    Bindings, Device, DeviceError, Event, Module, ModuleError, Nvrtc, Program, Stream,
};
use phonograph_graph::{Access, Arg, GraphBuilder, Region, Schedule};

use crate::case::cuda;

/// Writes 7 to the first word of its operand.
const PTX: &str = ".version 7.0
.target sm_75
.address_size 64
.visible .entry seven(.param .u64 where)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [where];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, 7;
    st.global.u32 [%rd2], %r1;
    ret;
}
";

const SOURCE: &str = "extern \"C\" __global__ void seven(unsigned *where) { *where = 7; }";

#[test]
fn modules_come_from_ptx_and_cubin() {
    let Some(mut cuda) = cuda() else { return };
    let device = cuda.devices()[0].clone();
    let capability = device.capability();
    let program = Program { name: "seven", source: SOURCE, capability };
    let cubin = Nvrtc::load().unwrap().compile(&program).unwrap();
    // SAFETY: the compiler made it, whole.
    let from_cubin = unsafe { Module::from_cubin(&device, &cubin) }.unwrap();
    for module in [Module::from_ptx(&device, PTX).unwrap(), from_cubin] {
        let function = module.function("seven").unwrap();
        assert_eq!(function.parameter_sizes().unwrap(), [8]);
        let missing = module.function("eight").unwrap_err();
        assert_eq!(missing, ModuleError::NoFunction("eight".to_owned()));
        drop(module); // The function keeps it.
        let mut b = GraphBuilder::new();
        let x = b.external_buffer("x", 4);
        let whole = Region { buffer: x, offset: 0, bytes: 4 };
        b.add_kernel("seven", 1, 1, 0).arg(Arg::Region(whole, Access::Write)).finish();
        let graph = b.build().unwrap();
        // SAFETY: it writes the four bytes of its operand.
        let bindings = unsafe { Bindings::new().kernel("seven", &function) };
        let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
        drop(function); // The graph keeps it.
        cuda.replay(&mut exec).unwrap();
        assert_eq!(cuda.read::<u32>(exec.memory(x).unwrap()).unwrap(), [7]);
    }
}

#[test]
fn wrong_code_is_refused_with_the_assemblers_words() {
    let Some(cuda) = cuda() else { return };
    let device = &cuda.devices()[0];
    let wrong = PTX.replace("mov.u32", "mow.u32");
    let error = Module::from_ptx(device, &wrong).unwrap_err().to_string();
    assert!(error.contains("CUDA_ERROR_INVALID_PTX") && error.contains("mow"), "{error}");
    assert_eq!(Module::from_ptx(device, "a\0b").unwrap_err(), ModuleError::ZeroByte("PTX"));
    // SAFETY: it is refused for its first bytes.
    let error = unsafe { Module::from_cubin(device, b"no") }.unwrap_err();
    assert_eq!(error, ModuleError::NotCubin);
}

#[test]
fn devices_streams_and_events_answer() {
    let Some(mut cuda) = cuda() else { return };
    let device = cuda.devices()[0].clone();
    assert!(matches!(Device::open(4096), Err(DeviceError::Ordinal { ordinal: 4096, .. })));
    assert!(matches!(phonograph_cuda::Cuda::on(&[]), Err(DeviceError::None)));
    let (least, most) = device.priorities().unwrap();
    assert!(most <= least);
    let streams = [least, most].map(|p| Stream::with_priority(&device, p).unwrap());
    assert_eq!([least, most], [0, 1].map(|i: usize| streams[i].priority().unwrap()));
    let event = Event::new(&device).unwrap();
    streams[1].wait(&event).unwrap(); // Never recorded: nothing to wait for.
    event.record(&streams[0]).unwrap();
    streams[1].wait(&event).unwrap();
    event.synchronize().unwrap();
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    let host = cuda.alloc_host(12).unwrap();
    assert!(host.is_on_host() && host.bytes() == 12);
    cuda.write(&host, &[1i32, 2, 3]).unwrap();
    assert_eq!(cuda.read::<i32>(&host).unwrap(), [1, 2, 3]);
    assert!(cuda.read::<f64>(&host).is_err(), "12 bytes are no whole f64");
    assert!(cuda.write(&host, &[1i32]).is_err(), "one element for three");
    let mut other = phonograph_cuda::Cuda::new().unwrap();
    assert!(other.read::<i32>(&host).is_err(), "memory of another backend");
}

#[test]
fn memory_that_a_live_graph_uses_is_not_freed() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 8);
    b.add_fill("fill", fill_of(x));
    let graph = b.build().unwrap();
    let memory = cuda.alloc(8).unwrap();
    let bindings = Bindings::new().memory(x, &memory);
    let mut exec = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    let refused = memory.free().unwrap_err();
    assert!(refused.users > 0, "{refused}");
    cuda.replay(&mut exec).unwrap();
    assert_eq!(cuda.read::<u32>(&refused.memory).unwrap(), [7, 7]);
    drop(exec);
    refused.memory.free().unwrap();
}

fn fill_of(buffer: phonograph_graph::BufferId) -> phonograph_graph::MemsetNode {
    use phonograph_graph::{Extent, Pitched, Target};
    let dst = Pitched::linear(Target::Buffer(buffer), 0);
    phonograph_graph::MemsetNode { dst, value: 7, element_size: 4, extent: Extent::linear(8) }
}
