//! The members of the JSON format, apart from the representation: what a field is called, what may be left out, and
//! what it is then.
//!
//! Everything is read with unknown members refused. Nothing here buffers a value before it knows its type, so that
//! errors keep their place and reading stays linear.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::edge::EdgeJson;
use super::expr::{OpText, OutputText};
use super::value::{AccessJson, Address, DimJson, Name, Object, Ref, Text};
use crate::{DEFAULT_ALIGN, DType, Extent, MemcpyDir, Scalar};

// --- the file ---------------------------------------------------------------------------------------

/// The outermost object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document<'a> {
    /// Version of the format.
    #[serde(rename = "phonograph")]
    pub _version: Version,
    #[serde(borrow)]
    pub graph: Object<GraphJson<'a>>,
}

/// Any version's outermost object, to tell a newer format from a broken file.
#[derive(Deserialize)]
pub(super) struct Envelope {
    pub phonograph: u64,
}

pub(super) struct Version;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            super::VERSION => Ok(Version),
            other => Err(de::Error::custom(format!("version {other}"))),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GraphJson<'a> {
    #[serde(borrow, default)]
    pub name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub buffers: Vec<Object<BufferJson<'a>>>,
    #[serde(borrow, default)]
    pub slots: Vec<Object<SlotJson<'a>>>,
    #[serde(borrow)]
    pub nodes: Vec<NodeJson<'a>>,
    #[serde(borrow)]
    pub edges: Option<Vec<EdgeJson<'a>>>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn one() -> u64 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde calls.
const fn is_one(value: &u64) -> bool {
    *value == 1
}

// --- declarations -----------------------------------------------------------------------------------

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BufferJson<'a> {
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub name: Cow<'a, str>,
    pub bytes: u64,
    #[serde(default = "default_align", skip_serializing_if = "is_default_align")]
    pub align: u64,
    #[serde(borrow, default, skip_serializing_if = "RoleJson::is_internal")]
    pub role: RoleJson<'a>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub space: SpaceJson,
}

const fn default_align() -> u64 {
    DEFAULT_ALIGN
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde calls.
const fn is_default_align(align: &u64) -> bool {
    *align == DEFAULT_ALIGN
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RoleJson<'a> {
    #[default]
    Internal,
    External,
    Slot(AccessJson),
    #[serde(borrow)]
    Outer(Ref<'a>),
}

impl RoleJson<'_> {
    const fn is_internal(&self) -> bool {
        matches!(self, RoleJson::Internal)
    }
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SpaceJson {
    Device(u32),
    Pinned,
    Pageable,
    Unknown,
}

impl Default for SpaceJson {
    fn default() -> Self {
        SpaceJson::Device(0)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlotJson<'a> {
    #[serde(borrow, default, skip_serializing_if = "str::is_empty")]
    pub name: Cow<'a, str>,
    pub default: Text<Scalar>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub outer: Option<Ref<'a>>,
}

// --- operands ---------------------------------------------------------------------------------------

/// Memory that a node uses: a tensor where a type is given, else bytes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Operand<'a> {
    #[serde(borrow)]
    pub buffer: Ref<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessJson>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<Text<DType>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strides: Option<Vec<u64>>,
}

/// An argument: a scalar as text (`"f32 0.5"`), `{"slot": …}`, or an operand.
pub(super) enum ArgJson<'a> {
    Scalar(Scalar),
    Slot(Ref<'a>),
    Operand(Operand<'a>),
}

impl Serialize for ArgJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ArgJson::Scalar(scalar) => serializer.collect_str(scalar),
            ArgJson::Slot(slot) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("slot", slot)?;
                map.end()
            }
            ArgJson::Operand(operand) => operand.serialize(serializer),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ArgJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members<'a> {
            #[serde(borrow)]
            slot: Option<Ref<'a>>,
            #[serde(borrow)]
            buffer: Option<Ref<'a>>,
            access: Option<AccessJson>,
            offset: Option<u64>,
            bytes: Option<u64>,
            dtype: Option<Text<DType>>,
            shape: Option<Vec<u64>>,
            strides: Option<Vec<u64>>,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ArgJson<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a scalar such as \"f32 1.5\", a slot, or a buffer with its access")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ArgJson<'de>, E> {
                text.parse().map(ArgJson::Scalar).map_err(E::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ArgJson<'de>, A::Error> {
                let all = Members::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let Members { slot, buffer, access, offset, bytes, dtype, shape, strides } = all;
                let alone = buffer.is_none()
                    && access.is_none()
                    && offset.is_none()
                    && bytes.is_none()
                    && dtype.is_none()
                    && shape.is_none()
                    && strides.is_none();
                match (slot, buffer) {
                    (Some(slot), None) if alone => Ok(ArgJson::Slot(slot)),
                    (Some(_), _) => Err(de::Error::custom("`slot` stands alone in an argument")),
                    (None, None) => Err(de::Error::missing_field("buffer")),
                    (None, Some(buffer)) => {
                        let offset = offset.unwrap_or(0);
                        Ok(ArgJson::Operand(Operand {
                            buffer,
                            access,
                            offset,
                            bytes,
                            dtype,
                            shape,
                            strides,
                        }))
                    }
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

// --- nodes ------------------------------------------------------------------------------------------

/// One node: its name, its stream, and its kind as the one member that is left.
pub(super) struct NodeJson<'a> {
    pub name: Cow<'a, str>,
    pub stream: Option<u32>,
    pub observed: Option<ObservedJson<'a>>,
    pub kind: KindJson<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObservedJson<'a> {
    pub trials: u32,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub operands: Vec<Object<Operand<'a>>>,
}

pub(super) enum KindJson<'a> {
    Kernel(Box<KernelJson<'a>>),
    Memcpy(Box<MemcpyJson<'a>>),
    Memset(Box<MemsetJson<'a>>),
    Host(Box<HostJson<'a>>),
    Empty(Nothing),
    EventRecord(u32),
    EventWait(u32),
    MemAlloc(Ref<'a>),
    MemFree(Ref<'a>),
    ChildGraph(Box<GraphJson<'a>>),
    Conditional(Box<ConditionalJson<'a>>),
}

/// `{}`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KernelJson<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub function: Option<Name<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elementwise: Option<Object<ExprJson>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub library: Option<Name<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axis: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Object<ExprJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Object<ExprJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<DimJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<DimJson>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub shared_mem_bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<DimJson>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub cooperative: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "is_default")]
    pub fusible: bool,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ArgJson<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExprJson {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Text<DType>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<Text<DType>>,
    pub ops: Vec<Text<OpText>>,
    pub outputs: Vec<Text<OutputText>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemcpyJson<'a> {
    pub direction: DirectionJson,
    #[serde(borrow, default, skip_serializing_if = "is_unspecified")]
    pub src: Object<PitchedJson<'a>>,
    #[serde(borrow, default, skip_serializing_if = "is_unspecified")]
    pub dst: Object<PitchedJson<'a>>,
    pub width: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub height: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub depth: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemsetJson<'a> {
    #[serde(borrow, default, skip_serializing_if = "is_unspecified")]
    pub dst: Object<PitchedJson<'a>>,
    pub value: u32,
    #[serde(default = "one_byte", skip_serializing_if = "is_one_byte")]
    pub element_size: u8,
    pub width: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub height: u64,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub depth: u64,
}

const fn one_byte() -> u8 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref)] // The signature that serde calls.
const fn is_one_byte(size: &u8) -> bool {
    *size == 1
}

impl MemcpyJson<'_> {
    pub const fn extent(&self) -> Extent {
        Extent { width: self.width, height: self.height, depth: self.depth }
    }
}

impl MemsetJson<'_> {
    pub const fn extent(&self) -> Extent {
        Extent { width: self.width, height: self.height, depth: self.depth }
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PitchedJson<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Ref<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Text<Address>>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub offset: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub pitch: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    pub slice_rows: u64,
}

const fn is_unspecified(end: &Object<PitchedJson>) -> bool {
    let PitchedJson { buffer, address, offset, pitch, slice_rows } = &end.0;
    let nowhere = buffer.is_none() && address.is_none();
    nowhere && *offset == 0 && *pitch == 0 && *slice_rows == 0
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) enum DirectionJson {
    HtoD,
    DtoH,
    DtoD,
    HtoH,
    PtoP(Object<PeerJson>),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PeerJson {
    pub src_device: u32,
    pub dst_device: u32,
}

impl From<MemcpyDir> for DirectionJson {
    fn from(dir: MemcpyDir) -> Self {
        match dir {
            MemcpyDir::HostToDevice => DirectionJson::HtoD,
            MemcpyDir::DeviceToHost => DirectionJson::DtoH,
            MemcpyDir::DeviceToDevice => DirectionJson::DtoD,
            MemcpyDir::HostToHost => DirectionJson::HtoH,
            MemcpyDir::PeerToPeer { src_device, dst_device } => {
                DirectionJson::PtoP(Object(PeerJson { src_device, dst_device }))
            }
        }
    }
}

impl From<DirectionJson> for MemcpyDir {
    fn from(dir: DirectionJson) -> Self {
        match dir {
            DirectionJson::HtoD => MemcpyDir::HostToDevice,
            DirectionJson::DtoH => MemcpyDir::DeviceToHost,
            DirectionJson::DtoD => MemcpyDir::DeviceToDevice,
            DirectionJson::HtoH => MemcpyDir::HostToHost,
            DirectionJson::PtoP(Object(PeerJson { src_device, dst_device })) => {
                MemcpyDir::PeerToPeer { src_device, dst_device }
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostJson<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub function: Option<Name<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Object<Operand<'a>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConditionalJson<'a> {
    pub kind: ConditionalKindJson,
    #[serde(borrow)]
    pub condition: Option<Object<Operand<'a>>>,
    pub handle: Option<u64>,
    #[serde(borrow)]
    pub bodies: Vec<Object<GraphJson<'a>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ConditionalKindJson {
    If,
    While,
    Switch,
}

// --- reading a node ---------------------------------------------------------------------------------

#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum NodeKey {
    Name,
    Stream,
    Observed,
    Kernel,
    Memcpy,
    Memset,
    Host,
    Empty,
    EventRecord,
    EventWait,
    MemAlloc,
    MemFree,
    ChildGraph,
    Conditional,
}

impl<'de: 'a, 'a> Deserialize<'de> for NodeJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = NodeJson<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a node")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NodeJson<'de>, A::Error> {
                let (mut name, mut stream, mut observed, mut kind) = (None, None, None, None);
                while let Some(key) = map.next_key::<NodeKey>()? {
                    let kind_now = match key {
                        NodeKey::Name if name.is_some() => {
                            return Err(de::Error::duplicate_field("name"));
                        }
                        NodeKey::Name => {
                            name = Some(map.next_value::<Name>()?.0);
                            continue;
                        }
                        NodeKey::Stream if stream.is_some() => {
                            return Err(de::Error::duplicate_field("stream"));
                        }
                        NodeKey::Stream => {
                            stream = Some(map.next_value()?);
                            continue;
                        }
                        NodeKey::Observed if observed.is_some() => {
                            return Err(de::Error::duplicate_field("observed"));
                        }
                        NodeKey::Observed => {
                            observed = Some(map.next_value::<Object<_>>()?.0);
                            continue;
                        }
                        NodeKey::Kernel => KindJson::Kernel(map.next_value::<Object<_>>()?.0),
                        NodeKey::Memcpy => KindJson::Memcpy(map.next_value::<Object<_>>()?.0),
                        NodeKey::Memset => KindJson::Memset(map.next_value::<Object<_>>()?.0),
                        NodeKey::Host => KindJson::Host(map.next_value::<Object<_>>()?.0),
                        NodeKey::Empty => KindJson::Empty(map.next_value::<Object<_>>()?.0),
                        NodeKey::EventRecord => KindJson::EventRecord(map.next_value()?),
                        NodeKey::EventWait => KindJson::EventWait(map.next_value()?),
                        NodeKey::MemAlloc => KindJson::MemAlloc(map.next_value()?),
                        NodeKey::MemFree => KindJson::MemFree(map.next_value()?),
                        NodeKey::ChildGraph => {
                            KindJson::ChildGraph(map.next_value::<Object<_>>()?.0)
                        }
                        NodeKey::Conditional => {
                            KindJson::Conditional(map.next_value::<Object<_>>()?.0)
                        }
                    };
                    if kind.replace(kind_now).is_some() {
                        return Err(de::Error::custom("a node of two kinds; it has one"));
                    }
                }
                let kind = kind.ok_or_else(|| {
                    de::Error::custom(
                        "a node without its kind: `kernel`, `memcpy`, `memset`, `host`, `empty`, `event_record`, \
                         `event_wait`, `mem_alloc`, `mem_free`, `child_graph` or `conditional`",
                    )
                })?;
                Ok(NodeJson { name: name.unwrap_or_default(), stream, observed, kind })
            }
        }
        deserializer.deserialize_map(Members)
    }
}
