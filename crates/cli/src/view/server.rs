//! Pages on one port of this machine, until Ctrl-C: the document, and what it asks for when boxes of large graphs are opened.
//!
//! The listener is bound to the loopback address. A page elsewhere could still have a name resolve to it (DNS
//! rebinding), so a request that does not name this host and port is refused.

use std::future::{Future, IntoFuture};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Poll;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use phonograph::report::html::{PictureAt, Question, Served};
use phonograph::report::picture::{GroupIx, NodeIx};
use tokio::net::TcpListener;

/// Sent with every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Serves the pages; prints where.
pub fn serve(pages: Served, port: u16, open: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the server")?;
    runtime.block_on(async {
        let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(wanted)
            .await
            .with_context(|| format!("cannot listen on {wanted}"))?;
        let address = listener.local_addr().context("the listener has no address")?;
        let url = format!("http://{address}/");
        let mut out = io::stdout();
        writeln!(out, "{url}\nCtrl-C ends.")
            .and_then(|()| out.flush())
            .context("cannot print the address")?;
        if open {
            open_in_browser(&url)?;
        }
        let mut serving = pin!(axum::serve(listener, router(pages, address.port())).into_future());
        let mut interrupted = pin!(async {
            // Without a handler Ctrl-C ends the process all the same.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        // Not gracefully: somebody who never ends a request, or never reads the answer, would keep it for ever.
        std::future::poll_fn(|cx| match interrupted.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Ok(())),
            Poll::Pending => serving.as_mut().poll(cx),
        })
        .await
        .context("the server stopped")
    })
}

fn router(pages: Served, port: u16) -> Router {
    let hosts: Arc<[String]> = [format!("127.0.0.1:{port}"), format!("localhost:{port}")].into();
    Router::new()
        .route("/", get(document))
        .route("/open/{page}/{section}/{side}/{group}/{path}", get(open))
        .route("/where/{page}/{section}/{side}/{group}/{node}", get(place))
        .route("/find/{page}/{section}/{side}/{words}", get(find))
        // Browsers ask for it; a missing one would be an error in their console.
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .with_state(Arc::new(pages))
        .layer(middleware::from_fn_with_state(hosts, only_this_host))
}

type Pages = State<Arc<Served>>;

async fn document(State(pages): Pages) -> Html<String> {
    Html(pages.document().to_owned())
}

/// What lies in a box, which is named by numbers with points between them.
async fn open(
    State(pages): Pages,
    Path((page, section, side, group, path)): Path<(usize, usize, usize, u32, String)>,
) -> Response {
    let Ok(path) = path.split('.').map(str::parse).collect::<Result<Vec<u32>, _>>() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    answer(&pages, (page, section, side), Question::Open(GroupIx(group), &path))
}

/// Which boxes a node lies in.
async fn place(
    State(pages): Pages,
    Path((page, section, side, group, node)): Path<(usize, usize, usize, u32, u32)>,
) -> Response {
    answer(&pages, (page, section, side), Question::Where(GroupIx(group), NodeIx(node)))
}

/// Which nodes have all words; `=` stands before them, since dots alone would be dropped from an address.
async fn find(
    State(pages): Pages,
    Path((page, section, side, words)): Path<(usize, usize, usize, String)>,
) -> Response {
    let Some(words) = words.strip_prefix('=') else { return StatusCode::NOT_FOUND.into_response() };
    answer(&pages, (page, section, side), Question::Find(words))
}

fn answer(
    pages: &Served,
    (page, section, side): (usize, usize, usize),
    question: Question,
) -> Response {
    match pages.answer(PictureAt { page, section, side }, question) {
        Some(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn only_this_host(
    State(hosts): State<Arc<[String]>>,
    request: Request,
    next: Next,
) -> Response {
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let response = if named.is_some_and(|named| hosts.iter().any(|host| host == named)) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "This server answers on its own address only.\n").into_response()
    };
    (HEADERS, response).into_response()
}

fn open_in_browser(url: &str) -> Result<()> {
    let (program, arguments): (&str, &[&str]) = if cfg!(target_os = "macos") {
        ("open", &[])
    } else if cfg!(windows) {
        ("cmd", &["/C", "start", ""])
    } else {
        ("xdg-open", &[])
    };
    Command::new(program)
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot open a browser with {program}"))?;
    Ok(())
}
