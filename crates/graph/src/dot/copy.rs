//! What the label of a copy means, in its three forms: `(DtoH,256)`, the driver's table of both ends
//! (`MemoryType`, `Array`, `Host`, `Device`, …), and the runtime's rows (`kind`, `srcPtr`, `srcPos`, …).
//!
//! Managed and unified memory and arrays count as the device's. The runtime's rows give the width of an array copy
//! in elements of a size that they do not tell: its width is read as 0.

use super::interpret::{Described, number, parenthesised, small, table, target, value};
use super::record::Field;
use super::token::shorten;
use crate::{Extent, MemcpyDir, MemcpyNode, Pitched, Target};

pub(super) fn from_lines(rest: &[&str]) -> Result<Described, String> {
    let [direction, bytes] = parenthesised(rest, "(direction,bytes)")?;
    let end = Pitched::linear(Target::Unspecified, 0);
    let extent = Extent::linear(number(bytes, "the bytes")?);
    let node = MemcpyNode { dir: named_direction(direction)?, src: end, dst: end, extent };
    // `DtoU` says more than the direction that it becomes.
    let plain = matches!(direction, "HtoD" | "DtoH" | "DtoD" | "HtoH");
    let memory = if plain { String::new() } else { direction.to_owned() };
    Ok(Described::Memcpy { node, memory })
}

pub(super) fn from_record(rows: &[Field]) -> Result<Described, String> {
    match value(rows, "kind") {
        Some(kind) => runtime(rows, kind),
        None => driver(rows),
    }
}

// --- the driver's table -----------------------------------------------------------------------------

fn driver(rows: &[Field]) -> Result<Described, String> {
    const ENDS: &str = "expected a table of source and destination in the label of a MEMCPY";
    let ends = rows.iter().filter_map(table).find(|t| t.iter().any(|(k, _)| *k == "MemoryType"));
    let ends = ends.ok_or(ENDS)?;
    if !ends.len().is_multiple_of(2) {
        return Err(ENDS.to_owned());
    }
    let (src, dst) = ends.split_at(ends.len() / 2);
    let extent = rows.iter().find(|row| row.leaves().first() == Some(&"Extent"));
    let extent = extent.and_then(table).ok_or("expected a row `{Extent | …}`")?;
    let extent = Extent {
        width: column(&extent, "WidthInBytes")?,
        height: column(&extent, "Height")?,
        depth: column(&extent, "Depth")?,
    };
    let (from, to) = (memory_of(src), memory_of(dst));
    let node = MemcpyNode {
        dir: direction(is_host(from)?, is_host(to)?),
        src: driver_end(src)?,
        dst: driver_end(dst)?,
        extent,
    };
    Ok(Described::Memcpy { node, memory: format!("{from} to {to}") })
}

/// `DEVICE (MANAGED)` says how it was declared and, in parentheses, what the memory is.
fn memory_of<'a>(end: &[(&'a str, &'a str)]) -> &'a str {
    let told = end.iter().find(|(key, _)| *key == "MemoryType").map_or("", |&(_, value)| value);
    let inner = told.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(told).trim()
}

fn driver_end(end: &[(&str, &str)]) -> Result<Pitched, String> {
    let [array, host, device] = ["Array", "Host", "Device"].map(|key| column(end, key));
    let address = if host? != 0 { column(end, "Host")? } else { device? };
    // An array is a handle, not an address; bytes within it cannot be named.
    let target =
        if array? != 0 || address == 0 { Target::Unspecified } else { Target::Address(address) };
    let (pitch, slice_rows) = (column(end, "Pitch")?, column(end, "Height")?);
    let position = [column(end, "XInBytes")?, column(end, "Y")?, column(end, "Z")?];
    Ok(Pitched { target, offset: offset(position, pitch, slice_rows), pitch, slice_rows })
}

fn column(columns: &[(&str, &str)], key: &str) -> Result<u64, String> {
    let found = columns.iter().find(|(head, _)| *head == key);
    let &(_, text) = found.ok_or_else(|| format!("expected a column `{key}`"))?;
    number(text, &format!("`{key}`"))
}

fn offset([x, y, z]: [u64; 3], pitch: u64, slice_rows: u64) -> u64 {
    let row = z.saturating_mul(slice_rows).saturating_add(y);
    row.saturating_mul(pitch).saturating_add(x)
}

// --- the runtime's rows -----------------------------------------------------------------------------

fn runtime(rows: &[Field], kind: &str) -> Result<Described, String> {
    let (letters, memory) = match kind.split_once('(') {
        Some((letters, memory)) => (letters.trim(), memory.trim_end_matches(')').trim()),
        None => (kind, ""),
    };
    let dir = match memory.split_once(" to ") {
        Some((from, to)) => direction(is_host(from)?, is_host(to)?),
        None => named_direction(letters)?,
    };
    let place = Place::read(rows)?;
    let ends = [("srcPtr", "srcArray", place.src), ("dstPtr", "dstArray", place.dst)];
    let mut is_array = false;
    let [src, dst] = ends.map(|(pointer, array, position)| {
        is_array |= has_heading(rows, array);
        runtime_end(rows, pointer, position)
    });
    let width = if is_array { 0 } else { place.extent.width };
    let extent = Extent { width, ..place.extent };
    let node = MemcpyNode { dir, src: src?, dst: dst?, extent };
    Ok(Described::Memcpy { node, memory: memory.to_owned() })
}

fn has_heading(rows: &[Field], heading: &str) -> bool {
    // A row starts with its headings; what follows may be anything, a name above all.
    rows.iter().any(|row| match row {
        Field::Group(fields) => {
            fields.first().is_some_and(|heads| heads.leaves().contains(&heading))
        }
        Field::Text(_) => false,
    })
}

/// Rows `{{srcPtr | dstPtr} | {…×8} | {…×8}}`, or `{srcPtr | {…×4} | {…×4}}` where the other end is an array.
fn runtime_end(rows: &[Field], pointer: &str, position: [u64; 3]) -> Result<Pitched, String> {
    for row in rows {
        let (Field::Group(fields), Some(columns)) = (row, table(row)) else { continue };
        let heads: Vec<&str> =
            fields[..fields.len() - 2].iter().flat_map(|field| field.leaves()).collect();
        let Some(index) = heads.iter().position(|head| *head == pointer) else { continue };
        let each = columns.len() / heads.len();
        let own = &columns[index * each..(index + 1) * each];
        let told = own.iter().find(|(head, _)| *head == "ptr").map_or("-", |&(_, text)| text);
        let (pitch, slice_rows) = (column(own, "pitch")?, column(own, "ysize")?);
        let offset = offset(position, pitch, slice_rows);
        return Ok(Pitched { target: target(told)?, offset, pitch, slice_rows });
    }
    Ok(Pitched::linear(Target::Unspecified, 0))
}

/// The row of positions and extent, as far as it is there.
struct Place {
    src: [u64; 3],
    dst: [u64; 3],
    extent: Extent,
}

impl Place {
    fn read(rows: &[Field]) -> Result<Self, String> {
        let (mut src, mut dst, mut extent) = ([0; 3], [0; 3], None);
        for row in rows {
            let mut about = "";
            let leaves = row.leaves();
            for (at, leaf) in leaves.iter().enumerate() {
                let next = || number(leaves.get(at + 1).unwrap_or(&""), &format!("`{leaf}`"));
                let axis = |names: [&str; 3]| names.iter().position(|name| name == leaf);
                match (about, *leaf) {
                    (_, "srcPos" | "dstPos" | "Extent") => about = leaf,
                    ("srcPos" | "dstPos", _) => {
                        let position = if about == "srcPos" { &mut src } else { &mut dst };
                        if let Some(axis) = axis(["x", "y", "z"]) {
                            position[axis] = next()?;
                        }
                    }
                    ("Extent", _) => {
                        if let Some(axis) = axis(["Width", "Height", "Depth"]) {
                            extent.get_or_insert([0, 1, 1])[axis] = next()?;
                        }
                    }
                    _ => {}
                }
            }
        }
        let [width, height, depth] =
            extent.ok_or("expected an `Extent` in the label of a MEMCPY")?;
        Ok(Self { src, dst, extent: Extent { width, height, depth } })
    }
}

// --- directions -------------------------------------------------------------------------------------

const fn direction(from_host: bool, to_host: bool) -> MemcpyDir {
    match (from_host, to_host) {
        (true, true) => MemcpyDir::HostToHost,
        (true, false) => MemcpyDir::HostToDevice,
        (false, true) => MemcpyDir::DeviceToHost,
        (false, false) => MemcpyDir::DeviceToDevice,
    }
}

fn is_host(memory: &str) -> Result<bool, String> {
    let memory = memory.trim();
    if memory.starts_with("HOST") {
        return Ok(true);
    }
    if ["DEVICE", "MANAGED", "UNIFIED", "ARRAY"].iter().any(|known| memory.starts_with(known)) {
        return Ok(false);
    }
    Err(format!(
        "expected a memory type such as DEVICE or HOST PINNED, found `{}`",
        shorten(memory)
    ))
}

/// `DtoH` and the like; `PtoP 0→1` names the devices.
fn named_direction(text: &str) -> Result<MemcpyDir, String> {
    let bad = || format!("expected a direction such as DtoH, found `{}`", shorten(text));
    if let Some(devices) = text.strip_prefix("PtoP ") {
        let (src, dst) = devices.split_once('→').ok_or_else(bad)?;
        let (src_device, dst_device) = (small(src, "a device")?, small(dst, "a device")?);
        return Ok(MemcpyDir::PeerToPeer { src_device, dst_device });
    }
    let (from, to) = text.split_once("to").ok_or_else(bad)?;
    let host = |letter: &str| match letter {
        "H" => Some(true),
        // Device, array, unified, managed; a peer is a device too, only which one is not told.
        "D" | "A" | "U" | "M" | "P" => Some(false),
        _ => None,
    };
    Ok(direction(host(from).ok_or_else(bad)?, host(to).ok_or_else(bad)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_by_letters() {
        let check = |text: &str, expected: Option<MemcpyDir>| {
            assert_eq!(named_direction(text).ok(), expected, "{text}");
        };
        check("HtoD", Some(MemcpyDir::HostToDevice));
        check("DtoA", Some(MemcpyDir::DeviceToDevice));
        check("UtoH", Some(MemcpyDir::DeviceToHost));
        check("PtoP 0→1", Some(MemcpyDir::PeerToPeer { src_device: 0, dst_device: 1 }));
        check("PtoP", Some(MemcpyDir::DeviceToDevice));
        check("default", None);
        check("HtoX", None);
    }
}
