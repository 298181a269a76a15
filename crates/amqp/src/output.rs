//! Bytes to send: small ones gathered, large bodies as they are.

use crate::content::Content;
use crate::frame::{ContentHeader, FRAME_END, FRAME_OVERHEAD, Frame, FrameKind, put_method};
use crate::method::Method;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::VecDeque;

/// Bytes that wait to be sent while input is still read. Beyond, `input` reads nothing: a client that does not read
/// cannot have answers pile up.
pub const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// A piece of a body that is shorter is copied to its frame; a longer one is shared.
const COPY_MAX: usize = 4 << 10;

#[derive(Debug, Default)]
pub(crate) struct Output {
    whole: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl Output {
    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends bytes as they are.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.put(|out| out.put_slice(bytes));
    }

    pub(crate) fn method(&mut self, channel: u16, method: &Method) {
        self.put(|out| put_method(channel, method, out));
    }

    pub(crate) fn heartbeat(&mut self) {
        self.put(|out| Frame::Heartbeat.encode(out));
    }

    /// Appends a method with its content: a header, and as many body frames as it takes.
    pub(crate) fn content(
        &mut self,
        channel: u16,
        method: &Method,
        content: &Content,
        frame_max: u32,
    ) {
        let header = Frame::Header {
            channel,
            header: ContentHeader {
                class: method.id().class,
                body_bytes: content.body.len() as u64,
                properties: content.properties.clone(),
            },
        };
        self.put(|out| {
            put_method(channel, method, out);
            header.encode(out);
        });
        let piece_max = (frame_max - FRAME_OVERHEAD) as usize;
        let mut body = content.body.clone();
        while !body.is_empty() {
            let piece = body.split_to(piece_max.min(body.len()));
            self.body(channel, piece);
        }
    }

    fn body(&mut self, channel: u16, piece: Bytes) {
        self.put(|out| {
            out.put_u8(FrameKind::Body as u8);
            out.put_u16(channel);
            out.put_u32(piece.len() as u32);
        });
        if piece.len() < COPY_MAX {
            self.raw(&piece);
        } else {
            self.seal();
            self.bytes += piece.len();
            self.whole.push_back(piece);
        }
        self.raw(&[FRAME_END]);
    }

    fn put(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        self.bytes += self.tail.len() - before;
    }

    /// Ends the piece that small writes go to.
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.whole.push_back(self.tail.split().freeze());
        }
    }

    /// The next bytes.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.seal();
        }
        let piece = self.whole.pop_front()?;
        self.bytes -= piece.len();
        Some(piece)
    }
}
