//! The model of stream capture against this device.

use phonograph_capture::conformance::conformance;
use phonograph_cuda::record::{Recorder, generate};
use phonograph_trace::recording::{Program, Recording};

fn recorder() -> Option<Recorder> {
    match Recorder::new() {
        Ok(recorder) => Some(recorder),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The answers of this device are those of the model.
fn check(programs: &[Program]) {
    let lines: Vec<String> =
        programs.iter().map(|program| serde_json::to_string(program).unwrap()).collect();
    let text = lines.join("\n");
    assert!(matches!(Recording::parse(text.as_bytes()), Ok(Recording::Programs(_))));
    let tally = conformance(text.as_bytes()).unwrap();
    let wrong: Vec<String> = tally.divergences.iter().take(20).map(ToString::to_string).collect();
    assert!(tally.all_right(), "{tally}\n{}", wrong.join("\n"));
}

#[test]
fn random_programs_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    let programs: Vec<Program> =
        (0..300).map(|number| recorder.program(&generate::program(1, number)).unwrap()).collect();
    check(&programs);
}
