//! One document on one port of this machine, until Ctrl-C.
//!
//! The listener is bound to the loopback address. A page elsewhere could still have a name resolve to it (DNS
//! rebinding), so a request that does not name this host and port is refused.

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

/// Sent with every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Serves the document; prints where.
pub fn serve(document: String, port: u16, open: bool) -> Result<()> {
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
        axum::serve(listener, router(document, address.port()))
            .with_graceful_shutdown(async {
                // Without a handler Ctrl-C ends the process all the same.
                if tokio::signal::ctrl_c().await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
            .await
            .context("the server stopped")
    })
}

fn router(document: String, port: u16) -> Router {
    let document: Arc<str> = document.into();
    let page = get(move || {
        let document = Arc::clone(&document);
        async move { Html(document.to_string()) }
    });
    let hosts: Arc<[String]> = [format!("127.0.0.1:{port}"), format!("localhost:{port}")].into();
    Router::new()
        .route("/", page)
        // Browsers ask for it; a missing one would be an error in their console.
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .layer(middleware::from_fn_with_state(hosts, only_this_host))
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
