//! Requests and answers as HTTP/1.1.

use super::{Request, Shared};
use crate::api::answers::{Answer, refusal};
use crate::ingress::{Api, Ended};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The longest head, and what is read at a time.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long a head, and a body, may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection lives, whatever is asked on it.
const LIFE: Duration = Duration::from_secs(600);

impl Api for Shared {
    async fn serve(&self, stream: Ended, peer: SocketAddr) {
        let service = service_fn(|request| self.one(request, peer));
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(HEAD_BYTES_MAX);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        // Where one breaks there is nobody to tell.
        let _ = tokio::time::timeout(LIFE, connection).await;
    }
}

impl Shared {
    async fn one(
        &self,
        request: hyper::Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<hyper::Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body =
            tokio::time::timeout(PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await;
        let answer = match body {
            Ok(Ok(body)) => {
                let body = body.to_bytes();
                let authorization = head.headers.get(AUTHORIZATION);
                let request = Request {
                    method: head.method.as_str(),
                    path: head.uri.path(),
                    authorization: authorization.and_then(|value| value.to_str().ok()),
                    peer: peer.ip(),
                    body: &body,
                };
                self.0.handle(&request).await
            }
            Ok(Err(_)) => refusal(413, format!("a body has at most {BODY_BYTES_MAX} bytes")),
            Err(_) => refusal(408, "the body does not come".to_owned()),
        };
        Ok(response(answer))
    }
}

fn response(answer: Answer) -> hyper::Response<Full<Bytes>> {
    let mut response = hyper::Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() =
        hyper::StatusCode::from_u16(answer.status).expect("they are three digits");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if answer.status == 405 {
        headers.insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
    }
    response
}
