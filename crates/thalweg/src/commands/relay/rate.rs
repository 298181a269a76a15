//! Rates as people write them.

/// Bytes a second: `1Gbit`, `200Mbit`, `50MB`, `1000000`.
///
/// # Errors
/// A sentence that says what a text may be.
pub fn parse(text: &str) -> Result<u64, String> {
    let refuse = || format!("{text:?} is no rate, as 200Mbit, 1Gbit or 50MB (a second) is");
    let text = text.trim_end_matches("/s");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    // Bytes a second, times 8.
    let bits = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 8.0,
        "kb" => 8e3,
        "mb" => 8e6,
        "gb" => 8e9,
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(refuse()),
    };
    let number: f64 = digits.parse().map_err(|_| refuse())?;
    let bytes = number * bits / 8.0;
    match bytes {
        bytes if (1.0..1e15).contains(&bytes) => Ok(bytes as u64),
        _ => Err(refuse()),
    }
}

/// A rate, for people.
pub fn text(bytes_per_second: u64) -> String {
    let bits = bytes_per_second as f64 * 8.0;
    match bits {
        bits if bits >= 1e9 => format!("{} Gbit/s", digits(bits / 1e9)),
        bits if bits >= 1e6 => format!("{} Mbit/s", digits(bits / 1e6)),
        bits => format!("{} kbit/s", digits(bits / 1e3)),
    }
}

fn digits(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units_of_bits_or_bytes() {
        assert_eq!(parse("1Gbit"), Ok(125_000_000));
        assert_eq!(parse("200Mbit/s"), Ok(25_000_000));
        assert_eq!(parse("50MB"), Ok(50_000_000));
        assert_eq!(parse("1.5kB"), Ok(1500));
        assert_eq!(parse("77"), Ok(77));
        for text in ["", "Mbit", "0", "-1MB", "1Tbit", "1e400MB", "NaNMB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_shown_in_bits() {
        assert_eq!(text(125_000_000), "1 Gbit/s");
        assert_eq!(text(25_000_000), "200 Mbit/s");
        assert_eq!(text(12_345), "98.76 kbit/s");
    }
}
