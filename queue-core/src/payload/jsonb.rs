//! Formatter that writes JSON in the text form of jsonb. The length of the text is the size that the database checks.
//!
//! jsonb prints a space after each comma and colon, and no exponents. A float keeps its decimal point (`1e16` becomes
//! `10000000000000000.0`), because the float would otherwise be read back as an integer. The text of a `RawValue` comes from user code,
//! so it is formatted again token by token. A value is rejected if jsonb cannot hold it or `serde_json` cannot read it back. NaN does not
//! reach this formatter, because `serde_json` writes NaN as `null`; see `finite`.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Cursor, Write};

use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

use super::buffer::{Fault, PayloadBuffer};
use super::path::string_len;

/// Maximum length in bytes of a float as written by `serde_json`, rounded up. 17 digits, a sign, a point and an exponent take 24 bytes.
const MAX_FLOAT_BYTES: usize = 32;

pub(super) struct JsonbFormatter<'a> {
    buffer: &'a PayloadBuffer,
    in_key: bool,
}

impl<'a> JsonbFormatter<'a> {
    pub(super) fn new(buffer: &'a PayloadBuffer) -> Self {
        Self { buffer, in_key: false }
    }

    /// Rejects an integer that does not fit in 64 bits, unless it is a map key, which is a string. jsonb would keep the integer, but most
    /// readers would round it.
    fn require_fit(&self, fits: bool) -> io::Result<()> {
        if fits || self.in_key { Ok(()) } else { Err(self.buffer.fail(Fault::NumberTooLarge)) }
    }

    /// Writes a float as `serde_json` does, but without an exponent. A map key keeps the exponent, because the key is a string.
    fn write_float<W: ?Sized + Write>(
        &self,
        writer: &mut W,
        short: &Cursor<[u8; MAX_FLOAT_BYTES]>,
        value: impl Display,
        is_whole: bool,
    ) -> io::Result<()> {
        let short = &short.get_ref()[..short.position() as usize];
        if self.in_key || !short.contains(&b'e') {
            return writer.write_all(short);
        }
        write!(writer, "{value}{}", if is_whole { ".0" } else { "" })
    }

    fn append_number(&self, text: &str) -> io::Result<()> {
        match expand_exponent(text) {
            Some(number) => self.buffer.append(number.as_bytes()),
            None => Err(self.buffer.fail(Fault::NumberTooLarge)),
        }
    }

    /// Writes a string token of a `RawValue`. The token may contain unnecessary escapes and lone surrogates.
    fn append_string(&self, token: &str) -> io::Result<()> {
        if !token.contains('\\') {
            return self.buffer.append(token.as_bytes());
        }
        let Ok(text) = serde_json::from_str::<String>(token) else {
            // `serde_json` has checked the syntax of the `RawValue`, but accepts lone surrogates in it, so the error is a lone surrogate.
            self.buffer.append(token.as_bytes())?;
            return Err(self.buffer.fail(Fault::LoneSurrogate));
        };
        serde_json::to_writer(self.buffer, &text)?;
        if text.contains('\0') { Err(self.buffer.fail(Fault::Nul)) } else { Ok(()) }
    }
}

impl Formatter for JsonbFormatter<'_> {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.buffer.enter()?;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.buffer.leave();
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.buffer.enter()?;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.buffer.leave();
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.in_key = true;
        self.begin_array_value(writer, first)
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.in_key = false;
        Ok(())
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, writer: &mut W, escape: CharEscape) -> io::Result<()> {
        let nul = matches!(escape, CharEscape::AsciiControl(0));
        CompactFormatter.write_char_escape(writer, escape)?;
        if nul { Err(self.buffer.fail(Fault::Nul)) } else { Ok(()) }
    }

    fn write_i128<W: ?Sized + Write>(&mut self, writer: &mut W, value: i128) -> io::Result<()> {
        self.require_fit(i64::try_from(value).is_ok() || u64::try_from(value).is_ok())?;
        CompactFormatter.write_i128(writer, value)
    }

    fn write_u128<W: ?Sized + Write>(&mut self, writer: &mut W, value: u128) -> io::Result<()> {
        self.require_fit(u64::try_from(value).is_ok())?;
        CompactFormatter.write_u128(writer, value)
    }

    fn write_f32<W: ?Sized + Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        let mut short = Cursor::new([0; MAX_FLOAT_BYTES]);
        CompactFormatter.write_f32(&mut short, value)?;
        self.write_float(writer, &short, value, value.fract() == 0.0)
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let mut short = Cursor::new([0; MAX_FLOAT_BYTES]);
        CompactFormatter.write_f64(&mut short, value)?;
        self.write_float(writer, &short, value, value.fract() == 0.0)
    }

    /// Writes a number given as text. Called only if a crate in the program enables the `arbitrary_precision` feature of `serde_json`.
    fn write_number_str<W: ?Sized + Write>(&mut self, _: &mut W, text: &str) -> io::Result<()> {
        self.append_number(text)
    }

    fn write_raw_fragment<W: ?Sized + Write>(&mut self, _: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(byte) = rest.bytes().next() {
            let len = match byte {
                b'"' => string_len(rest.as_bytes()),
                b'-' | b'0'..=b'9' => rest.bytes().take_while(|b| b"+-.eE0123456789".contains(b)).count(),
                _ => rest.chars().next().map_or(1, char::len_utf8),
            };
            let (token, tail) = rest.split_at_checked(len).unwrap_or((rest, ""));
            rest = tail;
            match byte {
                b'"' => self.append_string(token)?,
                b'-' | b'0'..=b'9' => self.append_number(token)?,
                b'{' | b'[' => self.buffer.enter().and_then(|()| self.buffer.append(token.as_bytes()))?,
                b'}' | b']' => {
                    self.buffer.leave();
                    self.buffer.append(token.as_bytes())?;
                }
                b',' => self.buffer.append(b", ")?,
                b':' => self.buffer.append(b": ")?,
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => self.buffer.append(token.as_bytes())?,
            }
        }
        Ok(())
    }
}

/// Returns a number without its exponent, or `None` if the number cannot be read back exactly.
///
/// Integers must fit in 64 bits. Other numbers are read as `f64`, whose shortest text has at most 17 digits and exponents from -324 to
/// 308. A longer text is accepted if `f64` holds all digits of the text.
fn expand_exponent(number: &str) -> Option<Cow<'_, str>> {
    const MAX_BYTES: usize = 800;
    const MAX_EXPONENT: usize = 400;

    let unsigned = number.strip_prefix('-').unwrap_or(number);
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        let fits = number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
        return fits.then_some(Cow::Borrowed(number));
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent: isize = exponent.parse().ok()?;
    if number.len() > MAX_BYTES || exponent.unsigned_abs() > MAX_EXPONENT {
        return None;
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if !round_trips(&digits, unsigned.parse().ok()?) {
        return None;
    }
    if mantissa.len() == unsigned.len() {
        return Some(Cow::Borrowed(number));
    }
    let sign = if unsigned.len() < number.len() { "-" } else { "" };
    Some(Cow::Owned(sign.to_owned() + &insert_point(&digits, whole.len() as isize + exponent)))
}

/// Returns whether formatting `value` yields `digits`, either with the same number of digits or in the shortest form. Both forms are
/// accepted because implementations differ for a float halfway between two decimals, such as 885022586708295.25.
fn round_trips(digits: &str, value: f64) -> bool {
    let digits = digits.trim_matches('0');
    let Some(after_first) = digits.len().checked_sub(1) else { return true };
    let has_digits = |text: String| text.split('e').next().is_some_and(|mantissa| mantissa.replace('.', "") == digits);
    value.is_finite() && (has_digits(format!("{value:.after_first$e}")) || has_digits(format!("{value:e}")))
}

/// Inserts a decimal point after the first `point` digits. If `point` is outside the digits, pads the digits with zeros.
fn insert_point(digits: &str, point: isize) -> String {
    let before = usize::try_from(point).unwrap_or(0);
    let missing = usize::try_from(-point).unwrap_or(0);
    let (whole, fraction) = digits.split_at_checked(before).unwrap_or((digits, ""));
    let whole = format!("{whole:0<before$}");
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = "0".repeat(missing) + fraction;
    let fraction = if fraction.is_empty() { "0" } else { &fraction };
    format!("{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::expand_exponent;

    #[test]
    fn f05_numbers_that_would_be_rounded_are_refused() {
        for exact in ["0", "-1", "9007199254740993", "18446744073709551615", "-9223372036854775808", "1.50", "0.10000000000000001"] {
            assert_eq!(expand_exponent(exact).as_deref(), Some(exact));
        }
        for halfway in ["885022586708295.2", "885022586708295.25", "885022586708295.3"] {
            assert_eq!(expand_exponent(halfway).as_deref(), Some(halfway));
        }
        let tenth = "0.1000000000000000055511151231257827021181583404541015625";
        assert_eq!(expand_exponent(tenth).as_deref(), Some(tenth), "all digits of the f64 nearest to 0.1");
        for rounded in [
            "18446744073709551616",
            "-9223372036854775809",
            "3.14159265358979323846",
            "9007199254740993.0",
            "1e400",
            "1e131071",
            "1e99999999999999999999",
            "1e-400",
            "4e-324",
            "0e5000",
            &format!("0.{}", "0".repeat(20_000)),
        ] {
            assert_eq!(expand_exponent(rounded), None, "{rounded}");
        }
    }

    #[test]
    fn f08_exponents_are_written_in_full() {
        for (number, full) in [
            ("1e0", "1.0"),
            ("-1E+2", "-100.0"),
            ("1.50e1", "15.0"),
            ("1.25e1", "12.5"),
            ("0.5e1", "5.0"),
            ("12e-1", "1.2"),
            ("12e-2", "0.12"),
            ("12e-4", "0.0012"),
            ("0e-3", "0.000"),
            ("0e3", "0.0"),
            ("0.001e5", "100.0"),
        ] {
            assert_eq!(expand_exponent(number).as_deref(), Some(full), "{number}");
        }
        assert_eq!(expand_exponent("1e300").map(|full| full.len()), Some(303));
        assert_eq!(expand_exponent("5e-324").map(|full| full.len()), Some(326));
    }
}
