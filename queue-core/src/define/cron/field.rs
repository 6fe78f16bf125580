//! One field of a cron expression: lists, ranges and steps of numbers or names, as a set of bits.

/// What a field counts.
pub(super) struct Field {
    pub(super) name: &'static str,
    first: u32,
    /// Last value of `*`.
    last: u32,
    /// Highest number that is accepted.
    highest: u32,
    /// Names of its values, from `first` on.
    names: &'static [&'static str],
    /// Unit of an interval that is meant by a step longer than the field.
    unit: Option<char>,
}

pub(super) const SECOND: Field = Field { name: "second", first: 0, last: 59, highest: 59, names: &[], unit: Some('s') };
pub(super) const MINUTE: Field = Field { name: "minute", first: 0, last: 59, highest: 59, names: &[], unit: Some('m') };
pub(super) const HOUR: Field = Field { name: "hour", first: 0, last: 23, highest: 23, names: &[], unit: Some('h') };
pub(super) const DAY: Field = Field { name: "day of the month", first: 1, last: 31, highest: 31, names: &[], unit: Some('d') };
pub(super) const MONTH: Field = Field { name: "month", first: 1, last: 12, highest: 12, names: &MONTHS, unit: None };
/// Sunday is 0 and 7.
pub(super) const WEEKDAY: Field = Field { name: "day of the week", first: 0, last: 6, highest: 7, names: &WEEKDAYS, unit: Some('d') };

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Field {
    /// Reads a whole field.
    pub(super) fn list(&self, text: &str) -> Result<u64, String> {
        self.entries(text)?.try_fold(0, |bits, entry| Ok(bits | self.entry(entry)?))
    }

    /// Splits a field at its commas.
    pub(super) fn entries<'t>(&self, text: &'t str) -> Result<impl Iterator<Item = &'t str> + use<'t>, String> {
        if text.split(',').any(str::is_empty) {
            return Err(format!(
                "the {} `{text}` has an empty entry; write no comma at its begin, at its end or beside another",
                self.name
            ));
        }
        Ok(text.split(','))
    }

    /// Reads a value, `*` or a range, with a step or without.
    pub(super) fn entry(&self, text: &str) -> Result<u64, String> {
        let (span, step) = text.split_once('/').map_or((text, None), |(span, step)| (span, Some(step)));
        let (first, last) = match span.split_once('-') {
            _ if span == "*" => (self.first, self.last),
            Some((first, last)) => (self.value(first, false)?, self.value(last, true)?),
            None if let Some(step) = step => {
                let range = if span.is_empty() { "*".to_owned() } else { format!("{span}-{}", self.last) };
                return Err(format!("the {} `{text}` has a step and no range; write `{range}/{step}`", self.name));
            }
            None => {
                let value = self.value(span, false)?;
                (value, value)
            }
        };
        if first > last {
            return Err(format!("the {} `{span}` ends before it begins; write two ranges with a comma", self.name));
        }
        let step = step.map_or(Ok(1), |step| self.step(step, span, last - first + 1))?;
        Ok((first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    /// Reads a step over a span of so many values.
    fn step(&self, text: &str, span: &str, most: u32) -> Result<usize, String> {
        let step = number(text).filter(|step| *step > 0);
        match (step, self.unit) {
            (Some(step), _) if step <= most => Ok(step as usize),
            (Some(step), Some(unit)) if span == "*" => Err(format!(
                "the step of the {} `{span}/{text}` is beyond its range; use `--every {step}{unit}`, or the option `every`",
                self.name
            )),
            _ => Err(format!("the step of the {} `{span}/{text}` is not within its range; write one from 1 to {most}", self.name)),
        }
    }

    /// Reads a number or a name; a Sunday that ends a range is 7.
    fn value(&self, text: &str, ends_range: bool) -> Result<u32, String> {
        if let Some(place) = place(self.names, text) {
            return Ok(if ends_range && place == 0 && self.highest > self.last { self.highest } else { self.first + place });
        }
        let range = format!("write a number from {} to {}", self.first, self.highest);
        match number(text) {
            Some(number) if (self.first..=self.highest).contains(&number) => Ok(number),
            Some(_) => Err(format!("the {} `{text}` is out of range; {range}", self.name)),
            None if place(&MONTHS, text).is_some() => {
                Err(format!("the {} cannot be `{text}`; write months in the last field but one", self.name))
            }
            None if place(&WEEKDAYS, text).is_some() => {
                Err(format!("the {} cannot be `{text}`; write days of the week in the last field", self.name))
            }
            None if self.names.is_empty() => Err(format!("the {} cannot be `{text}`; {range}", self.name)),
            None => Err(format!("the {} cannot be `{text}`; {range}, or one of {}", self.name, self.names.join(", "))),
        }
    }
}

/// Where a name stands in a list.
fn place(names: &[&str], text: &str) -> Option<u32> {
    (0..).zip(names).find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(place, _)| place)
}

/// Reads digits without a sign.
pub(super) fn number(text: &str) -> Option<u32> {
    text.bytes().all(|letter| letter.is_ascii_digit()).then(|| text.parse().ok())?
}
