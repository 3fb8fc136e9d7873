//! Lets in who may call: a tower layer that asks for an API key and holds clients to their limits. Health is exempt.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tonic::{
    Status,
    body::Body,
    codegen::http::{HeaderMap, Request, Response, header::AUTHORIZATION},
};
use tower::{Layer, Service};

use crate::{credentials::Credentials, error::ServiceError, keys::Client};

/// Who calls; an extension of every request that needed a key.
#[derive(Clone, Debug)]
pub struct Caller(pub Arc<Client>);

/// Wraps services so that they need a key, when the credentials hold keys.
#[derive(Clone)]
pub struct AccessLayer {
    credentials: Arc<Credentials>,
}

impl AccessLayer {
    /// Asks for the keys of these credentials, as they are when a request comes.
    pub fn new(credentials: Arc<Credentials>) -> Self {
        AccessLayer { credentials }
    }
}

impl<S> Layer<S> for AccessLayer {
    type Service = Access<S>;

    fn layer(&self, inner: S) -> Access<S> {
        Access { inner, credentials: Arc::clone(&self.credentials) }
    }
}

/// A service that needs a key.
#[derive(Clone)]
pub struct Access<S> {
    inner: S,
    credentials: Arc<Credentials>,
}

impl<S, B> Service<Request<B>> for Access<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let permit = match self.enter(&mut request) {
            Ok(permit) => permit,
            Err(error) => return Box::pin(async move { Ok(Status::from(error).into_http()) }),
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(match permit {
                Some(permit) => answer.map(|body| Body::new(Holding { body, _permit: permit })),
                None => answer,
            })
        })
    }
}

impl<S> Access<S> {
    fn enter<B>(&self, request: &mut Request<B>) -> Result<Option<OwnedSemaphorePermit>, ServiceError> {
        let Some(keys) = self.credentials.keys() else { return Ok(None) };
        if request.uri().path().starts_with("/grpc.health.v1.Health/") {
            return Ok(None);
        }
        let client = keys.client(bearer(request.headers()))?;
        tracing::Span::current().record("client", client.name.as_str());
        let permit = client.enter()?;
        request.extensions_mut().insert(Caller(Arc::clone(client)));
        Ok(permit)
    }
}

/// The key of `authorization: Bearer KEY`.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}

/// A body whose end gives back the client's place.
struct Holding {
    body: Body,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Holding {
    type Data = <Body as http_body::Body>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
