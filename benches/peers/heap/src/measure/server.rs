//! A server: hyper, asked by wrk. Each answer parses a document and writes another.

use std::net::SocketAddr;
use std::process::Command;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime;

use super::clock;
use crate::options::Options;
use crate::{Result, Results};

/// What each answer parses: 40 objects.
const OBJECTS: usize = 40;

const CONNECTIONS: u32 = 32;

pub fn run(options: &Options) -> Result<Results> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_io()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    runtime.spawn(serve(listener));
    // One second that does not count: it opens connections, and fills caches.
    load(address, 1)?;
    let begin_ns = clock::process_ns();
    let load = load(address, options.seconds)?;
    let answer_ns = (clock::process_ns() - begin_ns) as f64 / load.answers;
    // Waits until its threads have ended, and have freed what they had.
    drop(runtime);
    #[cfg_attr(
        not(feature = "counted"),
        allow(unused_mut, reason = "there is nothing to add")
    )]
    let mut results = vec![
        ("answer_ns", answer_ns),
        ("answers_per_s", load.answers / load.seconds),
    ];
    #[cfg(feature = "counted")]
    results.extend(crate::estimate::held_against_truth("hyper")?);
    Ok(results)
}

async fn serve(listener: TcpListener) {
    let text = document();
    loop {
        // A client that is gone already is no reason to end.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let text = text.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, text.clone()));
            // wrk leaves its connections when its time is up.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// An error closes the connection, which wrk tells of.
async fn answer(
    request: Request<Incoming>,
    text: Bytes,
) -> Result<Response<Full<Bytes>>, serde_json::Error> {
    let objects: Vec<Value> = serde_json::from_slice(&text)?;
    let names: Vec<&Value> = objects.iter().map(|object| &object["name"]).collect();
    let answer = json!({ "path": request.uri().path(), "names": names });
    Ok(Response::new(Full::from(answer.to_string())))
}

fn document() -> Bytes {
    let objects: Vec<Value> = (0..OBJECTS)
        .map(|id| json!({ "id": id, "name": format!("number {id}"), "tags": ["one", "two"] }))
        .collect();
    Value::from(objects).to_string().into()
}

struct Load {
    answers: f64,
    seconds: f64,
}

/// Has wrk ask for so many seconds.
fn load(address: SocketAddr, seconds: u32) -> Result<Load> {
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .arg(format!("http://{address}/some/path"))
        .output()
        .map_err(|e| format!("cannot run wrk: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let unread = || format!("wrk said \"{}\"", said.trim());
    if !output.status.success() || said.contains("Non-2xx") || said.contains("Socket errors") {
        return Err(unread().into());
    }
    // "  123456 requests in 3.00s, 12.34MB read"
    let mut words = said
        .lines()
        .find(|line| line.contains(" requests in "))
        .ok_or_else(unread)?
        .split_whitespace();
    let answers = words.next().and_then(|n| n.parse().ok());
    let time = words.nth(2).map(|time| time.trim_end_matches(','));
    let seconds = time.and_then(|time| time.strip_suffix('s')?.parse().ok());
    let (answers, seconds) = answers.zip(seconds).ok_or_else(unread)?;
    Ok(Load { answers, seconds })
}
