//! Serializer wrapper that rejects NaN and infinities, which `serde_json` would write as `null`.
//!
//! All other values are passed through unchanged. The check is separate from the checks in `jsonb`, because it needs the values before
//! they become text.

use std::fmt::Display;

use serde::ser::{
    Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};

use super::buffer::{Fault, PayloadBuffer};

/// Wrapper that rejects NaN and infinities. Serializers, compound serializers and all values passed to them are wrapped, so the check
/// applies at every depth.
pub(super) struct FiniteSerializer<'a, V> {
    inner: V,
    buffer: &'a PayloadBuffer,
}

impl<'a, V> FiniteSerializer<'a, V> {
    pub(super) fn new(buffer: &'a PayloadBuffer, inner: V) -> Self {
        Self { inner, buffer }
    }

    fn require_finite<E: serde::ser::Error>(&self, is_finite: bool) -> Result<(), E> {
        if is_finite { Ok(()) } else { Err(E::custom(self.buffer.fail(Fault::NotFinite))) }
    }

    fn wrap<C, E>(self, open: impl FnOnce(V) -> Result<C, E>) -> Result<FiniteSerializer<'a, C>, E> {
        Ok(FiniteSerializer { inner: open(self.inner)?, buffer: self.buffer })
    }
}

impl<T: Serialize + ?Sized> Serialize for FiniteSerializer<'_, &T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.inner.serialize(FiniteSerializer::new(self.buffer, serializer))
    }
}

macro_rules! delegate {
    ($($method:ident($value:ty);)*) => {
        $(fn $method(self, value: $value) -> Result<S::Ok, S::Error> {
            self.inner.$method(value)
        })*
    };
}

impl<'a, S: Serializer> Serializer for FiniteSerializer<'a, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = FiniteSerializer<'a, S::SerializeSeq>;
    type SerializeTuple = FiniteSerializer<'a, S::SerializeTuple>;
    type SerializeTupleStruct = FiniteSerializer<'a, S::SerializeTupleStruct>;
    type SerializeTupleVariant = FiniteSerializer<'a, S::SerializeTupleVariant>;
    type SerializeMap = FiniteSerializer<'a, S::SerializeMap>;
    type SerializeStruct = FiniteSerializer<'a, S::SerializeStruct>;
    type SerializeStructVariant = FiniteSerializer<'a, S::SerializeStructVariant>;

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        self.require_finite::<S::Error>(value.is_finite())?;
        self.inner.serialize_f32(value)
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        self.require_finite::<S::Error>(value.is_finite())?;
        self.inner.serialize_f64(value)
    }

    delegate! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_unit_struct(&'static str);
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_some(&FiniteSerializer::new(self.buffer, value))
    }

    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_struct(name, &FiniteSerializer::new(self.buffer, value))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_newtype_variant(name, index, variant, &FiniteSerializer::new(self.buffer, value))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.wrap(|inner| inner.serialize_seq(len))
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.wrap(|inner| inner.serialize_tuple(len))
    }

    fn serialize_tuple_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.wrap(|inner| inner.serialize_tuple_struct(name, len))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.wrap(|inner| inner.serialize_tuple_variant(name, index, variant, len))
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.wrap(|inner| inner.serialize_map(len))
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        self.wrap(|inner| inner.serialize_struct(name, len))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.wrap(|inner| inner.serialize_struct_variant(name, index, variant, len))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Implements the listed compound serializer traits, which differ only in the method that serializes an element.
macro_rules! compound {
    ($($compound:ident: $method:ident($($key:ident)?);)*) => {
        $(impl<C: $compound> $compound for FiniteSerializer<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $($key: &'static str,)? value: &T) -> Result<(), C::Error> {
                self.inner.$method($($key,)? &FiniteSerializer::new(self.buffer, value))
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.inner.end()
            }
        })*
    };
}

compound! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeStruct: serialize_field(key);
    SerializeStructVariant: serialize_field(key);
}

impl<C: SerializeMap> SerializeMap for FiniteSerializer<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.inner.serialize_key(&FiniteSerializer::new(self.buffer, key))
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.inner.serialize_value(&FiniteSerializer::new(self.buffer, value))
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.inner.end()
    }
}
