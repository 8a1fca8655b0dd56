//! The model of stream capture against this device.

use phonograph_capture::conformance::conformance;
use phonograph_cuda::record::{Recorder, generate};

use crate::case::turn;

fn recorder() -> Option<Recorder> {
    turn();
    match Recorder::new() {
        Ok(recorder) => Some(recorder),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// None of them was used to find the model's rules.
const SEEDS: [u64; 3] = [104, 105, 106];

/// The answers of this device are those of the model.
#[track_caller]
fn check(records: &[String], least: usize) {
    assert!(records.len() >= least, "{} could be asked", records.len());
    let text = records.join("\n");
    let tally = conformance(text.as_bytes()).unwrap();
    eprintln!("{tally}");
    let divergences = tally.divergences.iter().map(ToString::to_string);
    let wrong: Vec<String> = divergences.take(20).collect();
    assert!(wrong.is_empty(), "{tally}\n{}", wrong.join("\n"));
}

#[test]
fn random_programs_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    for seed in SEEDS {
        let answers = (0..300).map(|number| {
            let answered = recorder.program(&generate::program(seed, number)).unwrap();
            serde_json::to_string(&answered).unwrap()
        });
        check(&answers.collect::<Vec<_>>(), 300);
    }
}

#[test]
fn random_updates_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    for seed in SEEDS {
        let ask = |number| match recorder.update(&generate::pair(seed, number)) {
            Ok(pair) => Some(serde_json::to_string(&pair).unwrap()),
            Err(error) => {
                eprintln!("left out: {error}");
                None
            }
        };
        check(&(0..300).filter_map(ask).collect::<Vec<_>>(), 280);
    }
}

#[test]
fn the_tables_of_calls_are_answered_as_the_model_answers() {
    let Some(recorder) = recorder() else { return };
    let rows = include_str!("../../../capture/tests/data/call_matrix.jsonl").lines();
    let settled = include_str!("../../../capture/tests/data/call_matrix_settled.jsonl").lines();
    let answers = rows.chain(settled).map(|row| {
        let answered = recorder.beside(&serde_json::from_str(row).unwrap()).unwrap();
        serde_json::to_string(&answered).unwrap()
    });
    check(&answers.collect::<Vec<_>>(), 456 + 132);
    let rows = include_str!("../../../capture/tests/data/call_nodes.jsonl").lines();
    let answers = rows.map(|row| {
        let answered = recorder.on_stream(&serde_json::from_str(row).unwrap()).unwrap();
        serde_json::to_string(&answered).unwrap()
    });
    check(&answers.collect::<Vec<_>>(), 114);
}
