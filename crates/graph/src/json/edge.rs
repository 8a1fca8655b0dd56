//! An edge: two nodes, or an object that tells more.

use std::fmt;

use serde::de::{self, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::value::Ref;
use crate::{EdgeData, EdgeKind};

/// `[from, to]`, or an object.
pub(super) struct EdgeJson<'a> {
    pub from: Ref<'a>,
    pub to: Ref<'a>,
    pub data: EdgeData,
}

#[derive(Clone, Copy, PartialEq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EdgeKindJson {
    #[default]
    Full,
    Programmatic,
}

impl<'de: 'a, 'a> Deserialize<'de> for EdgeJson<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Members<'a> {
            #[serde(borrow)]
            from: Ref<'a>,
            #[serde(borrow)]
            to: Ref<'a>,
            #[serde(default)]
            kind: EdgeKindJson,
            from_port: Option<u8>,
            #[serde(default)]
            to_port: u8,
        }
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = EdgeJson<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an edge, [from, to] or an object")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EdgeJson<'de>, A::Error> {
                let from =
                    list.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let to = list.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                if list.next_element::<IgnoredAny>()?.is_some() {
                    return Err(A::Error::custom("an edge of more than two nodes"));
                }
                Ok(EdgeJson { from, to, data: EdgeData::FULL })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EdgeJson<'de>, A::Error> {
                let all = Members::deserialize(de::value::MapAccessDeserializer::new(map))?;
                let Members { from, to, kind, from_port, to_port } = all;
                // At its trigger or once its blocks are launched: no default would be the evident one.
                if kind == EdgeKindJson::Programmatic && from_port.is_none() {
                    return Err(A::Error::custom("a programmatic edge needs a `from_port`"));
                }
                let kind = match kind {
                    EdgeKindJson::Full => EdgeKind::Full,
                    EdgeKindJson::Programmatic => EdgeKind::Programmatic,
                };
                let from_port = from_port.unwrap_or(0);
                Ok(EdgeJson { from, to, data: EdgeData { from_port, to_port, kind } })
            }
        }
        deserializer.deserialize_any(Either)
    }
}
