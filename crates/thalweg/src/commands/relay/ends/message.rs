//! Messages of ZeroMQ and nanomsg as events, and back.
//!
//! A message of one part is an event's data. Of several, the first is the metadata if it is a JSON
//! object, and all others, one behind the other, the data. The header [`PARTS`] has what is needed to
//! make the same parts of it again.

use bytes::Bytes;
use client::Event;
use pushpull::{Message, PARTS_MAX, Protocol};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The header of an event that was a message of several parts: their lengths, as in `12,4096,0`; the first
/// is that of the metadata, or `-` where none of the parts is the metadata.
pub const PARTS: &str = "pushpull.parts";

/// Metadata where a message has none.
const NONE: &[u8] = b"{}";

/// What a message is as an event.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    pub metadata: Bytes,
    pub data: Vec<Bytes>,
    pub parts: Option<String>,
}

impl Received {
    /// The event's headers, for [`Received::event`].
    pub fn headers(&self) -> Vec<(&str, &[u8])> {
        let parts = self.parts.as_deref();
        let parts = parts.map(|parts| (PARTS, parts.as_bytes()));
        parts.into_iter().collect()
    }

    /// The event.
    pub fn event<'a>(&'a self, headers: &'a [(&'a str, &'a [u8])]) -> Event<'a> {
        Event {
            headers,
            data: self.data.clone(),
            ..Event::new(&self.metadata)
        }
    }

    /// The length of its data.
    pub fn bytes(&self) -> u64 {
        self.data.iter().map(|piece| piece.len() as u64).sum()
    }
}

/// A message as an event. A first part that is longer than `metadata_bytes_max` is no metadata, and none is
/// without it.
pub fn to_event(mut message: Message, metadata_bytes_max: Option<usize>) -> Received {
    if message.len() == 1 {
        return Received {
            metadata: Bytes::from_static(NONE),
            data: message,
            parts: None,
        };
    }
    let is_metadata = |first: &Bytes| {
        metadata_bytes_max.is_some_and(|most| first.len() <= most) && is_json_object(first)
    };
    let mut lengths: Vec<String> = message.iter().map(|part| part.len().to_string()).collect();
    let metadata = match message.first().is_some_and(is_metadata) {
        true => message.remove(0),
        false => {
            lengths.insert(0, "-".to_owned());
            Bytes::from_static(NONE)
        }
    };
    Received {
        metadata,
        data: message,
        parts: Some(lengths.join(",")),
    }
}

fn is_json_object(bytes: &[u8]) -> bool {
    serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(bytes).is_ok()
}

/// An event as a message. With its metadata before its data, where the protocol has parts and it was no
/// message of other ones.
pub fn to_message(metadata: Bytes, data: Bytes, parts: Option<&[u8]>, shape: Shape) -> Message {
    if shape == Shape::Data {
        return vec![data];
    }
    let split = parts.and_then(|parts| split(&metadata, &data, parts));
    split.unwrap_or_else(|| vec![metadata, data])
}

/// What goes into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Metadata and data, or the parts that were.
    Parts,
    /// The data alone.
    Data,
}

impl Shape {
    /// That of a protocol, unless the data alone is asked for.
    pub fn of(protocol: Protocol, data_only: bool) -> Self {
        match protocol {
            Protocol::Zmtp if !data_only => Self::Parts,
            _ => Self::Data,
        }
    }
}

/// The parts that a message had; `None` if the header is not one of ours for this event.
fn split(metadata: &Bytes, data: &Bytes, parts: &[u8]) -> Option<Message> {
    let mut lengths = std::str::from_utf8(parts).ok()?.split(',');
    let mut message = match lengths.next()? {
        "-" => Message::new(),
        first if first.parse() == Ok(metadata.len()) => vec![metadata.clone()],
        _ => return None,
    };
    let mut rest = data.clone();
    for length in lengths {
        let length: usize = length.parse().ok()?;
        // Whoever may write to the topic wrote the header.
        if length > rest.len() || message.len() == PARTS_MAX {
            return None;
        }
        message.push(rest.split_to(length));
    }
    (rest.is_empty() && !message.is_empty()).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(parts: &[&str]) -> Message {
        (parts.iter().map(|part| Bytes::from(part.to_string()))).collect()
    }

    fn received(parts: &[&str]) -> Received {
        to_event(message(parts), Some(100))
    }

    fn back(parts: &[&str]) -> Message {
        let event = received(parts);
        let data = event.data.concat().into();
        let header = event.parts.as_deref().map(str::as_bytes);
        to_message(event.metadata.clone(), data, header, Shape::Parts)
    }

    #[test]
    fn a_first_part_of_json_is_the_metadata() {
        let event = received(&["{\"frame\": 7}", "abc", "", "de"]);
        assert_eq!(&event.metadata[..], b"{\"frame\": 7}");
        assert_eq!(event.data.concat(), b"abcde");
        assert_eq!(event.parts.as_deref(), Some("12,3,0,2"));
        let event = received(&["topic", "abc"]);
        assert_eq!(
            (&event.metadata[..], event.data.concat()),
            (NONE, b"topicabc".to_vec())
        );
        assert_eq!(event.parts.as_deref(), Some("-,5,3"));
        let event = received(&["{\"alone\": 1}"]);
        assert_eq!((&event.metadata[..], event.parts), (NONE, None));
        assert_eq!(event.data.concat(), b"{\"alone\": 1}");
        // What is too long for the topic is data, and all is where that is asked for.
        for most in [None, Some(12)] {
            let parts = message(&["{\"frame\": 78}", "abc"]);
            let event = to_event(parts, most);
            assert_eq!((&event.metadata[..], event.data.len()), (NONE, 2));
        }
        // What is no object is no metadata.
        for first in ["[1]", "7", "{\"a\": }", ""] {
            assert_eq!(received(&[first, "x"]).metadata, NONE, "{first}");
        }
    }

    #[test]
    fn what_was_a_message_is_the_same_again() {
        for parts in [
            &["{\"frame\": 7}", "abc", "", "de"][..],
            &["topic", "abc"],
            &["{}", ""],
            &["", ""],
        ] {
            assert_eq!(back(parts), message(parts));
        }
        // Of one part, and of a program's own event, the metadata goes first.
        assert_eq!(back(&["abc"]), message(&["{}", "abc"]));
    }

    #[test]
    fn a_header_that_does_not_fit_counts_for_nothing() {
        for header in [
            "",
            "-",
            "3",
            "2,3",
            "2,1",
            "-,2",
            "2,x",
            "-,99999999999999999999",
            "2,3,2",
        ] {
            let made = to_message(
                "{}".into(),
                "abcd".into(),
                Some(header.as_bytes()),
                Shape::Parts,
            );
            assert_eq!(made, message(&["{}", "abcd"]), "{header:?}");
        }
        let made = to_message("{}".into(), "abcd".into(), Some(b"2,1,3"), Shape::Parts);
        assert_eq!(made, message(&["{}", "a", "bcd"]));
        let many = format!("2{}", ",0".repeat(5_000)) + ",4";
        let made = to_message(
            "{}".into(),
            "abcd".into(),
            Some(many.as_bytes()),
            Shape::Parts,
        );
        assert_eq!(made, message(&["{}", "abcd"]));
        let made = to_message("{}".into(), "abcd".into(), Some(b"2,1,3"), Shape::Data);
        assert_eq!(made, message(&["abcd"]));
    }
}
