//! Elements as text: for people and programs that read columns, or as JSON.

use std::fmt::Write;
use step::{AttributeValue, ByteOrder, DType, Element};

/// What the text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Columns of text.
    Plain,
    /// JSON: what is no number there is a text.
    Json,
}

/// An element as text.
pub fn text(dtype: &DType, bytes: &[u8], form: Form) -> String {
    let mut out = String::new();
    push(&mut out, dtype, bytes, form);
    out
}

/// Appends an element, which has as many bytes as the type says; of text any number.
pub fn push(out: &mut String, dtype: &DType, bytes: &[u8], form: Form) {
    let written = match dtype.element() {
        Element::Bool => write!(out, "{}", bytes != [0]),
        Element::Signed => write!(out, "{}", signed(dtype, bytes)),
        Element::Unsigned => write!(out, "{}", unsigned(dtype, bytes)),
        Element::Float => {
            push_float(out, dtype, bytes, form);
            Ok(())
        }
        Element::Complex if bytes.len() > 16 => {
            push_hex(out, bytes, form);
            Ok(())
        }
        Element::Complex => {
            let (real, imaginary) = bytes.split_at(bytes.len() / 2);
            push_complex(out, dtype, real, imaginary, form);
            Ok(())
        }
        Element::Time | Element::Duration => match signed(dtype, bytes) {
            // As NumPy writes it.
            i64::MIN => {
                push_word(out, "NaT", form);
                Ok(())
            }
            count => write!(out, "{count}"),
        },
        Element::Bytes => {
            let end = bytes.iter().rposition(|byte| *byte != 0);
            let held = &bytes[..end.map_or(0, |end| end + 1)];
            match std::str::from_utf8(held) {
                Ok(text) => push_quoted(out, text),
                Err(_) => push_hex(out, held, form),
            }
            Ok(())
        }
        Element::Unicode => {
            let letters = bytes.chunks_exact(4).map(|letter| {
                let code = unsigned(dtype, letter) as u32;
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            });
            let text: String = letters.collect();
            push_quoted(out, text.trim_end_matches('\0'));
            Ok(())
        }
        Element::Void => {
            push_hex(out, bytes, form);
            Ok(())
        }
        Element::Text => {
            let text = String::from_utf8_lossy(bytes);
            match form {
                Form::Plain => out.push_str(&text),
                Form::Json => push_quoted(out, &text),
            }
            Ok(())
        }
        Element::Structure(fields) => {
            out.push('{');
            let mut is_first = true;
            for field in fields.iter().filter(|field| !field.name.is_empty()) {
                if !std::mem::take(&mut is_first) {
                    out.push(',');
                }
                push_quoted(out, &field.name);
                out.push(':');
                let item = field.dtype.item_bytes() as usize;
                let count: u64 = field.shape.iter().product();
                let at = field.offset as usize;
                let held = &bytes[at..at + item * count as usize];
                match field.shape.is_empty() {
                    true => push(out, &field.dtype, held, Form::Json),
                    false => {
                        push_list(out, &field.dtype, held.chunks_exact(item), Form::Json);
                    }
                }
            }
            out.push('}');
            Ok(())
        }
    };
    written.expect("a text takes all that is written to it");
}

/// Elements as a list in JSON, or in brackets.
pub fn push_list<'a>(
    out: &mut String,
    dtype: &DType,
    elements: impl Iterator<Item = &'a [u8]>,
    form: Form,
) {
    out.push('[');
    for (index, element) in elements.enumerate() {
        if index > 0 {
            out.push_str(match form {
                Form::Plain => ", ",
                Form::Json => ",",
            });
        }
        push(out, dtype, element, form);
    }
    out.push(']');
}

/// An attribute's value as JSON.
pub fn attribute_json(value: &AttributeValue) -> String {
    attribute(value, usize::MAX, Form::Json)
}

/// An attribute's value for people, who see so many of its elements.
pub fn attribute_text(value: &AttributeValue, most: usize) -> String {
    let text = attribute(value, most, Form::Plain);
    match value.count() {
        count if count > most => format!("{text} and {} more", count - most),
        _ => text,
    }
}

fn attribute(value: &AttributeValue, most: usize, form: Form) -> String {
    let dtype = value.dtype();
    let mut out = String::new();
    let texts = value.as_texts().unwrap_or_default();
    match (value.is_list(), dtype.is_text()) {
        (true, true) => {
            let elements = texts.iter().take(most).map(|text| text.as_bytes());
            push_list(&mut out, dtype, elements, form);
        }
        (true, false) => {
            let elements = value.bytes().chunks_exact(dtype.item_bytes() as usize);
            push_list(&mut out, dtype, elements.take(most), form);
        }
        (false, true) => {
            let text = texts.first().copied().unwrap_or_default();
            push(&mut out, dtype, text.as_bytes(), form);
        }
        (false, false) => push(&mut out, dtype, value.bytes(), form),
    }
    out
}

/// A number of up to 8 bytes, with the least significant one first.
fn little_endian(dtype: &DType, bytes: &[u8], fill: u8) -> [u8; 8] {
    let mut wide = [fill; 8];
    let place = &mut wide[..bytes.len()];
    place.copy_from_slice(bytes);
    if dtype.order() == ByteOrder::Big {
        place.reverse();
    }
    wide
}

fn unsigned(dtype: &DType, bytes: &[u8]) -> u64 {
    u64::from_le_bytes(little_endian(dtype, bytes, 0))
}

fn signed(dtype: &DType, bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len() as u32;
    let wide = i64::from_le_bytes(little_endian(dtype, bytes, 0));
    wide << unused >> unused
}

/// Shortest digits that give the same number.
fn push_float(out: &mut String, dtype: &DType, bytes: &[u8], form: Form) {
    let (number, digits) = match bytes.len() {
        2 => {
            let number = half(unsigned(dtype, bytes) as u16);
            (f64::from(number), format!("{number:?}"))
        }
        4 => {
            let number = f32::from_bits(unsigned(dtype, bytes) as u32);
            (f64::from(number), format!("{number:?}"))
        }
        8 => {
            let number = f64::from_bits(unsigned(dtype, bytes));
            (number, format!("{number:?}"))
        }
        // A long double is the machine's own.
        _ => return push_hex(out, bytes, form),
    };
    match number.is_finite() {
        true => out.push_str(&digits),
        false => push_word(out, &digits, form),
    }
}

fn push_complex(out: &mut String, dtype: &DType, real: &[u8], imaginary: &[u8], form: Form) {
    match form {
        Form::Json => {
            out.push('[');
            push_float(out, dtype, real, form);
            out.push(',');
            push_float(out, dtype, imaginary, form);
            out.push(']');
        }
        // As Python writes it.
        Form::Plain => {
            push_float(out, dtype, real, form);
            let at = out.len();
            push_float(out, dtype, imaginary, form);
            if !out[at..].starts_with('-') {
                out.insert(at, '+');
            }
            out.push('j');
        }
    }
}

/// IEEE 754 of 2 bytes.
fn half(bits: u16) -> f32 {
    let sign = if bits & 0x8000 != 0 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let fraction = f32::from(bits & 0x3ff);
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}

/// What JSON has no number for.
fn push_word(out: &mut String, word: &str, form: Form) {
    match form {
        Form::Plain => out.push_str(word),
        Form::Json => push_quoted(out, word),
    }
}

fn push_quoted(out: &mut String, text: &str) {
    out.push_str(&serde_json::to_string(text).expect("a text becomes JSON"));
}

fn push_hex(out: &mut String, bytes: &[u8], form: Form) {
    let mut digits = String::from("0x");
    for byte in bytes {
        write!(digits, "{byte:02x}").expect("a text takes all that is written to it");
    }
    push_word(out, &digits, form);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(dtype: &str, bytes: &[u8]) -> (String, String) {
        let dtype = DType::parse(dtype).unwrap();
        let json = text(&dtype, bytes, Form::Json);
        serde_json::from_str::<serde_json::Value>(&json).unwrap_or_else(|_| panic!("{json}"));
        (text(&dtype, bytes, Form::Plain), json)
    }

    #[test]
    fn elements_of_every_type_are_text_and_json() {
        let same = |dtype: &str, bytes: &[u8], expected: &str| {
            let (plain, json) = both(dtype, bytes);
            assert_eq!((plain.as_str(), json.as_str()), (expected, expected));
        };
        same("|b1", &[1], "true");
        same("|i1", &[0xff], "-1");
        same(">i2", &[0xff, 0xfe], "-2");
        same("<i8", &i64::MIN.to_le_bytes(), "-9223372036854775808");
        same("<u8", &u64::MAX.to_le_bytes(), "18446744073709551615");
        same("<f2", &[0x00, 0x3e], "1.5");
        same("<f2", &[0x01, 0x00], "5.9604645e-8");
        same("<f4", &0.1f32.to_le_bytes(), "0.1");
        same(">f8", &1e300f64.to_be_bytes(), "1e300");
        same("<m8[s]", &7i64.to_le_bytes(), "7");
        same("|S8", b"ab\0\0\0\0\0\0", "\"ab\"");
        same("<U2", &[0xb5, 0, 0, 0, 0, 0, 0, 0], "\"µ\"");
        let structure = r#"[["x","<i2"],["","|V2"],["m",">i2",[2]]]"#;
        same(structure, &[1, 0, 9, 9, 0, 2, 0, 3], r#"{"x":1,"m":[2,3]}"#);
    }

    #[test]
    fn what_json_has_no_number_for_is_a_text_there() {
        let differ = |dtype: &str, bytes: &[u8], plain: &str, json: &str| {
            assert_eq!(both(dtype, bytes), (plain.to_owned(), json.to_owned()));
        };
        differ("<f8", &f64::NAN.to_le_bytes(), "NaN", "\"NaN\"");
        differ("<f4", &f32::NEG_INFINITY.to_le_bytes(), "-inf", "\"-inf\"");
        differ("<M8[ns]", &i64::MIN.to_le_bytes(), "NaT", "\"NaT\"");
        differ("|V2", &[0xab, 1], "0xab01", "\"0xab01\"");
        differ("str", "a b".as_bytes(), "a b", "\"a b\"");
        let complex: Vec<u8> = [1.0f32, -2.5]
            .iter()
            .flat_map(|f| f.to_le_bytes())
            .collect();
        differ("<c8", &complex, "1.0-2.5j", "[1.0,-2.5]");
    }

    #[test]
    fn attributes_are_cut_for_people_alone() {
        let value = AttributeValue::from(vec![1i64, 2, 3]);
        assert_eq!(attribute_text(&value, 2), "[1, 2] and 1 more");
        assert_eq!(attribute_json(&value), "[1,2,3]");
        assert_eq!(
            attribute_json(&AttributeValue::texts(["a", ""])),
            r#"["a",""]"#
        );
        assert_eq!(attribute_text(&"µ s".into(), 2), "µ s");
        assert_eq!(attribute_text(&2.5f32.into(), 2), "2.5");
    }
}
