//! A server: hyper, asked by wrk. Each answer parses a document and writes another.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

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
use super::pairs::Pairs;
use crate::options::Options;
use crate::{Result, Results};

/// What each answer parses: 40 objects.
const OBJECTS: usize = 40;

const CONNECTIONS: u32 = 32;

/// Long enough for thousands of answers, so short that the machine does not change meanwhile.
const PHASE_MS: u32 = 20;

static ANSWERS: AtomicU64 = AtomicU64::new(0);

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
    let pairs = thread::scope(|scope| {
        let load = scope.spawn(|| load(address, options.seconds));
        // Less than the load lasts, so that each phase has its answers.
        let phases = (options.seconds * 1000 - 500) / PHASE_MS;
        let pairs = Pairs::measure(phases / 2, |_| phase());
        load.join().expect("the load ends").and(pairs)
    })?;
    // Waits until its threads have ended, and have freed what they had.
    drop(runtime);
    #[cfg_attr(
        not(feature = "counted"),
        allow(unused_mut, reason = "there is nothing to add")
    )]
    let mut results = pairs.results("answer_ns", "alone_ns");
    #[cfg(feature = "counted")]
    results.extend(crate::estimate::held_against_truth("hyper")?);
    Ok(results)
}

/// CPU time of an answer, over some while.
fn phase() -> Result<f64> {
    let now = || (clock::process_ns(), ANSWERS.load(Relaxed));
    let (begin_ns, before) = now();
    thread::sleep(Duration::from_millis(PHASE_MS.into()));
    let (end_ns, after) = now();
    match after - before {
        0 => Err("the server answered nothing".into()),
        answers => Ok((end_ns - begin_ns) as f64 / answers as f64),
    }
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
    ANSWERS.fetch_add(1, Relaxed);
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

/// Has wrk ask for so many seconds.
fn load(address: SocketAddr, seconds: u32) -> Result<()> {
    let output = Command::new("wrk")
        .args(["--threads", "1", "--connections", &CONNECTIONS.to_string()])
        .args(["--duration", &format!("{seconds}s")])
        .arg(format!("http://{address}/some/path"))
        // The allocator is this program's alone; there are some that wrk does not run with.
        .env_remove("LD_PRELOAD")
        .output()
        .map_err(|e| format!("cannot run wrk: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || said.contains("Non-2xx") || said.contains("Socket errors") {
        return Err(format!("wrk said \"{}\"", said.trim()).into());
    }
    Ok(())
}
