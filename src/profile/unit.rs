//! How google/pprof writes quantities: its units, its rounding, its percentages.
//!
//! Source: google/pprof, `internal/measurement/measurement.go`.

/// A unit: its name as printed, the words that mean it (lowercase, without a plural s) and its
/// size.
struct Unit {
    name: &'static str,
    words: &'static [&'static str],
    factor: f64,
}

/// Units of one quantity, in rising order, and the one to fall back on.
struct Quantity {
    units: &'static [Unit],
    default: Unit,
}

const fn unit(name: &'static str, words: &'static [&'static str], factor: f64) -> Unit {
    Unit {
        name,
        words,
        factor,
    }
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        units: &[
            unit("B", &["b", "byte"], 1.0),
            unit("kB", &["kb", "kbyte", "kilobyte"], 1024.0),
            unit("MB", &["mb", "mbyte", "megabyte"], 1048576.0),
            unit("GB", &["gb", "gbyte", "gigabyte"], 1073741824.0),
            unit("TB", &["tb", "tbyte", "terabyte"], 1099511627776.0),
            unit("PB", &["pb", "pbyte", "petabyte"], 1125899906842624.0),
        ],
        default: unit("B", &[], 1.0),
    },
    Quantity {
        units: &[
            unit("ns", &["ns", "nanosecond"], 1.0),
            unit("us", &["μs", "us", "microsecond"], 1e3),
            unit("ms", &["ms", "millisecond"], 1e6),
            unit("s", &["s", "sec", "second"], 1e9),
            unit("hrs", &["hour", "hr"], 3.6e12),
        ],
        default: unit("s", &[], 1e9),
    },
];

impl Quantity {
    fn find(&self, word: &str) -> Option<&Unit> {
        let word = word.to_lowercase();
        let singular = match word.strip_suffix('s') {
            Some(singular) if word.len() > 2 => singular,
            _ => &word,
        };
        self.units.iter().find(|u| u.words.contains(&singular))
    }
}

/// `value` from one unit in another; `minimum` and `auto` choose the largest unit that leaves at
/// least 1. The unit comes back empty where it says nothing (`count`).
pub(super) fn scale(value: i64, from: &str, to: &str) -> (f64, String) {
    if value < 0 && value != i64::MIN {
        let (v, u) = scale(-value, from, to);
        return (-v, u);
    }
    for quantity in &QUANTITIES {
        let Some(from) = quantity.find(from) else {
            continue;
        };
        let v = value as f64 * from.factor;
        let best = match to {
            "minimum" | "auto" => quantity.units.iter().rfind(|u| v / u.factor >= 1.0),
            _ => quantity.find(to),
        };
        let unit = best.unwrap_or(&quantity.default);
        return (v / unit.factor, unit.name.to_owned());
    }
    match to {
        "count" | "sample" | "unit" | "minimum" | "auto" => (value as f64, String::new()),
        _ => (value as f64, to.to_owned()),
    }
}

/// `1.23s`, `120ms`, `17`: a value scaled and rounded to two decimals.
pub(super) fn label(value: i64, from: &str, to: &str) -> String {
    let (v, u) = scale(value, from, to);
    let number = format!("{v:.2}");
    match number.strip_suffix(".00").unwrap_or(&number) {
        "0" | "-0" => "0".to_owned(),
        number => format!("{number}{u}"),
    }
}

/// A share of a total, six characters wide at least.
pub(super) fn percentage(value: i64, total: i64) -> String {
    let ratio = match total {
        0 => 0.0,
        _ => (value as f64 / total as f64).abs() * 100.0,
    };
    if (99.95..=100.05).contains(&ratio) {
        "  100%".to_owned()
    } else if ratio >= 1.0 {
        format!("{ratio:5.2}%")
    } else {
        format!("{:>5}%", two_digits(ratio))
    }
}

/// C's `%.2g` of a number from 0 to 1.
fn two_digits(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{x:.1e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("a float in exponent form has an e");
    let exponent: i32 = exponent.parse().expect("the exponent is a small integer");
    if exponent < -4 {
        let mantissa = mantissa.strip_suffix(".0").unwrap_or(mantissa);
        return format!("{mantissa}e-{:02}", -exponent);
    }
    let decimals = usize::try_from(1 - exponent).unwrap_or(0);
    let fixed = format!("{x:.decimals$}");
    match fixed.contains('.') {
        true => fixed.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => fixed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_scaled_as_pprof_does() {
        assert_eq!(label(1_234_567_890, "nanoseconds", "auto"), "1.23s");
        assert_eq!(label(120_000_000, "nanoseconds", "minimum"), "120ms");
        assert_eq!(label(120_000_000, "nanoseconds", "s"), "0.12s");
        assert_eq!(label(0, "nanoseconds", "s"), "0");
        assert_eq!(label(-1536, "bytes", "auto"), "-1.50kB");
        assert_eq!(label(17, "count", "minimum"), "17");
        assert_eq!(label(17, "widgets", "widgets"), "17widgets");
        assert_eq!(label(i64::MIN, "count", "minimum"), "-9223372036854775808");
    }

    #[test]
    fn percentages_have_two_digits() {
        let cases = [
            (1, 1, "  100%"),
            (1, 3, "33.33%"),
            (1, 30, " 3.33%"),
            (1, 200, "  0.5%"),
            (1, 300, " 0.33%"),
            (0, 300, "    0%"),
            (1, 3_000_000, "3.3e-05%"),
            (996, 100_000, "    1%"),
            (5, 0, "    0%"),
        ];
        for (value, total, expected) in cases {
            assert_eq!(percentage(value, total), expected, "{value}/{total}");
        }
    }
}
