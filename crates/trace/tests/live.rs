//! The trace of a running program: what is written is read, and any bytes are a trace or an error.

use arbtest::arbitrary::{Result, Unstructured};
use phonograph_trace::live::{
    LiveError, MAX_TEXT, Operand, Operands, RawCall, Reader, Record, Stop, Trace, header,
};

const TEXTS: [&str; 4] = ["", "cuStreamBeginCapture_v2", "  File \"é.py\", line 1 in f", "a"];

fn operands(u: &mut Unstructured<'_>) -> Result<Operands> {
    let mut operands = Operands::default();
    for operand in Operand::ALL {
        if u.ratio(1, 3)? {
            operands.set(operand, u.arbitrary()?);
        }
    }
    Ok(operands)
}

fn record(u: &mut Unstructured<'_>) -> Result<Record<'static>> {
    let text = *u.choose(&TEXTS)?;
    Ok(match u.int_in_range(0..=12)? {
        0 => {
            Record::Process { pid: u.arbitrary()?, driver: u.arbitrary()?, cupti: 1, command: text }
        }
        1 => Record::Function { id: u.arbitrary()?, name: text },
        2 => Record::Thread { id: u.arbitrary()?, tid: 7, main: u.arbitrary()?, name: text },
        3 => Record::Context { id: 1, device: u.ratio(1, 2)?.then_some(u32::MAX) },
        4 => Record::Text { id: u.arbitrary()?, text },
        5 => {
            let count = u.int_in_range(0..=9)?;
            let addresses = (0..count).map(|_| u.arbitrary()).collect::<Result<_>>()?;
            Record::Frames { id: 0, addresses }
        }
        6 => Record::Module {
            start: u.arbitrary()?,
            end: u64::MAX,
            bias: u.arbitrary()?,
            path: text,
        },
        7 => Record::Call(RawCall {
            function: u.arbitrary()?,
            result: u.arbitrary()?,
            thread: 0,
            context: u.arbitrary()?,
            python: u.ratio(1, 2)?.then_some(u32::MAX),
            native: u.ratio(1, 2)?.then_some(0),
            ranges: None,
            operands: operands(u)?,
        }),
        8 => Record::PassedOver { function: 3, calls: u.arbitrary()? },
        9 => Record::Graph { exec: u.arbitrary()?, path: text },
        11 => Record::Given { addresses: vec![u.arbitrary()?] },
        10 => Record::Repeated { times: u.arbitrary()? },
        _ => Record::Stopped(*u.choose(&[Stop::Ended, Stop::Full, Stop::Failed])?),
    })
}

#[test]
fn what_is_written_is_read() {
    arbtest::arbtest(|u| {
        let records =
            (0..u.int_in_range(0..=20)?).map(|_| record(u)).collect::<Result<Vec<_>>>()?;
        let mut file = header().to_vec();
        let mut ends = vec![file.len()];
        for record in &records {
            record.write(&mut file);
            ends.push(file.len());
        }
        let read = |bytes: &[u8]| {
            Reader::new(bytes)
                .unwrap()
                .collect::<std::result::Result<Vec<_>, _>>()
                .map(|records| records.len())
        };
        let back: Vec<_> = Reader::new(&file).unwrap().map(|record| record.unwrap()).collect();
        assert_eq!(back, records);
        // A program that was killed: the file ends anywhere, or zeros follow.
        let cut = u.int_in_range(ends[0]..=file.len())?;
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(read(&file[..cut]), Ok(whole));
        file.extend([0; 40]);
        assert_eq!(read(&file), Ok(records.len()));
        Ok(())
    });
}

#[test]
fn long_texts_and_stacks_are_cut() {
    let mut file = header().to_vec();
    let text = "é".repeat(MAX_TEXT);
    Record::Text { id: 0, text: &text }.write(&mut file);
    Record::Frames { id: 0, addresses: vec![1; 1000] }.write(&mut file);
    let mut reader = Reader::new(&file).unwrap();
    let cut = Record::Text { id: 0, text: &text[..MAX_TEXT] };
    assert_eq!(reader.next(), Some(Ok(cut)));
    assert_eq!(reader.next(), Some(Ok(Record::Frames { id: 0, addresses: vec![1; 128] })));
    assert_eq!(reader.next(), None);
}

/// A trace with calls that name handles, so that broken ones reach far.
fn seed(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let functions = [
        "cuStreamCreate",
        "cuStreamBeginCapture_v2_ptsz",
        "cuLaunchKernel",
        "cuStreamEndCapture",
        "cuMemAlloc_v2",
        "cuMemFree_v2",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",
        "cuNothingKnown",
    ];
    let mut file = header().to_vec();
    for (id, name) in (0..).zip(functions) {
        Record::Function { id, name }.write(&mut file);
    }
    Record::Thread { id: 0, tid: 1, main: true, name: "main" }.write(&mut file);
    Record::Context { id: 0, device: Some(0) }.write(&mut file);
    Record::Text { id: 0, text: "gemm" }.write(&mut file);
    for _ in 0..u.int_in_range(0..=40)? {
        let mut call = operands(u)?;
        for operand in
            [Operand::Stream, Operand::Event, Operand::Memory, Operand::Graph, Operand::Exec]
        {
            if u.ratio(3, 4)? {
                call.set(operand, u.int_in_range(0..=9)?);
            }
        }
        call.set(Operand::Name, 0);
        Record::Call(RawCall {
            function: u.int_in_range(0..=functions.len() as u32 - 1)?,
            result: *u.choose(&[0, 0, 0, 1, 600, 900, 901, 999])?,
            thread: 0,
            context: 0,
            python: None,
            native: None,
            ranges: None,
            operands: call,
        })
        .write(&mut file);
    }
    Ok(file)
}

#[test]
fn any_bytes_are_a_trace_or_an_error() {
    arbtest::arbtest(|u| {
        let mut bytes = seed(u)?;
        for _ in 0..u.int_in_range(0..=4)? {
            let at = u.choose_index(bytes.len())?;
            bytes[at] = u.arbitrary()?;
        }
        match Trace::read(&bytes) {
            Ok(trace) => {
                assert_eq!(trace.script.calls.len(), trace.sites.len());
                for (call, site) in trace.script.calls.iter().zip(&trace.sites) {
                    assert!(!trace.script.words(call).is_empty());
                    assert!(!trace.function(site).is_empty() || !trace.native(site).is_empty());
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        Ok(())
    });
}

#[test]
fn broken_files_are_errors_with_their_place() {
    let check = |bytes: &[u8], message: &str| {
        let error = Trace::read(bytes).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), message);
    };
    check(b"", "this is no trace of a program: it does not begin with `phonotrc`");
    check(
        b"phonotrc\x09\0\0\0",
        "the trace has version 9 of the format, and this program reads version 1",
    );
    let with = |record: &[u8]| [header().as_slice(), record].concat();
    check(&with(&[11, 1, 9]), "byte 14 of the trace: an end for no known reason");
    check(
        &with(&[5, 3, 0, 9, b'x']),
        "byte 15 of the trace: a text that is longer than its record",
    );
    check(&with(&[5, 3, 1, 1, b'x']), "byte 12 of the trace: text 0 is not defined");
    check(&with(&[9, 2, 4, 1]), "byte 12 of the trace: function 4 is not defined");
    assert_eq!(Trace::read(&with(&[200, 1, 7])).unwrap().stop, None);
    let undefined = LiveError::Undefined { at: 1, what: "text", id: 2 };
    assert_eq!(undefined.to_string(), "byte 1 of the trace: text 2 is not defined");
}

/// A trace of a few bytes a launch, whose kernel has a name of 64 KiB, would else be a million times as long in memory.
#[test]
fn launches_of_a_kernel_share_its_name() {
    let mut file = header().to_vec();
    Record::Function { id: 0, name: "cuLaunchKernel" }.write(&mut file);
    Record::Thread { id: 0, tid: 1, main: true, name: "main" }.write(&mut file);
    Record::Context { id: 0, device: Some(0) }.write(&mut file);
    Record::Text { id: 0, text: &"k".repeat(MAX_TEXT) }.write(&mut file);
    let mut operands = Operands::default();
    operands.set(Operand::Stream, 5);
    operands.set(Operand::Name, 0);
    let launch = RawCall {
        function: 0,
        result: 0,
        thread: 0,
        context: 0,
        python: None,
        native: None,
        ranges: None,
        operands,
    };
    (0..2).for_each(|_| Record::Call(launch).write(&mut file));
    let trace = Trace::read(&file).unwrap();
    let names = trace.script.calls.iter().map(|call| call.work.as_ref().unwrap().name.as_ptr());
    let names: Vec<*const u8> = names.collect();
    assert_eq!(names[0], names[1]);
}

/// However many functions there are: with a search of all for each, this takes minutes.
#[test]
fn calls_that_are_only_counted_are_added_up_by_function() {
    const FUNCTIONS: u32 = 100_000;
    let mut file = header().to_vec();
    for id in 0..FUNCTIONS {
        Record::Function { id, name: &format!("cuNothingKnown{id:06}") }.write(&mut file);
    }
    for function in (0..FUNCTIONS).chain(0..FUNCTIONS) {
        Record::PassedOver { function, calls: u64::from(function) }.write(&mut file);
    }
    let passed = Trace::read(&file).unwrap().passed_over;
    let expected = (0..FUNCTIONS).map(|id| (format!("cuNothingKnown{id:06}"), 2 * u64::from(id)));
    assert!(passed.into_iter().eq(expected));
}
