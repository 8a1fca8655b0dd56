//! The kinds of nodes that not every GPU runs, against the CPU backend.

use phonograph_cuda::{Bindings, Stream};
use phonograph_graph::{Access, BufferId, DType, EventId, GraphBuilder, Region, Schedule};
use phonograph_runtime::cpu::kernels::Param;

use crate::case::{Case, add_one, check, cuda, view};
use crate::samples::nested;

fn whole(b: &GraphBuilder, buffer: BufferId) -> Region {
    Region { buffer, offset: 0, bytes: b.buffer(buffer).bytes }
}

#[test]
fn host_functions_run_on_every_replay() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let (x, staged) = (b.external_buffer("x", 400), b.host_buffer("staged", 400));
    let download = whole(&b, x);
    b.add_region_copy("download", download, Region { buffer: staged, ..download });
    let touched = (Region { buffer: staged, ..download }, Access::ReadWrite);
    b.add_host("scale", "scale", &[touched]);
    b.add_region_copy("upload", Region { buffer: staged, ..download }, download);
    let mut case = Case::new(b.build().unwrap());
    case.registry.host("scale", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v = *v * 3.0 + 1.0);
        Ok(())
    });
    check(&mut cuda, &case);
}

#[test]
fn a_host_function_that_fails_or_panics_fails_the_replay() {
    let Some(mut cuda) = cuda() else { return };
    for panics in [false, true] {
        let mut b = GraphBuilder::new();
        let staged = b.host_buffer("staged", 4);
        b.add_host("callback", "f", &[(whole(&b, staged), Access::ReadWrite)]);
        let mut case = Case::new(b.build().unwrap());
        case.registry.host("f", &[Param::ReadWrite(DType::F32)], move |_| {
            assert!(!panics, "no");
            Err(phonograph_runtime::cpu::kernels::KernelError::Failed("no".to_owned()))
        });
        let mut exec = case.instantiate(&mut cuda, &Schedule::sequential(&case.graph));
        for _ in 0..2 {
            let error = cuda.replay(&mut exec).unwrap_err().to_string();
            let expected = if panics {
                "node n0 (callback): the function panicked: no"
            } else {
                "node n0 (callback): no"
            };
            assert_eq!(error, expected);
        }
    }
}

#[test]
fn host_functions_in_children_run_on_every_replay() {
    let Some(mut cuda) = cuda() else { return };
    let mut case = Case::new(nested(|child, staged| {
        child.add_host("negate", "negate", &[(staged, Access::ReadWrite)]);
    }));
    case.registry.host("negate", &[Param::ReadWrite(DType::F32)], |block| {
        block.write::<f32>(0)?.iter_mut().for_each(|v| *v = -*v);
        Ok(())
    });
    check(&mut cuda, &case);
}

#[test]
fn events_order_graphs_on_different_streams() {
    let Some(mut cuda) = cuda() else { return };
    let mut b = GraphBuilder::new();
    let x = b.external_buffer("x", 4);
    let xv = view(x, &[]);
    let plus = b.add_elementwise("plus", add_one(), &[xv], &[], &[xv]);
    let record = b.add_event_record("done", EventId(0));
    b.dep(plus, record);
    let first = Case::new(b.build().unwrap());
    let mut exec = first.instantiate(&mut cuda, &Schedule::sequential(&first.graph));
    let memory = exec.memory(x).unwrap().clone();
    let mut b = GraphBuilder::new();
    let wait = b.add_event_wait("wait", EventId(3));
    let y = b.external_buffer("y", 4);
    let yv = view(y, &[]);
    let plus = b.add_elementwise("plus", add_one(), &[yv], &[], &[yv]);
    b.dep(wait, plus);
    let graph = b.build().unwrap();
    let bindings =
        Bindings::new().memory(y, &memory).event(EventId(3), exec.event(EventId(0)).unwrap());
    let mut second = cuda.instantiate(&graph, &Schedule::sequential(&graph), &bindings).unwrap();
    cuda.write(&memory, &[0f32]).unwrap();
    let streams: Vec<Stream> = (0..2).map(|_| Stream::new(&cuda.devices()[0]).unwrap()).collect();
    for _ in 0..10 {
        cuda.launch(&mut exec, &streams[0]).unwrap();
        cuda.launch(&mut second, &streams[1]).unwrap();
    }
    cuda.finish(&mut second).unwrap();
    assert_eq!(cuda.read::<f32>(&memory).unwrap(), [20.0]);
}
