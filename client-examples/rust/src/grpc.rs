//! A Zeitnot server as a target.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use zeitnot_proto::v1::{PredictRequest, prediction_service_client::PredictionServiceClient};

use crate::target::{Outcome, Target};

/// How to reach a server.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Its address, such as `http://localhost:50051`, or `https://` with TLS.
    pub address: String,
    /// Connections to spread the calls over.
    pub connections: usize,
    /// Deadline of each call.
    pub deadline: Duration,
    /// API key.
    pub key: Option<String>,
    /// Authority (PEM file) that signed the server's certificate.
    pub tls_ca: Option<PathBuf>,
}

/// A Zeitnot server and what it is asked.
#[derive(Debug)]
pub struct Grpc {
    clients: Vec<PredictionServiceClient<Channel>>,
    requests: Vec<PredictRequest>,
    deadline: Duration,
    authorization: Option<MetadataValue<Ascii>>,
}

impl Grpc {
    /// Connects. Call `n` asks the `n`th request, starting over at the end.
    ///
    /// # Errors
    ///
    /// When the server cannot be reached or an option cannot be used.
    pub async fn connect(to: &Connect, requests: Vec<PredictRequest>) -> Result<Self> {
        let mut endpoint = Endpoint::from_shared(to.address.clone())?.tcp_nodelay(true);
        if let Some(path) = &to.tls_ca {
            let authority = std::fs::read(path).with_context(|| path.display().to_string())?;
            endpoint = endpoint.tls_config(ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)))?;
        }
        let mut clients = Vec::new();
        for _ in 0..to.connections.max(1) {
            let channel = endpoint.connect().await.with_context(|| format!("cannot connect to {}", to.address))?;
            clients.push(PredictionServiceClient::new(channel));
        }
        let authorization = to.key.as_ref().map(|key| format!("Bearer {key}").parse()).transpose()?;
        anyhow::ensure!(!requests.is_empty(), "there is nothing to ask");
        Ok(Grpc { clients, requests, deadline: to.deadline, authorization })
    }
}

impl Target for Grpc {
    async fn call(&self, number: usize) -> Outcome {
        let client = self.clients.get(number % self.clients.len());
        let asked = self.requests.get(number % self.requests.len());
        let (Some(mut client), Some(asked)) = (client.cloned(), asked.cloned()) else {
            return Outcome::Failed("nothing to call".to_owned());
        };
        let mut request = Request::new(asked);
        request.set_timeout(self.deadline);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        match client.predict(request).await {
            Ok(_) => Outcome::Answered,
            Err(status) => outcome(&status),
        }
    }
}

/// How a call ended that was not answered.
pub fn outcome(status: &Status) -> Outcome {
    match status.code() {
        Code::ResourceExhausted => Outcome::Refused,
        Code::DeadlineExceeded => Outcome::Late,
        // The client's own timer, which tonic reports so.
        Code::Cancelled if status.message() == "Timeout expired" => Outcome::Late,
        code => Outcome::Failed(format!("{code:?}: {}", status.message())),
    }
}
