//! A profile as text, in the form of google/pprof's `Profile.String` (what `pprof -raw` prints).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::{Label, LabelValue, Location, Mapping, Profile};

/// Writes text with its control characters escaped: a profile may come from anywhere, and a
/// terminal obeys them.
pub(super) struct Escaping<'w, W>(pub &'w mut W);

impl<W: fmt::Write> fmt::Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((i, c)) = rest.char_indices().find(|(_, c)| c.is_control()) {
            write!(self.0, "{}{}", &rest[..i], c.escape_default())?;
            rest = &rest[i + c.len_utf8()..];
        }
        self.0.write_str(rest)
    }
}

/// A text with its control characters escaped.
pub(super) struct Escaped<'t>(pub &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Escaping(f).write_str(self.0)
    }
}

impl fmt::Display for Profile {
    /// Prints header, samples, locations and mappings as google/pprof does; a time is given in UTC,
    /// and control characters are escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for comment in &self.comments {
            writeln!(f, "Comment: {}", Escaped(comment))?;
        }
        let period_type = &self.period_type;
        writeln!(
            f,
            "PeriodType: {} {}",
            Escaped(&period_type.r#type),
            Escaped(&period_type.unit)
        )?;
        writeln!(f, "Period: {}", self.period)?;
        if self.time_nanos != 0 {
            writeln!(f, "Time: {}", UtcTime(self.time_nanos).go_default())?;
        }
        if self.duration_nanos != 0 {
            // pprof formats it with %.4v, which cuts the text of a duration after four characters.
            let text: String = go_duration(self.duration_nanos).chars().take(4).collect();
            writeln!(f, "Duration: {text}")?;
        }
        writeln!(f, "Samples:")?;
        let types: Vec<String> = self
            .sample_types
            .iter()
            .map(|t| {
                let default = match t.r#type == self.default_sample_type {
                    true => "[dflt]",
                    false => "",
                };
                format!("{}/{}{default}", t.r#type, t.unit)
            })
            .collect();
        writeln!(f, "{}", Escaped(types.join(" ").trim()))?;
        for sample in self.samples() {
            for value in sample.values {
                write!(f, " {value:10}")?;
            }
            f.write_str(": ")?;
            for location in sample.stack {
                write!(f, "{} ", location.index() + 1)?;
            }
            f.write_str("\n")?;
            self.fmt_labels(f, sample.labels)?;
        }
        writeln!(f, "Locations")?;
        for (i, location) in self.locations.iter().enumerate() {
            self.fmt_location(f, i + 1, location)?;
        }
        writeln!(f, "Mappings")?;
        for (i, mapping) in self.mappings.iter().enumerate() {
            fmt_mapping(f, i + 1, mapping)?;
        }
        Ok(())
    }
}

impl Profile {
    fn fmt_labels(&self, f: &mut fmt::Formatter<'_>, labels: &[Label]) -> fmt::Result {
        let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut numbers: BTreeMap<&str, Vec<(i64, &str)>> = BTreeMap::new();
        for label in labels {
            let key = self.string(label.key);
            match label.value {
                LabelValue::Str(id) => match self.string(id) {
                    "" => {} // vanishes on reading
                    text => texts.entry(key).or_default().push(text),
                },
                LabelValue::Num { value, unit } => match (value, self.string(unit)) {
                    (0, "") => {} // vanishes on reading
                    pair => numbers.entry(key).or_default().push(pair),
                },
            }
        }
        let texts = texts
            .iter()
            .map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
        fmt_label_line(f, texts.collect())?;
        let numbers = numbers.iter().map(|(key, values)| {
            let has_unit = values.iter().any(|(_, unit)| !unit.is_empty());
            let values: Vec<String> = values
                .iter()
                .map(|(value, unit)| match has_unit {
                    true => format!("{value} {unit}"),
                    false => value.to_string(),
                })
                .collect();
            format!("{key}:[{}]", values.join(" "))
        });
        fmt_label_line(f, numbers.collect())
    }

    fn fmt_location(
        &self,
        f: &mut fmt::Formatter<'_>,
        id: usize,
        location: &Location,
    ) -> fmt::Result {
        write!(f, "{id:6}: {:#x} ", location.address)?;
        if let Some(mapping) = location.mapping {
            write!(f, "M={} ", mapping.index() + 1)?;
        }
        if location.is_folded {
            f.write_str("[F] ")?;
        }
        for (i, line) in location.lines.iter().enumerate() {
            if i > 0 {
                f.write_str("\n             ")?;
            }
            let function = self.function(line.function);
            let (name, system_name) = (
                self.string(function.name),
                self.string(function.system_name),
            );
            let filename = self.string(function.filename);
            write!(
                f,
                "{} {}:{} s={}",
                Escaped(name),
                Escaped(filename),
                line.line,
                function.start_line
            )?;
            if name != system_name {
                write!(f, "({})", Escaped(system_name))?;
            }
        }
        f.write_str("\n")
    }
}

fn fmt_label_line(f: &mut fmt::Formatter<'_>, mut labels: Vec<String>) -> fmt::Result {
    if labels.is_empty() {
        return Ok(());
    }
    labels.sort();
    writeln!(f, "                {}", Escaped(&labels.join(" ")))
}

fn fmt_mapping(f: &mut fmt::Formatter<'_>, id: usize, m: &Mapping) -> fmt::Result {
    write!(
        f,
        "{id}: {:#x}/{:#x}/{:#x} {} {} ",
        m.memory_start,
        m.memory_limit,
        m.file_offset,
        Escaped(&m.filename),
        Escaped(&m.build_id)
    )?;
    let flags = [
        (m.has_functions, "[FN]"),
        (m.has_filenames, "[FL]"),
        (m.has_line_numbers, "[LN]"),
        (m.has_inline_frames, "[IN]"),
    ];
    for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
        f.write_str(name)?;
    }
    f.write_str("\n")
}

/// A point in time, in nanoseconds since the Unix epoch, taken apart in UTC.
pub(super) struct UtcTime(pub i64);

impl UtcTime {
    /// Year, month and day of the proleptic Gregorian calendar, and the nanosecond of the day.
    /// Source: Howard Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`.
    fn civil(&self) -> (i64, usize, i64, i64) {
        const DAY_NS: i64 = 86_400_000_000_000;
        let days = self.0.div_euclid(DAY_NS) + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        (year, month as usize, day, self.0.rem_euclid(DAY_NS))
    }

    /// `2006-01-02 15:04:05.999999999 +0000 UTC`, as Go prints a time.
    fn go_default(&self) -> String {
        let (year, month, day, ns) = self.civil();
        let (seconds, fraction) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let fraction = match fraction {
            0 => String::new(),
            _ => format!(".{fraction:09}").trim_end_matches('0').to_owned(),
        };
        format!(
            "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}{fraction} +0000 UTC",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        )
    }

    /// `Jan 2, 2006 at 3:04pm (UTC)`, as pprof heads its reports.
    pub(super) fn heading(&self) -> String {
        const MONTHS: [&str; 12] = [
            "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
        ];
        let (year, month, day, ns) = self.civil();
        let minutes = ns / 60_000_000_000;
        let (hour, minute) = (minutes / 60, minutes % 60);
        let half = if hour < 12 { "am" } else { "pm" };
        let hour = match hour % 12 {
            0 => 12,
            hour => hour,
        };
        let month = MONTHS[month - 1];
        format!("{month} {day}, {year} at {hour}:{minute:02}{half} (UTC)")
    }
}

/// A length of time as Go's `time.Duration` prints it: `1m2.5s`, `1.5ms`, `100µs`.
fn go_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let decimal = |unit: u64| {
        let digits = unit.ilog10() as usize;
        match n % unit {
            0 => (n / unit).to_string(),
            rest => {
                let text = format!("{}.{rest:0digits$}", n / unit);
                text.trim_end_matches('0').to_owned()
            }
        }
    };
    match n {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{n}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(1_000_000)),
        _ => {
            let minutes = n / 60_000_000_000;
            let seconds = n % 60_000_000_000;
            let fraction = match seconds % 1_000_000_000 {
                0 => String::new(),
                rest => format!(".{rest:09}").trim_end_matches('0').to_owned(),
            };
            let seconds = format!("{}{fraction}s", seconds / 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_nothing_else() {
        let text = Escaped("a\u{1b}[31m\n\u{9b}é\\\"\t日").to_string();
        assert_eq!(text, r#"a\u{1b}[31m\n\u{9b}é\"\t日"#);
    }

    #[test]
    fn durations_read_as_go_prints_them() {
        let cases = [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5µs"),
            (20_050_000, "20.05ms"),
            (1_000_000_000, "1s"),
            (62_500_000_000, "1m2.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1_000_000_000, "-1s"),
        ];
        for (nanos, expected) in cases {
            assert_eq!(go_duration(nanos), expected);
        }
    }

    #[test]
    fn times_are_given_in_utc() {
        let time = UtcTime(1_732_181_700_120_000_000);
        assert_eq!(time.go_default(), "2024-11-21 09:35:00.12 +0000 UTC");
        assert_eq!(time.heading(), "Nov 21, 2024 at 9:35am (UTC)");
        assert_eq!(UtcTime(0).heading(), "Jan 1, 1970 at 12:00am (UTC)");
        // Any number is some time.
        UtcTime(i64::MIN).go_default();
        UtcTime(i64::MAX).go_default();
    }
}
