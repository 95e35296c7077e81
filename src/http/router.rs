//! The endpoints in an application of axum's.

use axum::Router;

use super::endpoints::Endpoints;
use super::options::Options;

/// The [endpoints](super), to be merged into an application of axum's:
///
/// ```no_run
/// # async fn application() -> std::io::Result<()> {
/// let application = axum::Router::new()
///     // … the application's own routes …
///     .merge(sigprof::http::router());
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// axum::serve(listener, application).await
/// # }
/// ```
///
/// They say much of the program, and let who asks spend its time: keep them from strangers, or set
/// a [token](Options::token).
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Options::new().router()
}

/// These endpoints below a path.
pub(super) fn of<S: Clone + Send + Sync + 'static>(
    prefix: &str,
    endpoints: &Endpoints,
) -> Router<S> {
    let paths = [
        "/pprof/{endpoint}",
        "/debug/pprof",
        "/debug/pprof/",
        "/debug/pprof/{endpoint}",
    ];
    // Where axum would take a part of the path for a parameter.
    let prefix = prefix.replace('{', "{{").replace('}', "}}");
    // Nor is a part that begins with a colon or an asterisk anything else than itself.
    let router = Router::new().without_v07_checks();
    paths.into_iter().fold(router, |router, path| {
        router.route_service(&format!("{prefix}{path}"), endpoints.clone())
    })
}
