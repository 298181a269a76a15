use super::*;
use crate::gather::{GatherError, Layout};
use wire::Codec;
use wire::step::merge;

fn dtype(text: &str) -> DType {
    DType::parse(text).unwrap()
}

fn bytes_of(values: &[f64]) -> Bytes {
    let bytes: Vec<_> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    bytes.into()
}

/// Puts a block of doubles into an array of 4 by 4.
fn put(
    staging: &mut Staging,
    start: [u64; 2],
    count: [u64; 2],
    data: Bytes,
) -> Result<(), PutError> {
    let put = Put {
        name: "E",
        dtype: &dtype("<f8"),
        place: Place::Array {
            shape: &[4, 4],
            start: &start,
        },
        count: &count,
        with_extremes: true,
    };
    staging.put(&put, data)
}

fn part_of(staging: Staging) -> (Part, Vec<Bytes>) {
    let (part, pieces) = staging.into_part(Run(1), Step(2), Rank(0)).unwrap();
    let data_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
    assert_eq!(Part::read(&part.to_bytes(), data_bytes).as_ref(), Ok(&part));
    (part, pieces)
}

#[test]
fn blocks_lie_at_multiples_of_64_in_the_order_of_their_puts() {
    let mut staging = Staging::new();
    put(
        &mut staging,
        [0, 0],
        [1, 3],
        bytes_of(&[3.0, f64::NAN, -1.0]),
    )
    .unwrap();
    put(&mut staging, [1, 0], [0, 4], Bytes::new()).unwrap();
    put(&mut staging, [2, 0], [2, 4], bytes_of(&[2.0; 8])).unwrap();
    put(&mut staging, [1, 0], [1, 1], bytes_of(&[f64::NAN])).unwrap();
    assert_eq!(staging.bytes(), 136);
    let (part, pieces) = part_of(staging);
    let lengths: Vec<_> = pieces.iter().map(Bytes::len).collect();
    assert_eq!(lengths, [24, 40, 64, 8]);
    let blocks = &part.variables[0].blocks;
    // A block without bytes is nowhere.
    assert_eq!(blocks.positions, [0, 0, 64, 128]);
    assert_eq!(blocks.bytes, [24, 0, 64, 8]);
    let mins: Vec<_> = blocks
        .mins
        .chunks(8)
        .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
        .collect();
    assert_eq!(mins[..3], [-1.0, 0.0, 2.0]);
    assert!(mins[3].is_nan(), "nothing but NaN");
}

#[test]
fn memory_of_the_callers_own_is_not_copied() {
    let mut staging = Staging::new();
    let data = bytes_of(&[1.0; 4]);
    put(&mut staging, [0, 0], [1, 4], data.clone()).unwrap();
    let (_, pieces) = part_of(staging);
    assert_eq!(pieces[0].as_ptr(), data.as_ptr());
}

#[test]
fn a_span_is_filled_later_or_the_step_does_not_end() {
    let f4 = dtype("<f4");
    let at = |name| Put {
        name,
        dtype: &f4,
        place: Place::Joined(0),
        count: &[3],
        with_extremes: true,
    };
    let mut staging = Staging::new();
    let first = staging.span(&at("x")).unwrap();
    let second = staging.span(&at("x")).unwrap();
    assert_eq!((first.position, second.position, second.bytes), (0, 64, 12));
    staging.fill(&second, Bytes::from_static(&[0; 12])).unwrap();
    let told = staging
        .fill(&first, Bytes::from_static(&[0; 11]))
        .unwrap_err();
    assert_eq!(
        told.to_string(),
        "variable \"x\": its span has 12 bytes, and 11 were given"
    );
    let mut other = Staging::new();
    assert!(other.fill(&first, Bytes::from_static(&[0; 12])).is_err());
    let told = staging.into_part(Run(0), Step(0), Rank(0)).unwrap_err();
    assert_eq!(
        told.to_string(),
        "variable \"x\": the span of its block 0 was not filled"
    );
}

#[test]
fn extremes_are_told_for_all_blocks_or_for_none() {
    let u1 = dtype("|u1");
    let mut staging = Staging::new();
    for (name, with_extremes) in [("a", true), ("a", false), ("b", false), ("c", true)] {
        let put = Put {
            name,
            dtype: &u1,
            place: Place::Local,
            count: &[2],
            with_extremes,
        };
        staging.put(&put, Bytes::from_static(&[5, 4])).unwrap();
    }
    let (part, _) = part_of(staging);
    let mins: Vec<_> = part
        .variables
        .iter()
        .map(|variable| &variable.blocks.mins[..])
        .collect();
    assert_eq!(mins, [&[][..], &[], &[4]]);
}

#[test]
fn values_are_in_the_metadata_and_text_is_one() {
    let mut staging = Staging::new();
    let (text, int) = (DType::text(), dtype(">i4"));
    let value = |value: &'static [u8]| Bytes::from_static(value);
    staging
        .put_value("note", ShapeKind::Value, &text, value(b"no"))
        .unwrap();
    staging
        .put_value("note", ShapeKind::Value, &text, value("später".as_bytes()))
        .unwrap();
    staging
        .put_value("n", ShapeKind::LocalValue, &int, value(&[0, 0, 0, 9]))
        .unwrap();
    let refused = [
        ("note", ShapeKind::LocalValue, &text, value(b"")),
        ("note", ShapeKind::Value, &int, value(&[0; 4])),
        ("note", ShapeKind::Value, &text, value(&[0xff])),
        ("n", ShapeKind::LocalValue, &int, value(&[0; 5])),
        (
            "m",
            ShapeKind::Value,
            &text,
            vec![b'a'; VALUE_BYTES_MAX + 1].into(),
        ),
        ("", ShapeKind::Value, &text, value(b"")),
    ];
    for (name, kind, dtype, value) in refused {
        assert!(staging.put_value(name, kind, dtype, value).is_err());
    }
    let (part, pieces) = part_of(staging);
    assert!(pieces.is_empty());
    assert_eq!(part.variables.len(), 2, "what was refused has left nothing");
    assert_eq!(part.variables[0].blocks.values, ["später".as_bytes()]);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let mut staging = Staging::new();
    put(&mut staging, [0, 0], [2, 2], bytes_of(&[0.0; 4])).unwrap();
    let (f8, i8) = (dtype("<f8"), dtype("<i8"));
    let good = Put {
        name: "E",
        dtype: &f8,
        place: Place::Array {
            shape: &[4, 4],
            start: &[2, 0],
        },
        count: &[2, 2],
        with_extremes: false,
    };
    let array = |shape, start| Place::Array { shape, start };
    let text = DType::text();
    let bad = [
        (
            Put { dtype: &i8, ..good },
            "it was put with type <f8 in this step, now with <i8",
        ),
        (
            Put {
                place: array(&[4, 5], &[2, 0]),
                ..good
            },
            "it was put with shape [4, 4] in this step",
        ),
        (
            Put {
                place: Place::Local,
                ..good
            },
            "it was put with kind Array",
        ),
        (
            Put {
                count: &[2, 5],
                ..good
            },
            "5 elements from 0 on along dimension 1, whose length is 4",
        ),
        (
            Put {
                count: &[2],
                ..good
            },
            "have other numbers of dimensions",
        ),
        (
            Put {
                count: &[2, 1],
                ..good
            },
            "has 16 bytes, and 32 were given",
        ),
        (
            Put {
                dtype: &text,
                ..good
            },
            "text is put as a value",
        ),
        (
            Put {
                place: Place::Joined(2),
                name: "j",
                ..good
            },
            "joined along dimension 2 of 2",
        ),
        (
            Put {
                name: "l",
                place: Place::Local,
                count: &[u64::MAX, 2],
                ..good
            },
            "more bytes than can be addressed",
        ),
        (
            Put {
                place: array(&[4, 4], &[u64::MAX, 0]),
                ..good
            },
            "whose length is 4",
        ),
        (
            Put {
                place: Place::Local,
                name: "l",
                count: &[1; 33],
                ..good
            },
            "",
        ),
        (Put { name: "", ..good }, "a name of 0 bytes"),
    ];
    for (put, reason) in bad {
        let told = staging
            .put(&put, bytes_of(&[0.0; 4]))
            .unwrap_err()
            .to_string();
        assert!(told.contains(reason), "{told}");
    }
    staging.put(&good, bytes_of(&[1.0; 4])).unwrap();
    let (part, _) = part_of(staging);
    assert_eq!(part.variables.len(), 1);
    assert_eq!(part.variables[0].blocks.bytes, [32, 32]);
}

#[test]
fn too_much_in_a_part_is_refused() {
    let u1 = dtype("|u1");
    let huge = Put {
        name: "E",
        dtype: &u1,
        place: Place::Local,
        count: &[i64::MAX as u64],
        with_extremes: false,
    };
    let mut staging = Staging::new();
    let _span = staging.span(&huge).unwrap();
    assert!(staging.span(&huge).is_err());
    assert_eq!(staging.bytes(), i64::MAX as u64);
}

/// What is said of a block's extremes reaches readers, of each that has elements.
#[test]
fn readers_see_the_extremes_of_blocks_that_have_elements() {
    let mut staging = Staging::new();
    put(&mut staging, [0, 0], [1, 2], bytes_of(&[5.0, 4.0])).unwrap();
    put(&mut staging, [0, 0], [0, 2], Bytes::new()).unwrap();
    let (part, _) = part_of(staging);
    let (entries, columns) = merge(std::slice::from_ref(&part)).unwrap();
    let blocks = Blocks::from_bytes("blocks", &columns).unwrap();
    let refused = Layout::new(&entries[0], blocks.clone(), &[]);
    assert!(matches!(
        refused,
        Err(GatherError::Table { block: Some(0), .. })
    ));
    let place = wire::step::PartPlace {
        partition: wire::PartitionIndex(1),
        incarnation: wire::Incarnation(1),
        offset: wire::Offset(0),
        bytes: 16,
    };
    let layout = Layout::new(&entries[0], blocks, &[place]).unwrap();
    let (min, max) = layout.block(0).unwrap().extremes.unwrap();
    assert_eq!(
        (min, max),
        (&4f64.to_le_bytes()[..], &5f64.to_le_bytes()[..])
    );
    assert_eq!(layout.block(1).unwrap().extremes, None);
}

/// However many blocks there are, an event can have them.
#[test]
fn many_short_blocks_are_joined_to_few_pieces() {
    for long_every in [usize::MAX, 100, 3] {
        let u1 = DType::parse("|u1").unwrap();
        let mut staging = Staging::new();
        let mut wanted = Vec::new();
        for index in 0..3000usize {
            let bytes = vec![index as u8; if index % long_every == 1 { 20_001 } else { 7 }];
            let put = Put {
                name: &format!("v{index}"),
                dtype: &u1,
                place: Place::Local,
                count: &[bytes.len() as u64],
                with_extremes: false,
            };
            staging.put(&put, Bytes::from(bytes.clone())).unwrap();
            wanted.resize(wanted.len().next_multiple_of(64), 0);
            wanted.extend(bytes);
        }
        let (part, pieces) = staging.into_part(Run(1), Step(0), Rank(0)).unwrap();
        assert!(pieces.len() <= PIECES_MAX, "{} pieces", pieces.len());
        assert_eq!(pieces.concat(), wanted);
        assert_eq!(part.variables.len(), 3000);
    }
}
