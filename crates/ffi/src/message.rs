//! `thalweg_message`: an event as the caller gives it, with memory that it lends.

use crate::boundary::*;
use crate::error::Failure;
use crate::event::ThalwegHeader;
use crate::loan::{Loan, Release};
use bytes::Bytes;
use std::ffi::c_void;
use std::sync::Arc;

/// `thalweg_message`.
#[repr(C)]
pub struct ThalwegMessage {
    pub metadata: ThalwegBytes,
    pub key: ThalwegBytes,
    pub data: *const ThalwegBytes,
    pub data_count: usize,
    pub headers: *const ThalwegHeader,
    pub header_count: usize,
    pub producer_time_ns: u64,
    pub partition: u32,
    pub has_partition: i32,
    pub tombstone: i32,
    pub borrow: i32,
    pub release: Option<extern "C" fn(*mut c_void)>,
    pub release_context: *mut c_void,
}

/// A message as the client takes it, and what is lent for it.
pub struct Outgoing<'a> {
    message: &'a ThalwegMessage,
    metadata: &'a [u8],
    key: Option<&'a [u8]>,
    headers: Vec<(&'a str, &'a [u8])>,
    data: Vec<Bytes>,
    copied: Vec<&'a [u8]>,
    loan: Option<Arc<Loan>>,
}

impl<'a> Outgoing<'a> {
    pub fn of(message: &'a ThalwegMessage) -> Result<Self, Failure> {
        // SAFETY: the header asks for memory that is there during the call.
        let metadata = unsafe { message.metadata.as_slice("metadata") }?;
        // SAFETY: the header asks for that many pieces.
        let pieces = unsafe { array("data", message.data, message.data_count) }?;
        // SAFETY: the header asks for that many headers.
        let headers = unsafe { array("headers", message.headers, message.header_count) }?;
        let headers = headers.iter().map(header).collect::<Result<Vec<_>, _>>()?;
        let key = match message.key.base.is_null() {
            true => None,
            // SAFETY: as for the metadata.
            false => Some(unsafe { message.key.as_slice("key") }?),
        };
        let release = message.release.map(|call| Release {
            call,
            context: UserPointer(message.release_context),
        });
        let borrows = message.borrow != 0 && !pieces.is_empty() || release.is_some();
        let loan = borrows.then(|| Loan::new(release));
        let (mut data, mut copied) = (Vec::new(), Vec::new());
        match &loan {
            // SAFETY: the header asks whoever says `borrow` or gives `release` for
            // memory that stays as it is until the future has resolved or `release`
            // was called, which the loan's end does.
            Some(loan) => data = unsafe { loan.readable(pieces) }?,
            None => {
                for piece in pieces.iter().filter(|piece| piece.size > 0) {
                    // SAFETY: the header asks for memory that is there during the call.
                    copied.push(unsafe { piece.as_slice("data") }?);
                }
            }
        }
        Ok(Self {
            message,
            metadata,
            key,
            headers,
            data,
            copied,
            loan,
        })
    }

    /// One that is a reply: metadata and data alone.
    pub fn reply(message: &'a ThalwegMessage) -> Result<Self, Failure> {
        let outgoing = Self::of(message)?;
        let is_plain = outgoing.key.is_none()
            && outgoing.headers.is_empty()
            && message.producer_time_ns == 0
            && message.has_partition == 0
            && message.tombstone == 0;
        match is_plain {
            true => Ok(outgoing),
            false => Err(Failure::invalid("a reply has metadata and data alone")),
        }
    }

    /// Sends it; gives what that gave, and what is still lent for it.
    pub fn send<T>(
        mut self,
        send: impl FnOnce(client::Event<'_>) -> Result<T, client::ClientError>,
    ) -> Result<(T, Option<Arc<Loan>>), Failure> {
        let message = self.message;
        let sent = send(client::Event {
            metadata: self.metadata,
            data: std::mem::take(&mut self.data),
            copied: &self.copied,
            key: self.key,
            headers: &self.headers,
            producer_time: (message.producer_time_ns != 0).then_some(message.producer_time_ns),
            partition: (message.has_partition != 0).then_some(message.partition),
            tombstone: message.tombstone != 0,
        })?;
        if let Some(loan) = &self.loan {
            loan.arm();
        }
        Ok((sent, self.loan.filter(|loan| !loan.has_ended())))
    }
}

fn header(header: &ThalwegHeader) -> Result<(&str, &[u8]), Failure> {
    // SAFETY: the header file asks for memory that is there during the call.
    let (name, value) = unsafe {
        (
            header.name.as_slice("name")?,
            header.value.as_slice("value")?,
        )
    };
    let name = std::str::from_utf8(name)
        .map_err(|_| Failure::invalid("the name of a header is not UTF-8"))?;
    Ok((name, value))
}
