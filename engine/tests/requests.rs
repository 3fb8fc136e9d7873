//! What is refused and how, reflection, certificates.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

mod common;

use std::{fs, path::Path};

use common::{Fake, START, Sidecar, reason, request};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tonic::{
    Code,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};
use tonic_types::StatusExt;
use zeitnot_engine::config::Config;
use zeitnot_proto::engine::v1::{EvaluateCandidatesRequest, Limits};

#[tokio::test]
async fn bad_requests_name_their_fields() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start(Config { max_depth: 10, max_nodes: 100, ..fake.config() }).await;
    let nodes = |nodes| Some(Limits { nodes, ..Limits::default() });
    for (request, field) in [
        (request("banana", &["e2e4"], 1), "fen"),
        (request("8/8/8/8/8/8/8/8 w - - 0 1", &["e2e4"], 1), "fen"),
        (request(START, &["e2e4", "e2e5"], 1), "candidates[1]"),
        (request(START, &["e2e4", "e2e4"], 1), "candidates[1]"),
        (request(START, &[], 1), "candidates"),
        (request(START, &["e2e4"; 219], 1), "candidates"),
        (request(START, &["e2e4"], 0), "limits"),
        (request(START, &["e2e4"], 11), "limits.depth"),
        (EvaluateCandidatesRequest { limits: nodes(101), ..request(START, &["e2e4"], 1) }, "limits.nodes"),
        (EvaluateCandidatesRequest { limits: None, ..request(START, &["e2e4"], 1) }, "limits"),
    ] {
        let status = sidecar.ask(request).await.unwrap_err();
        assert_eq!((status.code(), reason(&status).as_str()), (Code::InvalidArgument, "INVALID_REQUEST"), "{field}");
        let details = status.get_error_details();
        let fields = &details.bad_request().unwrap().field_violations;
        assert!(fields.len() == 1 && fields[0].field == field, "{field}: {fields:?}");
    }
    let refused = "zeitnot_sidecar_requests_total{code=\"INVALID_ARGUMENT\",method=\"EvaluateCandidates\"}";
    assert_eq!(sidecar.metric(refused).await, 10.0);
    assert_eq!(sidecar.metric("zeitnot_sidecar_searches_total").await, 1.0, "the pool's own alone");
}

#[tokio::test]
async fn reflection_lists_what_is_served_in_both_protocols() {
    let fake = Fake::new("normal");
    let sidecar = Sidecar::start_cold(fake.config()).await;
    let expected = ["grpc.health.v1.Health", "zeitnot.engine.v1.EngineService"];

    use v1::{server_reflection_request::MessageRequest, server_reflection_response::MessageResponse};
    let list = MessageRequest::ListServices(String::new());
    let ask = v1::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(sidecar.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names = list.service.into_iter().map(|service| service.name).collect::<Vec<_>>();
    assert!(expected.iter().all(|name| names.iter().any(|own| own == name)), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("Prediction")), "{names:?}");

    let list = v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(expected[1].to_owned());
    let ask = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(sidecar.channel.clone());
    let mut answers = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    use v1alpha::server_reflection_response::MessageResponse as Older;
    assert!(matches!(answer, Some(Older::FileDescriptorResponse(_))), "{answer:?}");
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate and its key.
    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

fn write(folder: &Path, name: &str, text: &str) -> Option<std::path::PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    Some(path)
}

async fn call(grpc: &str, authority: &str, identity: Option<&(String, String)>) -> Result<(), String> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)).domain_name("localhost");
    if let Some((cert, key)) = identity {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{grpc}")).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
    let asked = HealthCheckRequest { service: String::new() };
    HealthClient::new(channel).check(asked).await.map(drop).map_err(|error| format!("{error:?}"))
}

#[tokio::test]
async fn with_certificates_strangers_are_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (cert, key) = ours.sign("localhost", ExtendedKeyUsagePurpose::ServerAuth);
    let fake = Fake::new("normal");
    let config = Config {
        tls_cert: write(folder.path(), "cert.pem", &cert),
        tls_key: write(folder.path(), "key.pem", &key),
        tls_client_ca: write(folder.path(), "ca.pem", &ours.pem),
        ..fake.config()
    };
    let sidecar = Sidecar::start_cold(config.clone()).await;
    let friend = ours.sign("friend", ExtendedKeyUsagePurpose::ClientAuth);
    let stranger = other.sign("stranger", ExtendedKeyUsagePurpose::ClientAuth);
    call(&sidecar.grpc, &ours.pem, Some(&friend)).await.unwrap();
    for identity in [None, Some(&stranger)] {
        assert!(call(&sidecar.grpc, &ours.pem, identity).await.is_err(), "{identity:?}");
    }
    assert!(call(&sidecar.grpc, &other.pem, Some(&friend)).await.unwrap_err().contains("UnknownIssuer"));
    assert!(sidecar.ask(request(START, &["e2e4"], 1)).await.is_err(), "plain text is not understood");

    let plain = Config { tls_client_ca: None, ..config.clone() };
    let sidecar = Sidecar::start_cold(plain.clone()).await;
    call(&sidecar.grpc, &ours.pem, None).await.unwrap();
    plain.check_files().unwrap();
    let wrong = Config { tls_key: write(folder.path(), "other.pem", &stranger.1), ..plain };
    let complaint = format!("{:#}", wrong.check_files().unwrap_err());
    assert!(complaint.contains("--tls-key") && complaint.contains("other.pem"), "{complaint}");
}
