//! A peer that takes a row of tensors by HTTP POST.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tonic::codegen::{
    Bytes,
    http::{Request, StatusCode, Uri},
};
use zeitnot_load::target::{Outcome, Target};

pub(crate) struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    header_length: Option<usize>,
    bodies: Vec<Bytes>,
    deadline: Duration,
}

impl Http {
    /// Rows are sent as they are, or behind a header (KServe's binary extension).
    pub(crate) fn new(port: u16, path: &str, header: Option<String>, rows: &[Vec<u8>], deadline: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let header_length = header.as_ref().map(String::len);
        let header = header.unwrap_or_default();
        let bodies = rows.iter().map(|row| [header.as_bytes(), row].concat().into()).collect();
        let uri = format!("http://127.0.0.1:{port}{path}").parse().unwrap();
        Http { client: Client::builder(TokioExecutor::new()).build(connector), uri, header_length, bodies, deadline }
    }

    async fn ask(&self, number: usize) -> Outcome {
        let body = self.bodies[number % self.bodies.len()].clone();
        let mut request = Request::post(self.uri.clone()).header("content-type", "application/octet-stream");
        if let Some(length) = self.header_length {
            request = request.header("inference-header-content-length", length);
        }
        let response = match self.client.request(request.body(Full::new(body)).unwrap()).await {
            Ok(response) => response,
            Err(error) => return Outcome::Failed(error.to_string()),
        };
        let status = response.status();
        let Ok(body) = response.into_body().collect().await else { return Outcome::Failed("cut short".to_owned()) };
        let said = body.to_bytes();
        match status {
            StatusCode::OK if said.len() >= 4209 * 4 => Outcome::Answered,
            StatusCode::OK => Outcome::Failed(format!("answered {} bytes", said.len())),
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Outcome::Late,
            StatusCode::SERVICE_UNAVAILABLE if said.windows(7).any(|word| word == b"timeout") => Outcome::Late,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Outcome::Refused,
            other => Outcome::Failed(other.to_string()),
        }
    }
}

impl Target for Http {
    async fn call(&self, number: usize) -> Outcome {
        tokio::time::timeout(self.deadline, self.ask(number)).await.unwrap_or(Outcome::Late)
    }
}
