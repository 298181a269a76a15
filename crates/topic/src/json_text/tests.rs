use super::*;
use serde_json::Value;

const GOOD: &[&str] = &[
    "null",
    " true\n",
    "false",
    "0",
    "-0",
    "-0.0e+0",
    "12.5E-3",
    "1e400",
    "123456789012345678901234567890",
    r#""""#,
    r#""plain ascii, longer than a word""#,
    r#""Größe \u00e9 \ud83d\ude00 \" \\ \/ \b\f\n\r\t 😀""#,
    "\"\u{7f}\u{80}\u{ffff}\"",
    "[]",
    "[ ]",
    "{ }",
    "[[],{},[[]]]",
    r#"{"":{"a":[1,2,{"b":null}]},"c":"d"}"#,
    "\t{ \"a\" : [ 1 , 2 ] , \"b\" : { } }\r\n",
];

#[test]
fn json_passes() {
    for text in GOOD {
        assert_eq!(check_json(text.as_bytes()), Ok(()), "{text}");
    }
}

#[test]
fn what_can_be_wrong_is_named_with_its_place() {
    let cases: &[(&[u8], &str)] = &[
        (b"", "expected a value, found the end at byte 0"),
        (b"  ", "expected a value, found the end at byte 2"),
        (b"\xef\xbb\xbf{}", "expected a value, found 0xef at byte 0"),
        (b"{} {}", "expected the end, found '{' at byte 3"),
        (b"[1 2]", "expected ',' or ']', found '2' at byte 3"),
        (b"[1,]", "expected a value, found ']' at byte 3"),
        (b"[1}", "expected ',' or ']', found '}' at byte 2"),
        (b"{\"a\":1]", "expected ',' or '}', found ']' at byte 6"),
        (b"{\"a\" 1}", "expected ':', found '1' at byte 5"),
        (
            b"{\"a\":1,}",
            "expected a name in '\"', found '}' at byte 7",
        ),
        (b"{a:1}", "expected a name in '\"', found 'a' at byte 1"),
        (b"{1:1}", "expected a name in '\"', found '1' at byte 1"),
        (b"{\"a\":", "expected a value, found the end at byte 5"),
        (b"\"abc", "expected '\"', found the end at byte 4"),
        (b"'abc'", "expected a value, found '\\'' at byte 0"),
        (b"NaN", "expected a value, found 'N' at byte 0"),
        (b"-Infinity", "expected a digit, found 'I' at byte 1"),
        (b"+1", "expected a value, found '+' at byte 0"),
        (b"01", "expected the end, found '1' at byte 1"),
        (b".5", "expected a value, found '.' at byte 0"),
        (b"1.", "expected a digit, found the end at byte 2"),
        (b"1e+", "expected a digit, found the end at byte 3"),
        (b"nul", "expected null, found the end at byte 3"),
        (b"trux", "expected true, found 'x' at byte 3"),
        (
            b"\"\\x\"",
            "expected an escape character, found 'x' at byte 2",
        ),
        (
            b"\"\\u00g0\"",
            "expected a hexadecimal digit, found 'g' at byte 5",
        ),
        (b"\"a\nb\"", "control character 0x0a in a string at byte 2"),
        (
            b"\"long enough\0\"",
            "control character 0x00 in a string at byte 12",
        ),
        (
            b"\"\\ud83d\"",
            "escaped surrogate without its pair at byte 1",
        ),
        (
            b"\"\\ude00\"",
            "escaped surrogate without its pair at byte 1",
        ),
        (
            b"\"\\ud83d\\u0041\"",
            "escaped surrogate without its pair at byte 1",
        ),
        (b"\"a\xffb\"", "not UTF-8 at byte 2"),
        (b"\"\xed\xa0\x80\"", "not UTF-8 at byte 1"),
        (b"\"\xc0\x80\"", "not UTF-8 at byte 1"),
        (b"\xc3", "not UTF-8 at byte 0"),
    ];
    for (text, message) in cases {
        let shown = String::from_utf8_lossy(text);
        let error = check_json(text).expect_err(&shown);
        assert_eq!(error.to_string(), *message, "{shown}");
    }
}

/// Every text that is one edit away from a good one is judged as serde_json
/// judges it, which builds a value and so reads all there is.
#[test]
fn agrees_with_serde_json_one_edit_away_from_json() {
    let interesting = b"\0\n \"\\/,:[]{}-+.0159eEtrufalsn\x7f\x80\xc3\xff";
    let mut checked = 0u32;
    for text in GOOD {
        let bytes = text.as_bytes();
        let mut compare = |changed: &[u8]| {
            // Two things are judged apart by design: numbers beyond a double,
            // which are good JSON and which serde_json cannot hold.
            let by_serde = match serde_json::from_slice::<Value>(changed) {
                Err(error) if error.to_string().starts_with("number out of range") => return,
                other => other.is_ok(),
            };
            let by_us = check_json(changed);
            assert_eq!(
                by_us.is_ok(),
                by_serde,
                "{:?}: {by_us:?}",
                String::from_utf8_lossy(changed)
            );
            checked += 1;
        };
        for at in 0..=bytes.len() {
            compare(&bytes[..at]);
            for new in interesting {
                compare(&[&bytes[..at], &[*new], &bytes[at..]].concat());
                if at < bytes.len() {
                    compare(&[&bytes[..at], &[*new], &bytes[at + 1..]].concat());
                }
            }
            if at < bytes.len() {
                compare(&[&bytes[..at], &bytes[at + 1..]].concat());
            }
        }
    }
    assert!(checked > 15_000, "only {checked} texts were compared");
}

#[test]
fn strings_are_scanned_right_at_every_alignment() {
    for before in 0..50 {
        for after in 0..50 {
            let text = format!("\"{}\u{1f600}{}\"", "x".repeat(before), "y".repeat(after));
            assert_eq!(check_json(text.as_bytes()), Ok(()));
            let text = format!("\"{}\u{1f}{}\"", "x".repeat(before), "y".repeat(after));
            let error = check_json(text.as_bytes()).unwrap_err();
            assert_eq!(error.offset(), before + 1);
        }
    }
}

#[test]
fn nesting_is_bounded_where_serde_json_bounds_it() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [1, 126, 127, 128, 129, 100_000] {
            let text = [&open.repeat(depth), "1", &close.repeat(depth)].concat();
            let ok = check_json(text.as_bytes()).is_ok();
            assert_eq!(ok, depth <= JSON_DEPTH_MAX as usize, "depth {depth}");
            assert_eq!(
                ok,
                serde_json::from_str::<Value>(&text).is_ok(),
                "depth {depth}"
            );
        }
    }
    let error = check_json("[".repeat(128).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "nested deeper than 127 at byte 127");
}
