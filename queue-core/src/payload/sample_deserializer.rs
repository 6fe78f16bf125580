//! Deserializer that builds sample values. The deserializer provides every value that a type requests, and a plan selects among
//! alternatives.
//!
//! Types request fields, variants and names through `serde`, so a sample has the JSON form of the type. The module `samples` selects the
//! plans to try.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor, value::StrDeserializer},
    forward_to_deserialize_any,
};

/// Sample strings for types that deserialize from text, in the order in which they are tried.
const TEXTS: [&str; 10] = [
    "text",
    "6f2c1a54-0c8e-4b8e-9d53-2f0e6f7b5a10",
    "2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05",
    "2026-01-02",
    "03:04:05",
    "1",
    "127.0.0.1",
    "https://example.org/",
    "2001:db8::1",
];

/// Maximum nesting depth of a sample.
const MAX_DEPTH: usize = 16;

/// Maximum nesting depth of a recursive type. Beyond this depth, all optional parts are omitted.
const MAX_RECURSION: usize = 2;

/// Index of the alternative to use at each path. The default is 0, the first alternative.
pub(super) type Plan = BTreeMap<String, usize>;

/// Alternative that was used at a path.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) path: String,
    /// Number of alternatives at the path.
    pub(super) count: usize,
    pub(super) chosen: usize,
    /// Whether the alternatives are forms of the type, such as enum variants, each of which needs a sample. If false, the alternatives are
    /// candidates for a valid value of one form.
    pub(super) is_form: bool,
}

/// Builder of one sample value.
pub(super) struct SampleBuilder<'p> {
    plan: &'p Plan,
    pub(super) choices: Vec<Choice>,
}

impl<'p> SampleBuilder<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, choices: Vec::new() }
    }

    pub(super) fn root(&mut self) -> SampleDeserializer<'_, 'p> {
        SampleDeserializer { builder: self, path: "$".to_owned(), depth: 0, names: Vec::new() }
    }

    fn choose(&mut self, path: &str, count: usize, is_form: bool) -> usize {
        let chosen = self.plan.get(path).copied().unwrap_or(0);
        self.choices.push(Choice { path: path.to_owned(), count, chosen, is_form });
        chosen
    }
}

/// Reason why no sample could be built, as reported by the type's `Deserialize` implementation.
#[derive(Debug)]
pub(super) struct SampleError(pub(super) String);

impl fmt::Display for SampleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SampleError {}

impl serde::de::Error for SampleError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// Deserializer for the value at one path.
pub(super) struct SampleDeserializer<'m, 'p> {
    builder: &'m mut SampleBuilder<'p>,
    path: String,
    depth: usize,
    /// Names of the enclosing types.
    names: Vec<&'static str>,
}

impl<'p> SampleDeserializer<'_, 'p> {
    fn choose(&mut self, count: usize, is_form: bool) -> usize {
        self.builder.choose(&self.path, count, is_form)
    }

    fn child(&mut self, step: &str) -> SampleDeserializer<'_, 'p> {
        let names = self.names.clone();
        SampleDeserializer { path: format!("{}{step}", self.path), depth: self.depth + 1, builder: self.builder, names }
    }

    /// Returns a small number, or `None` for the minimum of a signed type or the maximum of an unsigned type. A type that accepts only a
    /// narrower range rejects this extreme.
    fn number(&mut self) -> Option<i64> {
        [None, Some(1), Some(0), Some(2026)][self.choose(4, false).min(3)]
    }

    /// Records that the value belongs to a type called `name`. Fails if the value is nested too deeply, which indicates an infinitely
    /// recursive type.
    fn enter(&mut self, name: &'static str) -> Result<(), SampleError> {
        self.names.push(name);
        if self.depth > MAX_DEPTH { Err(SampleError::custom("the type is infinitely recursive")) } else { Ok(()) }
    }

    /// Returns whether the nesting or the recursion is so deep that optional parts of the value are omitted.
    fn is_deep(&self) -> bool {
        let repeats = |name: &&str| !name.is_empty() && self.names.iter().filter(|other| *other == name).count() > MAX_RECURSION;
        self.depth >= MAX_DEPTH || self.names.last().is_some_and(repeats)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $number:ty, $end:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, SampleError> {
            let small = self.number().map(|small| <$number>::try_from(small).unwrap_or(1));
            visitor.$visit(small.unwrap_or($end))
        })*
    };
}

impl<'de> Deserializer<'de> for SampleDeserializer<'_, '_> {
    type Error = SampleError;

    numbers! {
        deserialize_i8 visit_i8 i8, i8::MIN;
        deserialize_i16 visit_i16 i16, i16::MIN;
        deserialize_i32 visit_i32 i32, i32::MIN;
        deserialize_i64 visit_i64 i64, i64::MIN;
        deserialize_u8 visit_u8 u8, u8::MAX;
        deserialize_u16 visit_u16 u16, u16::MAX;
        deserialize_u32 visit_u32 u32, u32::MAX;
        deserialize_u64 visit_u64 u64, u64::MAX;
    }

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, SampleError> {
        match self.choose(4, false) {
            0 => visitor.visit_str(TEXTS[0]),
            1 => visitor.visit_u64(1),
            2 => visitor.visit_bool(true),
            _ => visitor.visit_unit(),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_bool(true)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_f32(1.5)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_f64(1.5)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_char('a')
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, SampleError> {
        let chosen = self.choose(TEXTS.len(), false);
        visitor.visit_str(TEXTS[chosen.min(TEXTS.len() - 1)])
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        // The choice between `Some` and `None` is recorded under the path with a suffix, because the content of the option uses the path
        // without the suffix.
        let path = format!("{}!", self.path);
        let is_none = self.is_deep() || self.builder.choose(&path, 2, true) == 1;
        if is_none { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        let remaining = usize::from(!self.is_deep());
        visitor.visit_seq(Items { deserializer: self, index: 0, remaining })
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, SampleError> {
        self.enter("")?;
        visitor.visit_seq(Items { deserializer: self, index: 0, remaining: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, len: usize, visitor: V) -> Result<V::Value, SampleError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        let remaining = usize::from(!self.is_deep());
        visitor.visit_map(Entries { deserializer: self, remaining })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.enter(name)?;
        visitor.visit_map(Fields { deserializer: self, remaining: fields, current: "" })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, SampleError> {
        self.enter(name)?;
        let chosen = self.choose(variants.len(), true);
        let variant = variants.get(chosen).ok_or_else(|| SampleError::custom("an enum without variants"))?;
        visitor.visit_enum(Variant { deserializer: self, variant })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, SampleError> {
        Err(SampleError::custom("its field names are not known before they are read, as with `#[serde(flatten)]`"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, SampleError> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf }
}

struct Items<'m, 'p> {
    deserializer: SampleDeserializer<'m, 'p>,
    index: usize,
    remaining: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = SampleError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, SampleError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.remaining -= 1;
        self.index += 1;
        seed.deserialize(self.deserializer.child(&format!("[{}]", self.index - 1))).map(Some)
    }
}

struct Entries<'m, 'p> {
    deserializer: SampleDeserializer<'m, 'p>,
    remaining: usize,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = SampleError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SampleError> {
        if self.remaining == 0 {
            return Ok(None);
        }
        self.remaining -= 1;
        seed.deserialize(self.deserializer.child(".key")).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, SampleError> {
        seed.deserialize(self.deserializer.child(".value"))
    }
}

struct Fields<'m, 'p> {
    deserializer: SampleDeserializer<'m, 'p>,
    remaining: &'static [&'static str],
    current: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = SampleError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, SampleError> {
        while let Some((field, rest)) = self.remaining.split_first() {
            self.remaining = rest;
            self.current = field;
            // serde lists an alias like a field, but rejects a struct with both an alias and its field. A plan can therefore omit any
            // field.
            let is_omitted = self.deserializer.builder.choose(&format!("{}.{field}?", self.deserializer.path), 2, false) == 1;
            if !is_omitted {
                return seed.deserialize(StrDeserializer::new(field)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, SampleError> {
        seed.deserialize(self.deserializer.child(&format!(".{}", self.current)))
    }
}

struct Variant<'m, 'p> {
    deserializer: SampleDeserializer<'m, 'p>,
    variant: &'static str,
}

impl<'de, 'm, 'p> EnumAccess<'de> for Variant<'m, 'p> {
    type Error = SampleError;
    type Variant = SampleDeserializer<'m, 'p>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, SampleDeserializer<'m, 'p>), SampleError> {
        let Self { deserializer: SampleDeserializer { builder, path, depth, names }, variant } = self;
        let value = seed.deserialize(StrDeserializer::new(variant))?;
        Ok((value, SampleDeserializer { builder, path: format!("{path}.{variant}"), depth: depth + 1, names }))
    }
}

impl<'de> VariantAccess<'de> for SampleDeserializer<'_, '_> {
    type Error = SampleError;

    fn unit_variant(self) -> Result<(), SampleError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, SampleError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, SampleError> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, SampleError> {
        self.deserialize_struct("", fields, visitor)
    }
}
