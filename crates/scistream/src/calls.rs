//! Calls of gRPC with one message each way, over HTTP/2.

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// The longest message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// What stands before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Calls of one connection at once.
const STREAMS_MAX: u32 = 32;
/// The longest head of a call.
const HEAD_BYTES_MAX: u32 = 32 << 10;
/// How long a message may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a connection is asked for a sign of life, and how long that may take.
const ALIVE: Duration = Duration::from_secs(20);

const CONTENT: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// What a call comes to when it is not done, as gRPC numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Why a call is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed(pub Code, pub String);

/// One call.
#[derive(Debug)]
pub struct Call {
    /// `/PACKAGE.SERVICE/METHOD`.
    pub path: String,
    /// The metadata `authorization`.
    pub authorization: Option<String>,
    /// The message.
    pub message: Bytes,
}

/// Who answers calls.
pub trait Calls: Send + Sync {
    /// The message of the answer.
    fn call(&self, call: Call) -> impl Future<Output = Result<Vec<u8>, Failed>> + Send;
}

type Body = BoxBody<Bytes, Infallible>;

/// Serves the calls of one connection, to its end.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, calls: Arc<impl Calls + 'static>) {
    let service = service_fn(move |request| {
        let calls = calls.clone();
        async move { Ok::<_, Infallible>(one(request, &*calls).await) }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX);
    builder.max_header_list_size(HEAD_BYTES_MAX);
    builder.keep_alive_interval(ALIVE).keep_alive_timeout(ALIVE);
    // Where a connection breaks there is nobody to tell.
    let _ = builder
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn one(request: hyper::Request<Incoming>, calls: &impl Calls) -> hyper::Response<Body> {
    let (head, body) = request.into_parts();
    let is_grpc = head
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(CONTENT.as_bytes()));
    if head.method != hyper::Method::POST || !is_grpc {
        let mut response = hyper::Response::new(Full::new(Bytes::new()).boxed());
        *response.status_mut() = hyper::StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let limited = Limited::new(body, MESSAGE_BYTES_MAX + PREFIX_BYTES);
    let invalid = |why: &str| Failed(Code::InvalidArgument, why.to_owned());
    let done = match tokio::time::timeout(PATIENCE, limited.collect()).await {
        Err(_) => Err(Failed(
            Code::DeadlineExceeded,
            "the message does not come".to_owned(),
        )),
        Ok(Err(_)) => Err(invalid("the message is too long, or breaks off")),
        Ok(Ok(body)) => match message(&body.to_bytes()) {
            Err(why) => Err(invalid(why)),
            Ok(message) => {
                let authorization = head.headers.get(AUTHORIZATION);
                let authorization = authorization
                    .and_then(|value| value.to_str().ok())
                    .map(str::to_owned);
                let path = head.uri.path().to_owned();
                calls
                    .call(Call {
                        path,
                        authorization,
                        message,
                    })
                    .await
            }
        },
    };
    answer(done)
}

/// The one message of a body.
fn message(body: &Bytes) -> Result<Bytes, &'static str> {
    let Some((prefix, rest)) = body.split_at_checked(PREFIX_BYTES) else {
        return Err("there is no message");
    };
    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
    match (prefix[0], usize::try_from(length) == Ok(rest.len())) {
        (0, true) => Ok(body.slice(PREFIX_BYTES..)),
        (0, false) => Err("it is not one whole message"),
        _ => Err("messages are taken without compression"),
    }
}

fn answer(done: Result<Vec<u8>, Failed>) -> hyper::Response<Body> {
    match done {
        Ok(message) => {
            let mut body = vec![0];
            body.extend((message.len() as u32).to_be_bytes());
            body.extend(message);
            let trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]);
            let body = Full::new(Bytes::from(body)).with_trailers(async { Some(Ok(trailers)) });
            let mut response = hyper::Response::new(body.boxed());
            response.headers_mut().insert(CONTENT_TYPE, CONTENT);
            response
        }
        Err(Failed(code, why)) => {
            let mut response = hyper::Response::new(Full::new(Bytes::new()).boxed());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, CONTENT);
            headers.insert(STATUS, HeaderValue::from(code as u16));
            let text = HeaderValue::from_str(&percent(&why));
            headers.insert(
                MESSAGE,
                text.expect("it is ASCII without control characters"),
            );
            response
        }
    }
}

/// A text as `grpc-message` has it: what is not printable ASCII, and `%`, as `%HH`.
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_message_without_compression() {
        let read = |bytes: &'static [u8]| message(&Bytes::from_static(bytes));
        assert_eq!(read(b"\0\0\0\0\x02hi"), Ok(Bytes::from_static(b"hi")));
        assert_eq!(read(b"\0\0\0\0\0"), Ok(Bytes::new()));
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x03hi",
            b"\0\0\0\0\x01hi",
            b"\x01\0\0\0\x02hi",
            b"\0\xff\xff\xff\xff",
        ] {
            assert!(message(&Bytes::from_static(bad)).is_err(), "{bad:?}");
        }
        assert_eq!(percent("a%b\u{e9}\n"), "a%25b%C3%A9%0A");
    }
}
