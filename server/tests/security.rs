//! Keys and certificates: right, wrong, missing, expired, and changed while the server runs.
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

mod common;

use std::{fs, path::Path, time::Duration};

use common::{Act, Process, Server, Sidecar, request, strong};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tonic::{
    Code, Request, Status,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity, ServerTlsConfig},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;
use zeitnot_proto::v1::{
    PredictRequest, ReloadModelsRequest, RerankStatus, prediction_service_client::PredictionServiceClient,
};

fn fingerprint(key: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn entry(name: &str, key: &str, more: &str) -> String {
    format!("[[key]]\nname = \"{name}\"\nsha256 = \"{}\"\n{more}\n", fingerprint(key))
}

fn with_key<T>(message: T, key: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

async fn predict(server: &Server, key: &str) -> Result<(), Status> {
    server.predictions().predict(with_key(request(&["e4"]), key)).await.map(drop)
}

fn code(outcome: Result<(), Status>) -> Code {
    outcome.map_or_else(|status| status.code(), |()| Code::Ok)
}

#[tokio::test]
async fn keys_are_asked_for_and_follow_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    let keys = [
        entry("app", "app-key", ""),
        entry("old", "old-key", "expires = 2020-01-01T00:00:00Z"),
        entry("boss", "boss-key", "admin = true"),
    ];
    fs::write(&file, keys.concat()).unwrap();
    let server = Server::start(&["--api-keys", file.to_str().unwrap(), "--watch-ms=0"]).await;
    assert_eq!(code(predict(&server, "app-key").await), Code::Ok);
    for wrong in ["", "app-keys", "APP-KEY", "old-key"] {
        let status = predict(&server, wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{wrong}");
        assert!(!status.message().contains("key-"), "{}", status.message());
    }
    let missing = server.predictions().predict(request(&["e4"])).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unauthenticated);
    assert_eq!(missing.get_error_details().error_info().unwrap().reason, "UNAUTHENTICATED");
    let mut basic = Request::new(request(&["e4"]));
    basic.metadata_mut().insert("authorization", "Basic YXBwLWtleQ==".parse().unwrap());
    assert_eq!(server.predictions().predict(basic).await.unwrap_err().code(), Code::Unauthenticated);
    let counted = "zeitnot_requests_total{code=\"UNAUTHENTICATED\",method=\"Predict\",model=\"none\"}";
    server.until(counted, 6.0).await;
    let health = HealthClient::new(server.channel.clone()).check(HealthCheckRequest { service: String::new() }).await;
    assert!(health.is_ok(), "health is exempt");

    let reload = |key: &str| {
        let (mut models, request) = (server.models(), with_key(ReloadModelsRequest {}, key));
        async move { models.reload_models(request).await.map(drop) }
    };
    assert_eq!(code(reload("app-key").await), Code::PermissionDenied);
    assert_eq!(code(reload("boss-key").await), Code::Ok);

    fs::write(&file, entry("app", "new-key", "")).unwrap();
    server.hangup.send(()).await.unwrap();
    server.until("zeitnot_credential_reloads_total{result=\"changed\",what=\"keys\"}", 1.0).await;
    assert_eq!(code(predict(&server, "app-key").await), Code::Unauthenticated);
    assert_eq!(code(predict(&server, "new-key").await), Code::Ok);
    fs::write(&file, "").unwrap();
    server.hangup.send(()).await.unwrap();
    server.until("zeitnot_credential_reloads_total{result=\"failed\",what=\"keys\"}", 1.0).await;
    assert_eq!(code(predict(&server, "new-key").await), Code::Ok, "what cannot be read changes nothing");
    assert_eq!(code(predict(&server, "").await), Code::Unauthenticated, "least of all does it open the door");
}

#[tokio::test]
async fn each_key_has_its_own_limits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    let keys = [entry("slow", "slow-key", "requests_per_second = 1\nburst = 3"), entry("free", "free-key", "")];
    fs::write(&file, keys.concat()).unwrap();
    let server = Server::start(&["--api-keys", file.to_str().unwrap()]).await;
    let mut refused = 0;
    for _ in 0..8 {
        if let Err(status) = predict(&server, "slow-key").await {
            assert_eq!(status.code(), Code::ResourceExhausted);
            let details = status.get_error_details();
            assert_eq!(details.error_info().unwrap().reason, "CLIENT_LIMIT");
            assert!(details.retry_info().unwrap().retry_delay.unwrap() <= Duration::from_secs(1));
            refused += 1;
        }
        assert_eq!(code(predict(&server, "free-key").await), Code::Ok);
    }
    assert!((3..=5).contains(&refused), "a burst of three, one more a second: {refused} of 8 refused");
}

/// An authority, with what it signs, as PEM files.
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

    /// A certificate and its key, valid until a year.
    fn sign(&self, name: &str, purpose: ExtendedKeyUsagePurpose, until: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![purpose];
        params.not_before = rcgen::date_time_ymd(2010, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn server(&self) -> (String, String) {
        self.sign("localhost", ExtendedKeyUsagePurpose::ServerAuth, 2090)
    }

    fn client(&self, until: i32) -> (String, String) {
        self.sign("client", ExtendedKeyUsagePurpose::ClientAuth, until)
    }
}

fn write_pair(folder: &Path, (cert, key): &(String, String)) {
    fs::write(folder.join("cert.pem"), cert).unwrap();
    fs::write(folder.join("key.pem"), key).unwrap();
}

fn tls_flags(folder: &Path) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    vec![format!("--tls-cert={}", path("cert.pem")), format!("--tls-key={}", path("key.pem"))]
}

/// A call over TLS, trusting an authority, with or without a certificate of one's own.
async fn call(server: &Server, trusted: &str, own: Option<&(String, String)>) -> Result<(), String> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(trusted)).domain_name("localhost");
    if let Some((cert, key)) = own {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    let endpoint = Endpoint::from_shared(format!("https://{}", server.grpc)).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
    let asked = PredictRequest { top_k: 1, ..request(&["e4"]) };
    PredictionServiceClient::new(channel).predict(asked).await.map(drop).map_err(|status| format!("{status:?}"))
}

#[tokio::test]
async fn connections_are_encrypted_and_certificates_follow_their_files() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), &old.server());
    let flags = tls_flags(folder.path());
    let mut flags = flags.iter().map(String::as_str).collect::<Vec<_>>();
    flags.push("--watch-ms=50");
    let server = Server::start(&flags).await;
    call(&server, &old.pem, None).await.unwrap();
    assert!(call(&server, &new.pem, None).await.unwrap_err().contains("UnknownIssuer"));
    assert!(server.predictions().predict(request(&["e4"])).await.is_err(), "plain text is not understood");
    // A certificate without its key is refused, and the old pair holds on.
    fs::write(folder.path().join("cert.pem"), new.server().0).unwrap();
    server.until("zeitnot_credential_reloads_total{result=\"failed\",what=\"certificates\"}", 1.0).await;
    call(&server, &old.pem, None).await.unwrap();
    write_pair(folder.path(), &new.server());
    server.until("zeitnot_credential_reloads_total{result=\"changed\",what=\"certificates\"}", 1.0).await;
    call(&server, &new.pem, None).await.unwrap();
    assert!(call(&server, &old.pem, None).await.is_err());
    assert!(server.metric("zeitnot_refused_connections_total{reason=\"handshake\"}").await >= 2.0);
}

#[tokio::test]
async fn clients_prove_who_they_are_where_that_is_asked_for() {
    let (own, stranger) = (Authority::new("own"), Authority::new("stranger"));
    let folder = tempfile::tempdir().unwrap();
    write_pair(folder.path(), &own.server());
    let authority = folder.path().join("ca.pem");
    fs::write(&authority, &own.pem).unwrap();
    let mut flags = tls_flags(folder.path());
    flags.push(format!("--tls-client-ca={}", authority.display()));
    let server = Server::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await;
    call(&server, &own.pem, Some(&own.client(2090))).await.unwrap();
    call(&server, &own.pem, None).await.unwrap_err();
    call(&server, &own.pem, Some(&own.client(2020))).await.unwrap_err();
    call(&server, &own.pem, Some(&stranger.client(2090))).await.unwrap_err();
    call(&server, &own.pem, Some(&own.client(2090))).await.unwrap();
    assert_eq!(server.metric("zeitnot_refused_connections_total{reason=\"handshake\"}").await, 3.0);
}

#[tokio::test]
async fn the_process_writes_no_file_and_logs_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys.toml");
    fs::write(&file, entry("app", "a-secret-key", "")).unwrap();
    let flags = ["--api-keys", file.to_str().unwrap(), "--access-log=1", "--log=debug,h2=trace"];
    let process = Process::start(&flags).await;
    let mut client = process.client().await;
    client.predict(with_key(request(&["e4"]), "a-secret-key")).await.unwrap();
    client.predict(with_key(request(&["e4"]), "another-secret-key")).await.unwrap_err();
    // The test's own output, which may go to a file, is its children's too.
    let inherited = [1, 2].map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).unwrap());
    let open = fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let target = fs::read_link(entry.path()).ok()?;
        let info = fs::read_to_string(format!("/proc/{}/fdinfo/{}", process.id(), entry.file_name().display())).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
        let writes = u32::from_str_radix(&flags, 8).unwrap() & 3 != 0;
        let own = writes && target.is_absolute() && !target.starts_with("/dev") && !inherited.contains(&target);
        own.then_some(target)
    });
    assert_eq!(open.collect::<Vec<_>>(), Vec::<std::path::PathBuf>::new(), "no file is open for writing");
    let log = process.stop_and_read_log().await;
    assert!(log.contains("\"client\":\"app\""), "the access log names the client: {log}");
    assert!(!log.contains("secret-key"), "{log}");
}

#[tokio::test]
async fn engines_are_called_by_tls_and_must_be_who_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new("ours"), Authority::new("another"));
    let (cert, key) = authority.server();
    let server = tonic::transport::Server::builder();
    let server = server.tls_config(ServerTlsConfig::new().identity(Identity::from_pem(cert, key))).unwrap();
    let sidecar = Sidecar::start_with("127.0.0.1:0".parse().unwrap(), Act::Score(vec![]), server);
    let port = sidecar.address.port();
    let authority_file = |name: &str, pem: &str| {
        std::fs::write(folder.path().join(name), pem).unwrap();
        format!("--engine-tls-ca={}", folder.path().join(name).display())
    };
    let (ours, theirs) = (authority_file("ours.pem", &authority.pem), authority_file("theirs.pem", &stranger.pem));
    for engines in [format!("--engines=https://localhost:{port}"), format!("--engines=dns:localhost:{port}")] {
        let server = Server::start(&[&engines, &ours, "--reranker=none"]).await;
        let evidence = async || server.predictions().predict(strong(&["e4"])).await.unwrap().into_inner().insight;
        while evidence().await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await; // The name is being looked up.
        }
    }
    let asked = sidecar.asked();
    let server = Server::start(&[&format!("--engines=https://localhost:{port}"), &theirs, "--reranker=none"]).await;
    let answer = server.predictions().predict(strong(&["e4"])).await.unwrap().into_inner();
    assert_eq!(answer.rerank_status(), RerankStatus::SkippedEngineUnavailable);
    assert_eq!(sidecar.asked(), asked, "a stranger is told nothing");
}
