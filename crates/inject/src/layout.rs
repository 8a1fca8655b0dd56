//! The numbers and layouts in [`functions`](crate::functions) against a toolkit's headers, where there are any.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;

use phonograph_trace::live::Operand;

use crate::functions::{FUNCTIONS, Location};

/// The headers: in the folder that a variable names, else in a toolkit's, if there is one; the error is what is missing there.
fn headers() -> Result<[String; 2], String> {
    let named = std::env::var_os("PHONOGRAPH_CUPTI_INCLUDE").map(PathBuf::from);
    let folder = named.clone().unwrap_or_else(|| "/usr/local/cuda/extras/CUPTI/include".into());
    let read = |file: &str| {
        let path = folder.join(file);
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => {
                Err(format!("there is no {}", path.display()))
            }
            Err(error) => panic!("{}: {error}", path.display()),
        }
    };
    Ok([read("cupti_driver_cbid.h")?, read("generated_cuda_meta.h")?])
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
    let [numbers, layouts] = match headers() {
        Ok(headers) => headers,
        Err(missing) => {
            return println!(
                "skipped: {missing}; PHONOGRAPH_CUPTI_INCLUDE may name the folder of CUPTI's headers"
            );
        }
    };
    let ids: HashMap<&str, u32> = numbers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("CUPTI_DRIVER_TRACE_CBID_")?.split_once('='))
        .map(|(name, id)| (name.trim(), id.trim().trim_end_matches(',')))
        // The last, which gives the type its size, is in hexadecimal.
        .filter(|(name, _)| *name != "FORCE_INT")
        .map(|(name, id)| (name, id.parse().unwrap_or_else(|_| panic!("{name} is {id}"))))
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
            let fields = fields(structures[format!("{name}_params_st").as_str()]);
            if let Location::Parameters(handle, parameters, buffer) = *location {
                let at =
                    |name: &str| fields.iter().find(|field| field.0 == name).map(|field| field.1);
                let found = [at("f"), at("kernelParams"), at("extra")];
                assert_eq!(found, [Some(handle), Some(parameters), buffer], "{name}");
            }
            let (operand, at, size) = match *location {
                Location::Word(operand, at) | Location::Out(operand, at) => (operand, at, 8),
                Location::Before(operand, at) | Location::Through(operand, at, _) => {
                    (operand, at, 8)
                }
                Location::Half(operand, at) => (operand, at, 4),
                Location::Config(_) | Location::Symbol | Location::Parameters(..) => continue,
            };
            let field = fields.iter().find(|(_, offset, _)| *offset == at);
            let (found, _, width) = field.unwrap_or_else(|| panic!("{name}: nothing at {at}"));
            assert!(
                names(operand).contains(found) && *width == size,
                "{name}: {found} of {width} bytes at {at}"
            );
        }
    }
}
