//! What is said of traced programs, from traces that are written here.

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_capture::check::check_trace;
use phonograph_trace::live::{Operand, Operands, RawCall, Record, Stop, Trace, header};

use Operand::{Event, Exec, Flags, Graph, Memory, Mode, Name, Reason, Stream};

const FUNCTIONS: &[&str] = &[
    "cuStreamCreate",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuLaunchKernel",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphExecUpdate_v2",
    "cuStreamSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuStreamDestroy_v2",
    "cuCtxSynchronize",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuStreamUpdateCaptureDependencies",
    "cuGraphAddChildGraphNode",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamBeginCaptureToGraph",
];

struct Writer(Vec<u8>);

impl Writer {
    fn new() -> Self {
        let mut file = header().to_vec();
        for (id, name) in (0..).zip(FUNCTIONS) {
            Record::Function { id, name }.write(&mut file);
        }
        for id in 0..2 {
            Record::Thread { id, tid: id, main: id == 0, name: "t" }.write(&mut file);
        }
        Record::Context { id: 0, device: Some(0) }.write(&mut file);
        for (id, text) in
            (0..).zip(["gemm", "  File \"a.py\", line 3 in f\n", "  File \"a.py\", line 9 in g\n"])
        {
            Record::Text { id, text }.write(&mut file);
        }
        Self(file)
    }

    /// A call at a place (a text), with a result and operands.
    fn call(&mut self, function: &str, place: u32, result: u32, operands: &[(Operand, u64)]) {
        let function = FUNCTIONS.iter().position(|name| name.starts_with(function)).unwrap() as u32;
        let mut set = Operands::default();
        operands.iter().for_each(|(operand, value)| set.set(*operand, *value));
        Record::Call(RawCall {
            function,
            result,
            thread: 0,
            context: 0,
            python: Some(place),
            native: None,
            ranges: None,
            operands: set,
        })
        .write(&mut self.0);
    }

    /// The report, of a program that ended.
    fn report(mut self) -> String {
        Record::Stopped(Stop::Ended).write(&mut self.0);
        let trace = Trace::read(&self.0).unwrap();
        let traced = check_trace(&trace);
        let site = |call: phonograph_capture::model::CallIndex| {
            trace
                .python(&trace.sites[call.index()])
                .map(|text| text.trim().to_owned())
                .into_iter()
                .collect()
        };
        let (launches, others) = (&traced.launches, traced.other_launches);
        let counts = format!(
            "{} captures, {} failed, launches {others} and {launches:?}\n",
            traced.captures, traced.failed
        );
        traced.report.render_sites(&site, false) + &counts
    }
}

#[test]
fn recaptures_idle_graphs_and_failed_updates_are_warned_about() {
    let mut file = Writer::new();
    file.call("cuStreamCreate", 1, 0, &[(Stream, 100), (Flags, 1)]);
    for step in 0..5 {
        let (graph, exec) = (200 + step, 300 + step);
        file.call("cuStreamBeginCapture", 1, 0, &[(Stream, 100), (Mode, 0)]);
        file.call("cuLaunchKernel", 1, 0, &[(Stream, 100), (Name, 0)]);
        file.call("cuStreamEndCapture", 1, 0, &[(Stream, 100), (Graph, graph)]);
        file.call("cuGraphInstantiate", 1, 0, &[(Graph, graph), (Exec, exec)]);
        file.call("cuGraphLaunch", 1, 0, &[(Exec, exec), (Stream, 100)]);
    }
    file.call("cuStreamBeginCapture", 2, 0, &[(Stream, 100), (Mode, 0)]);
    file.call("cuLaunchKernel", 2, 0, &[(Stream, 100), (Name, 0)]);
    file.call("cuStreamEndCapture", 2, 0, &[(Stream, 100), (Graph, 210)]);
    // An empty graph, and one that was not captured.
    file.call("cuStreamBeginCapture", 2, 0, &[(Stream, 100), (Mode, 0)]);
    file.call("cuStreamEndCapture", 2, 0, &[(Stream, 100), (Graph, 211)]);
    file.call("cuGraphInstantiate", 2, 0, &[(Graph, 999), (Exec, 399)]);
    file.call("cuGraphLaunch", 2, 0, &[(Exec, 399), (Stream, 100)]);
    file.call("cuGraphExecUpdate", 2, 910, &[(Graph, 201), (Exec, 300), (Reason, 4)]);
    insta::assert_snapshot!(file.report());
}

#[test]
fn work_that_the_graph_does_not_contain_is_warned_about() {
    let mut file = Writer::new();
    for stream in [100, 101] {
        file.call("cuStreamCreate", 1, 0, &[(Stream, stream), (Flags, 1)]);
    }
    file.call("cuStreamBeginCapture", 1, 0, &[(Stream, 100), (Mode, 2)]);
    for stream in [100, 101, 101, 0] {
        file.call("cuLaunchKernel", 2, 0, &[(Stream, stream), (Name, 0)]);
    }
    file.call("cuStreamEndCapture", 1, 0, &[(Stream, 100), (Graph, 200)]);
    file.call("cuGraphInstantiate", 1, 0, &[(Graph, 200), (Exec, 300)]);
    file.call("cuGraphLaunch", 1, 0, &[(Exec, 300), (Stream, 100)]);
    insta::assert_snapshot!(file.report());
}

#[test]
fn a_graph_that_frees_on_launch_may_leave_allocations() {
    let relaunched = |auto_free: u64| {
        let mut file = Writer::new();
        file.call("cuStreamCreate", 1, 0, &[(Stream, 100), (Flags, 1)]);
        file.call("cuStreamBeginCapture", 1, 0, &[(Stream, 100), (Mode, 0)]);
        file.call("cuMemAllocAsync", 1, 0, &[(Stream, 100), (Memory, 0x7000)]);
        file.call("cuStreamEndCapture", 1, 0, &[(Stream, 100), (Graph, 200)]);
        let flags = [(Graph, 200), (Exec, 300), (Flags, auto_free)];
        file.call("cuGraphInstantiate", 1, 0, &flags);
        file.call("cuGraphLaunch", 1, 0, &[(Exec, 300), (Stream, 100)]);
        file.call("cuGraphLaunch", 1, 1 - auto_free as u32, &[(Exec, 300), (Stream, 100)]);
        file.report()
    };
    assert!(relaunched(1).starts_with("0 errors, 0 warnings"), "{}", relaunched(1));
    let refused = relaunched(0);
    assert!(refused.starts_with("error[R0]") && refused.contains("auto-free"), "{refused}");
}

/// The driver lets a wait pass that the model refuses: one finding, and what follows from it in the model is none of its own.
#[test]
fn a_disagreement_is_reported_once_with_its_steps() {
    let mut file = Writer::new();
    file.call("cuStreamCreate", 1, 0, &[(Stream, 100), (Flags, 1)]);
    file.call("cuStreamBeginCapture", 1, 0, &[(Stream, 100), (Mode, 0)]);
    file.call("cuLaunchKernel", 1, 0, &[(Stream, 100), (Name, 0)]);
    file.call("cuStreamSynchronize", 2, 0, &[(Stream, 100)]);
    file.call("cuLaunchKernel", 1, 0, &[(Stream, 100), (Name, 0)]);
    file.call("cuStreamEndCapture", 1, 0, &[(Stream, 100), (Graph, 200)]);
    insta::assert_snapshot!(file.report());
}

#[test]
fn a_capture_that_an_unseen_call_broke_says_so() {
    let mut file = Writer::new();
    file.call("cuStreamCreate", 1, 0, &[(Stream, 100), (Flags, 1)]);
    file.call("cuStreamBeginCapture", 1, 0, &[(Stream, 100), (Mode, 0)]);
    file.call("cuLaunchKernel", 2, 901, &[(Stream, 100), (Name, 0)]);
    file.call("cuStreamEndCapture", 1, 901, &[(Stream, 100)]);
    insta::assert_snapshot!(file.report());
}

fn random(u: &mut Unstructured<'_>) -> Result<Writer> {
    let mut file = Writer::new();
    for _ in 0..u.int_in_range(0..=60)? {
        let mut operands = Vec::new();
        for operand in [
            Stream,
            Event,
            Memory,
            Graph,
            Exec,
            Mode,
            Flags,
            Operand::Source,
            Operand::Child,
            Operand::Bytes,
        ] {
            if u.ratio(5, 6)? {
                operands.push((operand, u.int_in_range(0..=5)?));
            }
        }
        let function = *u.choose(FUNCTIONS)?;
        let result = *u.choose(&[0, 0, 0, 0, 1, 400, 600, 900, 901, 904, 906, 910, 2])?;
        if u.ratio(1, 8)? {
            Record::Given { addresses: vec![u.int_in_range(0..=9)?] }.write(&mut file.0);
        }
        file.call(function, u.int_in_range(0..=2)?, result, &operands);
        if u.ratio(1, 8)? {
            Record::Repeated { times: u.arbitrary()? }.write(&mut file.0);
        }
    }
    Ok(file)
}

#[test]
fn any_calls_with_any_answers_get_a_report() {
    arbtest::arbtest(|u| {
        let report = random(u)?.report();
        assert!(report.ends_with("]\n"), "{report}");
        Ok(())
    });
}
