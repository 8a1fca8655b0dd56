//! The model of stream capture against this device.

use phonograph_capture::conformance::conformance;
use phonograph_cuda::record::{Recorder, generate};

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
#[track_caller]
fn check(records: &[String], least: usize) {
    assert!(records.len() >= least, "{} could be asked", records.len());
    let text = records.join("\n");
    let tally = conformance(text.as_bytes()).unwrap();
    let wrong: Vec<String> = tally.divergences.iter().take(20).map(ToString::to_string).collect();
    assert!(tally.all_right(), "{tally}\n{}", wrong.join("\n"));
}

#[test]
fn random_programs_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    let answers = (0..300).map(|number| {
        let answered = recorder.program(&generate::program(1, number)).unwrap();
        serde_json::to_string(&answered).unwrap()
    });
    check(&answers.collect::<Vec<_>>(), 250);
}

#[test]
fn random_updates_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    let answers = (0..300).filter_map(|number| match recorder.update(&generate::pair(1, number)) {
        Ok(pair) => Some(serde_json::to_string(&pair).unwrap()),
        Err(error) => {
            eprintln!("left out: {error}");
            None
        }
    });
    check(&answers.collect::<Vec<_>>(), 250);
}

#[test]
fn the_tables_of_calls_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    let rows = include_str!("../../../capture/tests/data/call_matrix.jsonl").lines();
    let answers = rows.map(|row| {
        let answered = recorder.beside(&serde_json::from_str(row).unwrap()).unwrap();
        serde_json::to_string(&answered).unwrap()
    });
    check(&answers.collect::<Vec<_>>(), 456);
    let rows = include_str!("../../../capture/tests/data/call_nodes.jsonl").lines();
    let answers = rows.map(|row| {
        let answered = recorder.on_stream(&serde_json::from_str(row).unwrap()).unwrap();
        serde_json::to_string(&answered).unwrap()
    });
    check(&answers.collect::<Vec<_>>(), 114);
}
