//! The small values of the JSON format: objects that are nothing else, references, names, values as text, extents.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Access, Dim3};

/// A value that must be an object: serde would take a list of its members in order, too.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(transparent)]
pub(super) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(de::value::MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Map(PhantomData))
    }
}

/// A row of a table: by number, or by a name that is unique there.
pub(super) enum Ref<'a> {
    Id(u32),
    Name(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Ref<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Ref<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a name")
            }
            fn visit_u64<E: de::Error>(self, id: u64) -> Result<Ref<'de>, E> {
                let narrow = u32::try_from(id);
                narrow.map(Ref::Id).map_err(|_| E::custom(format!("{id} does not fit 32 bits")))
            }
            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Ref<'de>, E> {
                Ok(Ref::Name(Cow::Borrowed(name)))
            }
            fn visit_str<E>(self, name: &str) -> Result<Ref<'de>, E> {
                Ok(Ref::Name(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl Serialize for Ref<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Ref::Id(id) => serializer.serialize_u32(*id),
            Ref::Name(name) => serializer.serialize_str(name),
        }
    }
}

/// A text that is borrowed from the file where it holds no escape.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// A value written as text.
pub(super) struct Text<T>(pub T);

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parse<T>(PhantomData<T>);
        impl<T: FromStr<Err: Display>> Visitor<'_> for Parse<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Parse(PhantomData)).map(Text)
    }
}

/// An address, written `0x…`: numbers this large do not survive most readers of JSON.
pub(super) struct Address(pub u64);

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix("0x").and_then(|d| u64::from_str_radix(d, 16).ok());
        let short: String = text.chars().take(40).collect();
        digits.map(Address).ok_or_else(|| format!("`{short}` is no address such as `0x7f00`"))
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AccessJson {
    Read,
    Write,
    Both,
}

impl From<Access> for AccessJson {
    fn from(access: Access) -> Self {
        match access {
            Access::Read => AccessJson::Read,
            Access::Write => AccessJson::Write,
            Access::ReadWrite => AccessJson::Both,
        }
    }
}

impl From<AccessJson> for Access {
    fn from(access: AccessJson) -> Self {
        match access {
            AccessJson::Read => Access::Read,
            AccessJson::Write => Access::Write,
            AccessJson::Both => Access::ReadWrite,
        }
    }
}

/// Up to three extents, x first: `8`, `[8, 8]` or `[8, 8, 4]`; those left out are 1.
#[derive(Clone, Copy)]
pub(super) struct DimJson(pub Dim3);

impl Serialize for DimJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            (x, 1, 1) => serializer.serialize_u32(x),
            (x, y, 1) => [x, y].serialize(serializer),
            (x, y, z) => [x, y, z].serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for DimJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Extents;
        impl<'de> Visitor<'de> for Extents {
            type Value = DimJson;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an extent or a list of one to three")
            }
            fn visit_u64<E: de::Error>(self, x: u64) -> Result<DimJson, E> {
                let x = u32::try_from(x);
                let x = x.map_err(|_| E::custom("an extent that does not fit 32 bits"))?;
                Ok(DimJson((x, 1, 1)))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<DimJson, A::Error> {
                let mut all = [1; 3];
                let mut given = 0;
                for extent in &mut all {
                    let Some(next) = list.next_element()? else { break };
                    *extent = next;
                    given += 1;
                }
                if given == 0 || list.next_element::<IgnoredAny>()?.is_some() {
                    return Err(de::Error::custom("expected one to three extents"));
                }
                Ok(DimJson((all[0], all[1], all[2])))
            }
        }
        deserializer.deserialize_any(Extents)
    }
}
