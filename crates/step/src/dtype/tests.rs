use super::*;

fn canonical(text: &str) -> String {
    DType::parse(text).unwrap().as_str().to_owned()
}

#[test]
fn what_numpy_writes_is_read_as_it_is() {
    let as_is = [
        ("|b1", 1),
        ("|i1", 1),
        ("|u1", 1),
        ("<i2", 2),
        (">u4", 4),
        ("<i8", 8),
        ("<f2", 2),
        (">f4", 4),
        ("<f8", 8),
        ("<f16", 16),
        ("<c8", 8),
        (">c16", 16),
        ("<c32", 32),
        ("|S8", 8),
        ("<U4", 16),
        (">U1", 4),
        ("|V16", 16),
        ("<M8[ns]", 8),
        ("<m8[25s]", 8),
        (">M8", 8),
        ("str", 0),
        ("[[\"x\",\"<f8\"],[\"m\",\">f4\",[2,3]]]", 32),
        (
            "[[\"a\",[[\"b\",\"|u1\"],[\"\",\"|V3\"]],[2]],[\"ü\\\"\",\"|S2\"]]",
            10,
        ),
    ];
    for (text, item_bytes) in as_is {
        let dtype = DType::parse(text).unwrap();
        assert_eq!(dtype.as_str(), text);
        assert_eq!(dtype.item_bytes(), item_bytes, "{text}");
        assert_eq!(text.parse(), Ok(dtype));
        assert!(DType::of_items(text, item_bytes).is_ok());
        assert!(DType::of_items(text, item_bytes + 1).is_err());
    }
}

#[test]
fn other_ways_to_write_a_type_have_one_canonical_form() {
    let own = if cfg!(target_endian = "big") {
        '>'
    } else {
        '<'
    };
    assert_eq!(canonical("f8"), format!("{own}f8"));
    assert_eq!(canonical("=i4"), format!("{own}i4"));
    for (text, wanted) in [
        ("<u1", "|u1"),
        ("?", "|b1"),
        ("b1", "|b1"),
        (">S8", "|S8"),
        ("a3", "|S3"),
        ("<V2", "|V2"),
        (" [ [\"x\", \"<u1\", 3 ] ]", "[[\"x\",\"|u1\",[3]]]"),
        ("[[\"x\",\"<u1\",[]]]", "[[\"x\",\"|u1\"]]"),
    ] {
        assert_eq!(canonical(text), wanted);
        assert_eq!(canonical(wanted), wanted);
    }
}

#[test]
fn what_is_no_type_is_refused_with_a_reason() {
    let deep = format!("{}\"|u1\"{}", "[[\"x\",".repeat(9), "]]".repeat(9));
    let long = format!("[[\"{}\",\"|u1\"]]", "x".repeat(DTYPE_BYTES_MAX));
    for (text, reason) in [
        ("", "empty"),
        ("<", "a letter is missing"),
        ("O", "needs a length"),
        ("|O8", "objects"),
        ("<f3", "no `f` of 3 bytes"),
        ("<i16", "no `i` of 16 bytes"),
        ("f", "needs a length"),
        ("|S0", "no bytes"),
        ("<U0", "no bytes"),
        ("<U2000000000", "4 GiB"),
        ("|f8", "no order"),
        ("<f99999999999", "needs a length"),
        ("<f-8", "no length"),
        ("float64", "no length"),
        ("<x8", "no kind"),
        ("<é8", "no kind"),
        ("<M8[parsec]", "no unit"),
        ("<M8[ns", "no unit"),
        ("<M8[0s]", "no unit"),
        ("<f8[s]", "has no unit"),
        ("[", "JSON"),
        ("[]", "one at least"),
        ("[1]", "field 0"),
        ("[[\"x\"]]", "field 0"),
        ("[[1,\"<f8\"]]", "name of field 0"),
        ("[[\"x\",1]]", "neither"),
        ("[[\"x\",\"<f8\",[-1]]]", "list of lengths"),
        ("[[\"x\",\"str\"]]", "text"),
        ("[[\"x\",\"<f8\"],[\"x\",\"<f8\"]]", "two fields"),
        ("[[\"x\",\"<f8\",[0]]]", "no bytes"),
        ("[[\"x\",\"<f8\",[4000000000,4000000000]]]", "4 GiB"),
        ("[[\"x\",\"|u1\",[4294967295]],[\"y\",\"|u1\"]]", "4 GiB"),
        ("[[[\"title\",\"x\"],\"<f8\"]]", "name of field 0"),
        (&deep, "8 deep"),
        (&long, "the limit is"),
    ] {
        let told = DType::parse(text).unwrap_err().to_string();
        assert!(told.contains(reason), "{text:.40}: {told}");
        assert!(told.len() < 600, "{told}");
    }
}

#[test]
fn fields_have_their_places() {
    let dtype = DType::parse("[[\"x\",\"<f8\"],[\"m\",\">f4\",[2,3]],[\"n\",\"|u1\"]]").unwrap();
    let Element::Structure(fields) = dtype.element() else {
        panic!("a structure");
    };
    let places: Vec<_> = fields
        .iter()
        .map(|field| (field.offset, field.dtype.order()))
        .collect();
    assert_eq!(
        places,
        [
            (0, ByteOrder::Little),
            (8, ByteOrder::Big),
            (32, ByteOrder::None)
        ]
    );
}

/// Extremes by the standard library's order, for each type and order, at each length.
#[test]
fn extremes_are_those_of_a_simple_search() {
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 11
    };
    macro_rules! check {
        ($type:ident, $name:literal, $make:expr, $min:expr, $max:expr) => {
            for count in 1..40 {
                let values: Vec<$type> = (0..count).map(|_| $make(next())).collect();
                let min = values.iter().copied().reduce($min).unwrap();
                let max = values.iter().copied().reduce($max).unwrap();
                for mark in ['<', '>'] {
                    let to = |value: $type| match mark {
                        '<' => value.to_le_bytes().to_vec(),
                        _ => value.to_be_bytes().to_vec(),
                    };
                    let data: Vec<u8> = values.iter().flat_map(|value| to(*value)).collect();
                    let dtype = DType::parse(&format!("{mark}{}", $name)).unwrap();
                    let wanted = Extremes {
                        min: to(min),
                        max: to(max),
                    };
                    assert_eq!(dtype.extremes(&data), Some(wanted), "{dtype} {values:?}");
                }
            }
        };
        ($type:ident, $name:literal) => {
            check!(
                $type,
                $name,
                |bits: u64| (bits as $type) << 3 ^ bits as $type,
                $type::min,
                $type::max
            )
        };
    }
    check!(u8, "u1");
    check!(u16, "u2");
    check!(u32, "u4");
    check!(u64, "u8");
    check!(i8, "i1");
    check!(i16, "i2");
    check!(i32, "i4");
    check!(i64, "i8");
    check!(
        i64,
        "m8[s]",
        |bits: u64| (bits as i64) << 7,
        i64::min,
        i64::max
    );
    let float = |bits: u64| match bits % 5 {
        0 => f64::NAN,
        _ => (bits % 1000) as f64 - 500.5,
    };
    check!(f64, "f8", float, f64::min, f64::max);
    check!(f32, "f4", |bits| float(bits) as f32, f32::min, f32::max);
}

#[test]
fn nan_and_no_time_count_only_if_there_is_nothing_else() {
    let of = |name: &str, values: &[u64], bytes: usize| {
        let data: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes()[..bytes].to_vec())
            .collect();
        let extremes = DType::parse(name).unwrap().extremes(&data).unwrap();
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
        };
        (number(&extremes.min), number(&extremes.max))
    };
    let none = i64::MIN as u64;
    assert_eq!(of("<M8[s]", &[none, 9, 4, none], 8), (4, 9));
    assert_eq!(of("<M8[s]", &[none, none], 8), (none, none));
    assert_eq!(of("<M8[s]", &[none + 1, none], 8), (none + 1, none + 1));
    assert_eq!(
        of("<M8[s]", &[i64::MAX as u64], 8),
        (i64::MAX as u64, i64::MAX as u64)
    );
    // Halves: 1, -2, NaN, -NaN, infinity.
    assert_eq!(
        of("<f2", &[0x3c00, 0xc000, 0x7e01, 0xfe00], 2),
        (0xc000, 0x3c00)
    );
    assert_eq!(of("<f2", &[0x7c00, 0x7e00], 2), (0x7c00, 0x7c00));
    assert_eq!(of("<f2", &[0xfc00], 2), (0xfc00, 0xfc00));
    assert_eq!(of("<f2", &[0x7e01], 2), (0x7e00, 0x7e00));
    let infinity = f64::INFINITY.to_bits();
    assert_eq!(
        of("<f8", &[infinity, f64::NAN.to_bits()], 8),
        (infinity, infinity)
    );
    let (min, max) = of("<f8", &[f64::NAN.to_bits(); 9], 8);
    assert!(f64::from_bits(min).is_nan() && f64::from_bits(max).is_nan());
}

#[test]
fn what_has_no_order_has_no_extremes() {
    for text in ["<c16", "|S4", "<U1", "|V4", "<f16", "[[\"x\",\"<f4\"]]"] {
        let dtype = DType::parse(text).unwrap();
        assert_eq!(
            dtype.extremes(&[0; 96][..dtype.item_bytes() as usize * 2]),
            None
        );
    }
    assert_eq!(DType::parse("<f8").unwrap().extremes(&[]), None);
    assert_eq!(DType::text().extremes(b"text"), None);
}
