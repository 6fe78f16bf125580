//! Parser for one field of a cron expression. Parses lists, ranges and steps of numbers or names into a bit set.

/// Kind of cron field: its name, its range and the names of its values.
pub(super) struct Field {
    pub(super) name: &'static str,
    first: u32,
    /// Last value that `*` includes.
    last: u32,
    /// Highest accepted number.
    highest: u32,
    /// Names of the values. The first name stands for the value `first`.
    names: &'static [&'static str],
    /// Unit of the interval that an error message proposes if a step exceeds the field's range; `None` for no proposal.
    unit: Option<char>,
}

pub(super) const SECOND: Field = Field { name: "second", first: 0, last: 59, highest: 59, names: &[], unit: Some('s') };
pub(super) const MINUTE: Field = Field { name: "minute", first: 0, last: 59, highest: 59, names: &[], unit: Some('m') };
pub(super) const HOUR: Field = Field { name: "hour", first: 0, last: 23, highest: 23, names: &[], unit: Some('h') };
pub(super) const DAY: Field = Field { name: "day of the month", first: 1, last: 31, highest: 31, names: &[], unit: Some('d') };
pub(super) const MONTH: Field = Field { name: "month", first: 1, last: 12, highest: 12, names: &MONTHS, unit: None };
/// Day of the week. Both 0 and 7 are Sunday.
pub(super) const WEEKDAY: Field = Field { name: "day of the week", first: 0, last: 6, highest: 7, names: &WEEKDAYS, unit: Some('d') };

const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Field {
    /// Parses the text of a whole field, which is a list of entries.
    pub(super) fn parse_list(&self, text: &str) -> Result<u64, String> {
        self.split_entries(text)?.try_fold(0, |bits, entry| Ok(bits | self.parse_entry(entry)?))
    }

    /// Splits the text of a field at its commas. Rejects empty entries.
    pub(super) fn split_entries<'t>(&self, text: &'t str) -> Result<impl Iterator<Item = &'t str> + use<'t>, String> {
        if text.split(',').any(str::is_empty) {
            return Err(format!(
                "the {} `{text}` has an empty entry; write no comma at the beginning, at the end or next to another",
                self.name
            ));
        }
        Ok(text.split(','))
    }

    /// Parses a value, a range or `*`, each with an optional step.
    pub(super) fn parse_entry(&self, text: &str) -> Result<u64, String> {
        let (span, step) = text.split_once('/').map_or((text, None), |(span, step)| (span, Some(step)));
        let (first, last) = match span.split_once('-') {
            _ if span == "*" => (self.first, self.last),
            Some((first, last)) => (self.parse_value(first, false)?, self.parse_value(last, true)?),
            None if let Some(step) = step => {
                let range = if span.is_empty() { "*".to_owned() } else { format!("{span}-{}", self.last) };
                return Err(format!("the {} `{text}` has a step and no range; write `{range}/{step}`", self.name));
            }
            None => {
                let value = self.parse_value(span, false)?;
                (value, value)
            }
        };
        if first > last {
            return Err(format!("the {} `{span}` ends before it begins; write two ranges with a comma", self.name));
        }
        let step = step.map_or(Ok(1), |step| self.parse_step(step, span, last - first + 1))?;
        Ok((first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    /// Parses the step of the range `span`, which has `most` values.
    fn parse_step(&self, text: &str, span: &str, most: u32) -> Result<usize, String> {
        let step = parse_number(text).filter(|step| *step > 0);
        match (step, self.unit) {
            (Some(step), _) if step <= most => Ok(step as usize),
            (Some(step), Some(unit)) if span == "*" => Err(format!(
                "the step of the {} `{span}/{text}` is beyond its range; use `--every {step}{unit}`, or the option `every`",
                self.name
            )),
            _ => Err(format!("the step of the {} `{span}/{text}` is not within its range; write one from 1 to {most}", self.name)),
        }
    }

    /// Parses a number or a name. At the end of a range, `SUN` stands for 7.
    fn parse_value(&self, text: &str, ends_range: bool) -> Result<u32, String> {
        if let Some(position) = position(self.names, text) {
            return Ok(if ends_range && position == 0 && self.highest > self.last { self.highest } else { self.first + position });
        }
        let range = format!("write a number from {} to {}", self.first, self.highest);
        match parse_number(text) {
            Some(number) if (self.first..=self.highest).contains(&number) => Ok(number),
            Some(_) => Err(format!("the {} `{text}` is out of range; {range}", self.name)),
            None if position(&MONTHS, text).is_some() => {
                Err(format!("the {} cannot be `{text}`; write months in the second to last field", self.name))
            }
            None if position(&WEEKDAYS, text).is_some() => {
                Err(format!("the {} cannot be `{text}`; write days of the week in the last field", self.name))
            }
            None if self.names.is_empty() => Err(format!("the {} cannot be `{text}`; {range}", self.name)),
            None => Err(format!("the {} cannot be `{text}`; {range}, or one of {}", self.name, self.names.join(", "))),
        }
    }
}

/// Returns the position of a name in a list, ignoring case.
fn position(names: &[&str], text: &str) -> Option<u32> {
    (0..).zip(names).find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(position, _)| position)
}

/// Parses a number that consists of digits only.
pub(super) fn parse_number(text: &str) -> Option<u32> {
    text.bytes().all(|letter| letter.is_ascii_digit()).then(|| text.parse().ok())?
}
