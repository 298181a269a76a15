//! The columns of a batch: what there is to know of each event besides its
//! metadata and data.

use super::{EXTERNAL_DATA, ExternalLayout, Header, column};
use crate::codec::{DecodeError, Reader};

/// Where one event's parts lie in the sections of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRef {
    /// Offset less the batch's base offset.
    pub offset_delta: u32,
    /// Start of its metadata in the section of metadata.
    pub metadata_start: u32,
    /// Length of its metadata.
    pub metadata_bytes: u32,
    /// Length of its data, in either place.
    pub data_bytes: u64,
    /// Start of its data: in the section of inline data, or, if `external`,
    /// in the batch's part of the data file.
    pub data_start: u64,
    /// Whether the data lies outside the batch.
    pub external: bool,
    /// Producer time, nanoseconds since 1970.
    pub producer_time: Option<u64>,
    /// Start and length of the key in the section of columns; `None` is null,
    /// which differs from empty.
    pub key: Option<(u32, u32)>,
    /// Start and length of the headers in the section of columns.
    pub headers: Option<(u32, u32)>,
    /// Whether the event deletes its key.
    pub tombstone: bool,
}

/// The decoded columns of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns {
    /// One entry an event, in order.
    pub events: Vec<EventRef>,
    /// Where external data lies.
    pub external: ExternalLayout,
}

const WHAT: &str = "batch columns";
/// A key or headers of this length are null.
pub(super) const NULL: u32 = u32::MAX;

impl Columns {
    /// Decodes `section`, checking every length against the header's sums.
    pub fn read(header: &Header, section: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(WHAT, section);
        let count = header.event_count as usize;
        // The lengths alone take four bytes an event: after this check the
        // space allocated is bounded by the input.
        let lengths = from.bytes(count.saturating_mul(4))?;
        let mut events = Vec::with_capacity(count);
        let mut metadata_start = 0u64;
        for (index, length) in lengths.chunks_exact(4).enumerate() {
            let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
            events.push(EventRef {
                offset_delta: index as u32,
                metadata_start: metadata_start as u32,
                metadata_bytes: length,
                data_bytes: 0,
                data_start: 0,
                external: false,
                producer_time: None,
                key: None,
                headers: None,
                tombstone: false,
            });
            metadata_start += u64::from(length);
            if metadata_start > u64::from(header.metadata_bytes) {
                return Err(from.refuse("sum of metadata lengths", metadata_start));
            }
        }
        if metadata_start != u64::from(header.metadata_bytes) {
            return Err(from.refuse("sum of metadata lengths", metadata_start));
        }
        let external = read_data_lengths(header, &mut from, &mut events)?;
        if header.columns & column::PRODUCER_TIME != 0 {
            for event in &mut events {
                event.producer_time = Some(from.u64()?).filter(|time| *time != 0);
            }
        }
        if header.columns & column::KEY != 0 {
            read_blobs(&mut from, &mut events, |event, place| event.key = place)?;
        }
        if header.columns & column::HEADERS != 0 {
            read_blobs(&mut from, &mut events, |event, place| event.headers = place)?;
        }
        if header.columns & column::TOMBSTONE != 0 {
            for event in &mut events {
                event.tombstone = match from.u8()? {
                    0 => false,
                    1 => true,
                    other => return Err(from.refuse("tombstone", u64::from(other))),
                };
            }
        }
        read_offset_deltas(header, &mut from, &mut events)?;
        if !from.rest().is_empty() {
            return Err(from.refuse("bytes behind the columns", from.rest().len() as u64));
        }
        Ok(Self { events, external })
    }
}

/// What a server needs to know of columns before it takes a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The longest metadata of an event.
    pub metadata_bytes_max: u32,
    /// Where external data lies, if there is any.
    pub external: Option<ExternalLayout>,
}

impl Survey {
    /// Checks all that [`Columns::read`] checks, in a few passes over the
    /// lengths, and allocates only for external data.
    pub fn read(header: &Header, section: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(WHAT, section);
        let count = header.event_count as usize;
        let lengths = from.bytes(count.saturating_mul(4))?;
        let (mut sum, mut longest) = (0u64, 0u32);
        for length in lengths.as_chunks::<4>().0 {
            let length = u32::from_le_bytes(*length);
            sum += u64::from(length);
            longest = longest.max(length);
        }
        if sum != u64::from(header.metadata_bytes) {
            return Err(from.refuse("sum of metadata lengths", sum));
        }
        let external = if header.columns & column::DATA_BYTES != 0 {
            survey_data_lengths(header, &mut from)?
        } else if header.inline_bytes != 0 {
            return Err(from.refuse("sum of inline data lengths", 0));
        } else {
            None
        };
        if header.columns & column::PRODUCER_TIME != 0 {
            from.bytes(count.saturating_mul(8))?;
        }
        for blobs in [column::KEY, column::HEADERS] {
            if header.columns & blobs != 0 {
                let lengths = from.bytes(count.saturating_mul(4))?;
                let lengths = lengths
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .map(|b| u32::from_le_bytes(*b));
                let sum: u64 = lengths
                    .filter(|length| *length != NULL)
                    .map(u64::from)
                    .sum();
                from.bytes(usize::try_from(sum).unwrap_or(usize::MAX))?;
            }
        }
        if header.columns & column::TOMBSTONE != 0
            && let Some(other) = from.bytes(count)?.iter().find(|flag| **flag > 1)
        {
            return Err(from.refuse("tombstone", u64::from(*other)));
        }
        if header.columns & column::OFFSET_DELTA != 0 {
            let mut next = 0u64;
            for delta in from.bytes(count.saturating_mul(4))?.as_chunks::<4>().0 {
                let delta = u64::from(u32::from_le_bytes(*delta));
                if delta < next || delta > u64::from(header.last_offset_delta) {
                    return Err(from.refuse("offset delta", delta));
                }
                next = delta + 1;
            }
        }
        if !from.rest().is_empty() {
            return Err(from.refuse("bytes behind the columns", from.rest().len() as u64));
        }
        Ok(Self {
            metadata_bytes_max: longest,
            external,
        })
    }
}

fn survey_data_lengths(
    header: &Header,
    from: &mut Reader<'_>,
) -> Result<Option<ExternalLayout>, DecodeError> {
    let words = from.bytes((header.event_count as usize).saturating_mul(8))?;
    let words = words.as_chunks::<8>().0;
    let words = || words.iter().map(|word| u64::from_le_bytes(*word));
    let (mut inline, mut any_external) = (0u64, 0u64);
    for word in words() {
        any_external |= word;
        if word & EXTERNAL_DATA == 0 {
            inline = inline.saturating_add(word);
        }
    }
    if inline != u64::from(header.inline_bytes) {
        return Err(from.refuse("sum of inline data lengths", inline));
    }
    if any_external & EXTERNAL_DATA == 0 {
        return Ok(None);
    }
    let external = words()
        .enumerate()
        .filter(|(_, word)| word & EXTERNAL_DATA != 0)
        .map(|(index, word)| (index as u32, word & !EXTERNAL_DATA));
    ExternalLayout::new(external, header.block_bytes())
        .map(Some)
        .ok_or_else(|| from.refuse("sum of external data lengths", u64::MAX))
}

fn read_data_lengths(
    header: &Header,
    from: &mut Reader<'_>,
    events: &mut [EventRef],
) -> Result<ExternalLayout, DecodeError> {
    let mut inline = 0u64;
    let mut external = Vec::new();
    if header.columns & column::DATA_BYTES != 0 {
        for (index, event) in events.iter_mut().enumerate() {
            let word = from.u64()?;
            event.data_bytes = word & !EXTERNAL_DATA;
            event.external = word & EXTERNAL_DATA != 0;
            if event.external {
                external.push((index as u32, event.data_bytes));
            } else {
                event.data_start = inline;
                inline = inline
                    .checked_add(event.data_bytes)
                    .filter(|sum| *sum <= u64::from(header.inline_bytes))
                    .ok_or_else(|| from.refuse("data length", event.data_bytes))?;
            }
        }
    }
    if inline != u64::from(header.inline_bytes) {
        return Err(from.refuse("sum of inline data lengths", inline));
    }
    let layout = ExternalLayout::new(external.into_iter(), header.block_bytes())
        .ok_or_else(|| from.refuse("sum of external data lengths", u64::MAX))?;
    for (index, position, _) in &layout.events {
        events[*index as usize].data_start = *position;
    }
    Ok(layout)
}

fn read_blobs(
    from: &mut Reader<'_>,
    events: &mut [EventRef],
    set: impl Fn(&mut EventRef, Option<(u32, u32)>),
) -> Result<(), DecodeError> {
    let lengths = from.bytes(events.len().saturating_mul(4))?;
    for (event, length) in events.iter_mut().zip(lengths.chunks_exact(4)) {
        let length = u32::from_le_bytes(length.try_into().expect("four bytes"));
        if length == NULL {
            set(event, None);
            continue;
        }
        let start = from.position() as u32;
        from.bytes(length as usize)?;
        set(event, Some((start, length)));
    }
    Ok(())
}

fn read_offset_deltas(
    header: &Header,
    from: &mut Reader<'_>,
    events: &mut [EventRef],
) -> Result<(), DecodeError> {
    if header.columns & column::OFFSET_DELTA != 0 {
        let mut next = 0u64;
        for event in events.iter_mut() {
            event.offset_delta = from.u32()?;
            if u64::from(event.offset_delta) < next {
                return Err(from.refuse("offset delta", u64::from(event.offset_delta)));
            }
            next = u64::from(event.offset_delta) + 1;
        }
    }
    match events.last() {
        Some(last) if last.offset_delta > header.last_offset_delta => {
            Err(from.refuse("offset delta", u64::from(last.offset_delta)))
        }
        _ => Ok(()),
    }
}

/// An event's headers: pairs of a name and bytes, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(pub Vec<(String, bytes::Bytes)>);

impl Headers {
    /// The binary form of these headers, without a copy of each in between.
    pub fn bytes_of(headers: &[(&str, &[u8])]) -> Vec<u8> {
        use crate::codec::Write as _;
        let bytes = headers
            .iter()
            .map(|(name, value)| 8 + name.len() + value.len());
        let mut out = Vec::with_capacity(4 + bytes.sum::<usize>());
        out.put_u32(u32::try_from(headers.len()).expect("an event has few headers"));
        for (name, value) in headers {
            out.put_sized(name.as_bytes());
            out.put_sized(value);
        }
        out
    }

    /// The value of the first header of this name in the binary form of some,
    /// where it lies.
    pub fn find<'a>(encoded: &'a [u8], name: &str) -> Option<&'a [u8]> {
        let mut from = Reader::new("event headers", encoded);
        for _ in 0..from.count(1).ok()? {
            let (other, value) = (from.sized().ok()?, from.sized().ok()?);
            if other == name.as_bytes() {
                return Some(value);
            }
        }
        None
    }
}

impl crate::codec::Codec for Headers {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(crate::codec::Codec::decode(from)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;

    #[test]
    fn a_header_is_found_by_its_name() {
        let encoded = Headers::bytes_of(&[("one", b"1"), ("two", b"2"), ("two", b"3")]);
        assert_eq!(Headers::find(&encoded, "two"), Some(&b"2"[..]));
        assert_eq!(Headers::find(&encoded, "three"), None);
        for end in 0..encoded.len() {
            // What is cut off is no header, and no panic.
            let cut = Headers::find(&encoded[..end], "two");
            assert!(cut.is_none_or(|value| value == b"2"));
        }
        assert_eq!(Headers::find(&u32::MAX.to_le_bytes(), "one"), None);
    }
    use super::{Columns, Survey};

    fn sealed(events: &[EventParts<'_>]) -> Vec<u8> {
        let mut builder = BatchBuilder::default();
        events.iter().for_each(|event| builder.push(*event));
        let origin = Origin {
            topic: TopicId(1),
            producer: ProducerId(2),
            epoch: ProducerEpoch(3),
            first_sequence: Sequence(4),
        };
        builder.seal(origin, 4096).to_vec()
    }

    #[test]
    fn headers_have_one_form() {
        let headers: [(&str, &[u8]); 2] = [("a", b"1"), ("thalweg.reply", b"")];
        let owned = |(name, value): &(&str, &[u8])| {
            (name.to_string(), bytes::Bytes::copy_from_slice(value))
        };
        let kept = super::Headers(headers.iter().map(owned).collect());
        let bytes = super::Headers::bytes_of(&headers);
        assert_eq!(bytes, crate::codec::Codec::to_bytes(&kept));
    }

    /// A survey and a full decoding agree, on good columns and on damaged ones.
    #[test]
    fn a_survey_says_what_decoding_says() {
        let plain = EventParts {
            metadata: b"metadata",
            ..EventParts::default()
        };
        let inline = EventParts {
            inline: &[b"da", b"ta"],
            producer_time: 9,
            ..plain
        };
        let external = EventParts {
            external_bytes: Some(10_000),
            key: Some(b"key"),
            ..plain
        };
        let rest = EventParts {
            metadata: b"a longer one",
            headers: Some(b""),
            tombstone: true,
            ..EventParts::default()
        };
        for events in [
            vec![plain],
            vec![plain, inline],
            vec![plain, external, inline, rest],
            vec![rest, external, external],
        ] {
            let bytes = sealed(&events);
            let batch = Batch::read(bytes.as_slice(), Verify::Sections).unwrap();
            let header = batch.header;
            let section = batch.columns_section().to_vec();
            let survey = Survey::read(&header, &section).unwrap();
            let columns = Columns::read(&header, &section).unwrap();
            let longest = columns
                .events
                .iter()
                .map(|event| event.metadata_bytes)
                .max();
            assert_eq!(Some(survey.metadata_bytes_max), longest);
            assert_eq!(survey.external.unwrap_or_default(), columns.external);
            for at in 0..section.len() {
                for bit in 0..8 {
                    let mut flipped = section.clone();
                    flipped[at] ^= 1 << bit;
                    assert_eq!(
                        Survey::read(&header, &flipped).is_ok(),
                        Columns::read(&header, &flipped).is_ok(),
                        "bit {bit} of byte {at} of {section:?}"
                    );
                }
                assert!(Survey::read(&header, &section[..at]).is_err());
            }
        }
    }
}
