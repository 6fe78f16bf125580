//! A deserializer that makes a value up: whatever a type asks for it is given, by a plan of what to choose where there is a choice.
//!
//! A field, a variant and a name are asked for as `serde` calls them, so what is made is of the form that the type has in JSON. Which plans are
//! worth trying is decided elsewhere.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, VariantAccess, Visitor, value::StrDeserializer},
    forward_to_deserialize_any,
};

/// What a type may want of a text, the likeliest first.
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

/// Nothing is made deeper than this.
const DEEPEST: usize = 16;

/// A type that holds itself does so in a value this often; then nothing that may be left out is in it.
const WITHIN_ITSELF: usize = 2;

/// Which of its ways each place goes, by path; those that are not in it go the first.
pub(super) type Plan = BTreeMap<String, usize>;

/// What was chosen at a place.
#[derive(Clone)]
pub(super) struct Choice {
    pub(super) place: String,
    /// How many ways there are.
    pub(super) of: usize,
    pub(super) taken: usize,
    /// Whether each of them is a form of its own, and not just another try.
    pub(super) is_form: bool,
}

/// Makes one value.
pub(super) struct Maker<'p> {
    plan: &'p Plan,
    pub(super) made: Vec<Choice>,
}

impl<'p> Maker<'p> {
    pub(super) fn new(plan: &'p Plan) -> Self {
        Self { plan, made: Vec::new() }
    }

    pub(super) fn root(&mut self) -> Make<'_, 'p> {
        Make { maker: self, place: "$".to_owned(), depth: 0, names: Vec::new() }
    }

    fn choose(&mut self, place: &str, of: usize, is_form: bool) -> usize {
        let taken = self.plan.get(place).copied().unwrap_or(0);
        self.made.push(Choice { place: place.to_owned(), of, taken, is_form });
        taken
    }
}

/// Why a value could not be made; what it says is the type's own.
#[derive(Debug)]
pub(super) struct NotMade(pub(super) String);

impl fmt::Display for NotMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotMade {}

impl serde::de::Error for NotMade {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// The value at one place.
pub(super) struct Make<'m, 'p> {
    maker: &'m mut Maker<'p>,
    place: String,
    depth: usize,
    /// The types that it is in.
    names: Vec<&'static str>,
}

impl<'p> Make<'_, 'p> {
    fn choose(&mut self, of: usize, is_form: bool) -> usize {
        self.maker.choose(&self.place, of, is_form)
    }

    fn within(&mut self, step: &str) -> Make<'_, 'p> {
        let names = self.names.clone();
        Make { place: format!("{}{step}", self.place), depth: self.depth + 1, maker: self.maker, names }
    }

    /// The end of a range, so that a narrower one is noticed; else what types with a rule of their own may take.
    fn number(&mut self) -> Option<i64> {
        [None, Some(1), Some(0), Some(2026)][self.choose(4, false).min(3)]
    }

    /// Notes that this is a value of that type.
    fn enter(&mut self, name: &'static str) -> Result<(), NotMade> {
        self.names.push(name);
        if self.depth > DEEPEST { Err(NotMade::custom("it holds itself, without an end")) } else { Ok(()) }
    }

    /// Whether what may be left out is left out.
    fn is_deep(&self) -> bool {
        let repeats = |name: &&str| !name.is_empty() && self.names.iter().filter(|other| *other == name).count() > WITHIN_ITSELF;
        self.depth >= DEEPEST || self.names.last().is_some_and(repeats)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $number:ty, $end:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, NotMade> {
            let small = self.number().map(|small| <$number>::try_from(small).unwrap_or(1));
            visitor.$visit(small.unwrap_or($end))
        })*
    };
}

impl<'de> Deserializer<'de> for Make<'_, '_> {
    type Error = NotMade;

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

    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, NotMade> {
        match self.choose(4, false) {
            0 => visitor.visit_str(TEXTS[0]),
            1 => visitor.visit_u64(1),
            2 => visitor.visit_bool(true),
            _ => visitor.visit_unit(),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_bool(true)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_f32(1.5)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_f64(1.5)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_char('a')
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, NotMade> {
        let chosen = self.choose(TEXTS.len(), false);
        visitor.visit_str(TEXTS[chosen.min(TEXTS.len() - 1)])
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        // What it may hold chooses at the same place.
        let place = format!("{}!", self.place);
        let is_none = self.is_deep() || self.maker.choose(&place, 2, true) == 1;
        if is_none { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        let left = usize::from(!self.is_deep());
        visitor.visit_seq(Items { make: self, at: 0, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(mut self, len: usize, visitor: V) -> Result<V::Value, NotMade> {
        self.enter("")?;
        visitor.visit_seq(Items { make: self, at: 0, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, len: usize, visitor: V) -> Result<V::Value, NotMade> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        let left = usize::from(!self.is_deep());
        visitor.visit_map(Entries { make: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NotMade> {
        self.enter(name)?;
        visitor.visit_map(Fields { make: self, left: fields, current: "" })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NotMade> {
        self.enter(name)?;
        let chosen = self.choose(variants.len(), true);
        let variant = variants.get(chosen).ok_or_else(|| NotMade::custom("an enum without variants"))?;
        visitor.visit_enum(Variant { make: self, variant })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NotMade> {
        Err(NotMade::custom("its fields are not named before they are read, as with `#[serde(flatten)]`"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, NotMade> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 bytes byte_buf }
}

struct Items<'m, 'p> {
    make: Make<'m, 'p>,
    at: usize,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = NotMade;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, NotMade> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.at += 1;
        seed.deserialize(self.make.within(&format!("[{}]", self.at - 1))).map(Some)
    }
}

struct Entries<'m, 'p> {
    make: Make<'m, 'p>,
    left: usize,
}

impl<'de> MapAccess<'de> for Entries<'_, '_> {
    type Error = NotMade;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NotMade> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.make.within(".key")).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, NotMade> {
        seed.deserialize(self.make.within(".value"))
    }
}

struct Fields<'m, 'p> {
    make: Make<'m, 'p>,
    left: &'static [&'static str],
    current: &'static str,
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = NotMade;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, NotMade> {
        while let Some((field, rest)) = self.left.split_first() {
            self.left = rest;
            self.current = field;
            // An alias is named like a field, and refused beside it.
            let left_out = self.make.maker.choose(&format!("{}.{field}?", self.make.place), 2, false) == 1;
            if !left_out {
                return seed.deserialize(StrDeserializer::new(field)).map(Some);
            }
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, NotMade> {
        seed.deserialize(self.make.within(&format!(".{}", self.current)))
    }
}

struct Variant<'m, 'p> {
    make: Make<'m, 'p>,
    variant: &'static str,
}

impl<'de, 'm, 'p> EnumAccess<'de> for Variant<'m, 'p> {
    type Error = NotMade;
    type Variant = Make<'m, 'p>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Make<'m, 'p>), NotMade> {
        let Self { make: Make { maker, place, depth, names }, variant } = self;
        let value = seed.deserialize(StrDeserializer::new(variant))?;
        Ok((value, Make { maker, place: format!("{place}.{variant}"), depth: depth + 1, names }))
    }
}

impl<'de> VariantAccess<'de> for Make<'_, '_> {
    type Error = NotMade;

    fn unit_variant(self) -> Result<(), NotMade> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, NotMade> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, NotMade> {
        self.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, NotMade> {
        self.deserialize_struct("", fields, visitor)
    }
}
