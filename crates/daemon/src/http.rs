//! A small HTTP server for probes, metrics and a program's own pages.
//!
//! ```text
//! GET /livez    200 "ok" or 503 with the reason
//! GET /readyz   the same
//! GET /metrics  OpenMetrics text
//! anything else is the program's; what it does not know is 404
//! ```
//!
//! It must never hurt the program: few connections at a time, short time-outs, small bodies, one request per
//! connection at a time. A request that is too slow or too large costs only its own connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use hyper::{HeaderMap, Method, StatusCode};

/// Connections served at the same time; more wait.
const CONNECTIONS: usize = 64;
/// Longest body of a request, bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// Time for the header of a request, and for its body.
const REQUEST: Duration = Duration::from_secs(5);
/// Time that a connection may live: probes and scrapers come again.
const CONNECTION: Duration = Duration::from_mins(1);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Status.
    pub status: StatusCode,
    /// Value of the content-type header.
    pub content_type: &'static str,
    /// Body.
    pub body: Vec<u8>,
}

impl Response {
    /// Plain text.
    pub fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into().into_bytes(),
        }
    }

    /// JSON, status 200.
    pub fn json(body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: StatusCode::OK,
            content_type: "application/json",
            body: body.into(),
        }
    }
}

/// What a program shows. All of it is called on the runtime and must not block.
pub trait App: Send + Sync + 'static {
    /// Whether the process is of use at all; an error (the reason) has it restarted.
    ///
    /// # Errors
    /// Why not.
    fn live(&self) -> Result<(), String> {
        Ok(())
    }
    /// Whether clients should be sent here.
    ///
    /// # Errors
    /// Why not.
    fn ready(&self) -> Result<(), String>;
    /// The metrics page.
    fn metrics(&self) -> String;
    /// Pages of the program's own; `None` is 404.
    fn route(&self, _method: &Method, _path: &str, _headers: &HeaderMap, _body: &[u8]) -> Option<Response> {
        None
    }
}

/// A bound server.
#[derive(Debug)]
pub struct Http {
    listener: TcpListener,
    local: SocketAddr,
}

impl Http {
    /// Binds. Port 0 takes a free one.
    ///
    /// # Errors
    /// The address is in use or not ours; the text names it.
    pub async fn bind(addr: SocketAddr) -> io::Result<Self> {
        let named = |e: io::Error| {
            io::Error::new(
                e.kind(),
                format!("cannot listen for HTTP on {addr}: {e}; set another httpPort"),
            )
        };
        let listener = TcpListener::bind(addr).await.map_err(named)?;
        let local = listener.local_addr().map_err(named)?;
        Ok(Self { listener, local })
    }

    /// The address bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Serves until `stop`; answers what was begun, at most 5 s long.
    pub async fn run(self, app: Arc<dyn App>, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                place = Arc::clone(&places).acquire_owned() => {
                    let Ok(place) = place else { break };
                    tokio::select! {
                        () = stop.cancelled() => break,
                        accepted = self.listener.accept() => accepted.map(|(stream, _)| (stream, place)),
                    }
                }
            };
            match accepted {
                Ok((stream, place)) => {
                    let app = Arc::clone(&app);
                    let stop = stop.clone();
                    tasks.spawn(async move {
                        let served = timeout(CONNECTION, connection(stream, app, stop)).await;
                        tracing::trace!(?served, "HTTP connection ended");
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        tasks.close();
        if timeout(REQUEST, tasks.wait()).await.is_err() {
            tracing::debug!("HTTP connections were still open at the stop");
        }
    }
}

/// Binds to all addresses and serves until `stop`.
///
/// # Errors
/// The port cannot be bound.
pub async fn serve(port: u16, app: Arc<dyn App>, stop: CancellationToken) -> io::Result<()> {
    let http = Http::bind(SocketAddr::from(([0, 0, 0, 0], port))).await?;
    http.run(app, stop).await;
    Ok(())
}

async fn connection(
    stream: tokio::net::TcpStream,
    app: Arc<dyn App>,
    stop: CancellationToken,
) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, std::convert::Infallible>(answer(app.as_ref(), request).await) }
    });
    let mut serving = std::pin::pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST)
            .max_buf_size(16 * 1024)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        done = serving.as_mut() => return done,
        () = stop.cancelled() => {}
    }
    serving.as_mut().graceful_shutdown();
    serving.await
}

async fn answer(app: &dyn App, request: hyper::Request<Incoming>) -> hyper::Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = match timeout(REQUEST, Limited::new(body, MAX_BODY).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let text = format!("the body is broken or has more than {MAX_BODY} bytes\n");
            return finish(Response::text(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        Err(_) => {
            return finish(Response::text(
                StatusCode::REQUEST_TIMEOUT,
                "the body came too slowly\n",
            ));
        }
    };
    let path = head.uri.path();
    let own = match path {
        "/livez" => Some(probe(app.live())),
        "/readyz" => Some(probe(app.ready())),
        "/metrics" => Some(Response {
            status: StatusCode::OK,
            content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8",
            body: app.metrics().into_bytes(),
        }),
        _ => None,
    };
    let response = match own {
        Some(response) if head.method == Method::GET || head.method == Method::HEAD => response,
        Some(_) => {
            let mut refused = finish(Response::text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n"));
            refused
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        None => app
            .route(&head.method, path, &head.headers, &body)
            .unwrap_or_else(|| Response::text(StatusCode::NOT_FOUND, "no such page\n")),
    };
    finish(response)
}

fn probe(result: Result<(), String>) -> Response {
    match result {
        Ok(()) => Response::text(StatusCode::OK, "ok\n"),
        Err(reason) => Response::text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}

fn finish(response: Response) -> hyper::Response<Full<Bytes>> {
    let mut out = hyper::Response::new(Full::new(Bytes::from(response.body)));
    *out.status_mut() = response.status;
    out.headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(response.content_type));
    out
}
