//! The numbers and layouts in [`functions`](crate::functions) against a toolkit's headers, where there are any.

use std::collections::HashMap;
use std::path::PathBuf;

use phonograph_trace::live::Operand;

use crate::functions::{FUNCTIONS, Location};

/// The headers: in the folder that a variable names, or a toolkit's.
fn headers() -> Option<[String; 2]> {
    let named = std::env::var_os("PHONOGRAPH_CUPTI_INCLUDE").map(PathBuf::from);
    let folders = named.into_iter().chain(["/usr/local/cuda/extras/CUPTI/include".into()]);
    let read = |folder: PathBuf| {
        let file = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        Some([file("cupti_driver_cbid.h")?, file("generated_cuda_meta.h")?])
    };
    folders.into_iter().find_map(read)
}

/// The fields of a structure of the header: name, offset, size. Everything that is no small integer or enumeration has 8 bytes.
fn fields(body: &str) -> Vec<(&str, usize, usize)> {
    let small = ["unsigned int", "int", "CUstreamCaptureMode", "CUdevice", "cuuint32_t"];
    let mut end = 0usize;
    let mut fields = Vec::new();
    for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let (kind, name) = field.rsplit_once([' ', '*']).unwrap();
        let size = match kind.trim() {
            "unsigned char" => 1,
            "unsigned short" => 2,
            kind if small.contains(&kind) && !field.contains('*') => 4,
            _ => 8,
        };
        let offset = end.next_multiple_of(size);
        fields.push((name, offset, size));
        end = offset + size;
    }
    fields
}

/// What the headers call an operand.
fn names(operand: Operand) -> &'static [&'static str] {
    match operand {
        Operand::Stream => &["hStream", "stream", "phStream"],
        Operand::Event => &["hEvent", "phEvent"],
        Operand::Memory => &["dptr", "pp", "p", "ptr", "dst", "dstDevice", "dstHost"],
        Operand::Source => &["src", "srcDevice", "srcHost"],
        Operand::Bytes => &["bytesize", "ByteCount", "size", "N"],
        Operand::Graph => &["hGraph", "phGraph", "phGraphClone"],
        Operand::Exec => &["hGraphExec", "phGraphExec", "hGraph"],
        Operand::Mode => &["mode"],
        Operand::Flags => &["flags", "Flags"],
        Operand::Child => &["childGraph"],
        Operand::Reason => &["resultInfo", "updateResult_out"],
        Operand::Count => &["numDependencies"],
        Operand::Name => &[],
    }
}

#[test]
fn numbers_and_layouts_are_the_headers() {
    let Some([numbers, layouts]) = headers() else {
        return println!(
            "skipped: no headers of CUPTI; PHONOGRAPH_CUPTI_INCLUDE may name their folder"
        );
    };
    let ids: HashMap<&str, u32> = numbers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("CUPTI_DRIVER_TRACE_CBID_")?.split_once('='))
        .filter_map(|(name, id)| Some((name.trim(), id.trim().trim_end_matches(',').parse().ok()?)))
        .collect();
    let mut structures: HashMap<&str, &str> = HashMap::new();
    for part in layouts.split("typedef struct ").skip(1) {
        let (name, rest) = part.split_once('{').unwrap();
        structures.insert(name.trim(), rest.split_once('}').unwrap().0);
    }
    for function in FUNCTIONS {
        let name = function.name;
        assert_eq!(ids[name], function.id, "{name}");
        let other = ["_ptsz", "_ptds"].map(|suffix| ids.get(format!("{name}{suffix}").as_str()));
        assert_eq!(
            other.into_iter().flatten().next().copied().unwrap_or(0),
            function.per_thread,
            "{name}"
        );
        for location in function.operands {
            let (operand, at, size) = match *location {
                Location::Word(operand, at) | Location::Out(operand, at) => (operand, at, 8),
                Location::Before(operand, at) | Location::Through(operand, at, _) => {
                    (operand, at, 8)
                }
                Location::Half(operand, at) => (operand, at, 4),
                Location::Config(_) | Location::Symbol => continue,
            };
            let fields = fields(structures[format!("{name}_params_st").as_str()]);
            let field = fields.iter().find(|(_, offset, _)| *offset == at);
            let (found, _, width) = field.unwrap_or_else(|| panic!("{name}: nothing at {at}"));
            assert!(
                names(operand).contains(found) && *width == size,
                "{name}: {found} of {width} bytes at {at}"
            );
        }
    }
}
