//! Sizes and times in words: `10GB`, `512MiB`, `7d`.

/// Bytes of each unit. Those in powers of 1000 are what disks are sold in.
const SIZES: [(&str, u64); 10] = [
    ("B", 1),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Milliseconds of each unit.
const TIMES: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60 * 1000),
    ("min", 60 * 1000),
    ("h", 60 * 60 * 1000),
    ("d", 24 * 60 * 60 * 1000),
];

/// What a size looks like, for errors.
pub(crate) const SIZE_EXAMPLES: &str = "a size such as \"10GB\" or \"512MiB\"";
/// What a time looks like, for errors.
pub(crate) const TIME_EXAMPLES: &str = "a time such as \"7d\", \"12h\", \"30m\" or \"90s\"";

/// The bytes that a size names: `10GB` (powers of 1000) or `512MiB` (powers of
/// 1024), with fractions (`1.5TB`), large or small letters, and a space before the unit.
pub(crate) fn size(text: &str) -> Option<u64> {
    quantity(text, &SIZES)
}

/// The milliseconds that a time names: `7d`, `12h`, `30m`, `90s`, `250ms`.
pub(crate) fn time_ms(text: &str) -> Option<u64> {
    quantity(text, &TIMES)
}

/// A number and a unit. Nothing of it is lost but what is less than one.
fn quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    let (_, factor) = units
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (number, ""),
    };
    // So many digits are enough for a byte of a petabyte.
    if fraction.len() > 15 {
        return None;
    }
    let part = match fraction {
        "" => 0,
        digits => {
            let parts: u128 = digits.parse().ok()?;
            let of = 10u128.pow(digits.len() as u32);
            u64::try_from(parts * u128::from(*factor) / of).ok()?
        }
    };
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(*factor)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal_unless_they_say_otherwise() {
        for (text, bytes) in [
            ("10GB", 10_000_000_000),
            ("512MiB", 512 << 20),
            ("1.5 TB", 1_500_000_000_000),
            ("0.5KiB", 512),
            (" 7 b ", 7),
            ("1kb", 1000),
            ("1PB", 1_000_000_000_000_000),
            ("0GB", 0),
        ] {
            assert_eq!(size(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (text, ms) in [
            ("7d", 604_800_000),
            ("12h", 43_200_000),
            ("30m", 1_800_000),
            ("30 min", 1_800_000),
            ("90s", 90_000),
            ("1.5s", 1500),
            ("250ms", 250),
        ] {
            assert_eq!(time_ms(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_could_mean_something_else_means_nothing() {
        for text in [
            "",
            "10",
            "GB",
            "10G",
            "10 gigabytes",
            "-1GB",
            "1e3GB",
            "1,5GB",
            "1.GB",
            ".5GB",
            "1.2.3GB",
            "10GB GB",
            "99999999999PB",
            "0.1234567890123456GB",
            "٣GB",
            "7d",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
        for text in [
            "7",
            "d",
            "7 days",
            "1w",
            "1M3",
            "7D1h",
            "-1s",
            "10GB",
            "999999999999999d",
        ] {
            assert_eq!(time_ms(text), None, "{text}");
        }
    }
}
