use super::*;

#[test]
fn every_label_is_there_before_the_first_request() {
    let metrics = Metrics::new().unwrap();
    metrics.model("mine");
    let text = metrics.text().unwrap();
    for line in [
        "zeitnot_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"Predict\",model=\"mine\"} 0",
        "zeitnot_requests_total{code=\"UNAUTHENTICATED\",method=\"Predict\",model=\"none\"} 0",
        "zeitnot_dropped_requests_total{model=\"mine\",reason=\"cancelled\"} 0",
        "zeitnot_request_seconds_count{method=\"GetModel\",model=\"none\"} 0",
        "zeitnot_workers{model=\"mine\"} 0",
        "zeitnot_reloads_total{result=\"failed\"} 0",
        "zeitnot_refused_connections_total{reason=\"handshake\"} 0",
        "zeitnot_rerank_total{status=\"applied\"} 0",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_request_counts_once_and_is_in_flight_until_it_ends() {
    let metrics = Metrics::new().unwrap();
    let request = metrics.request("Predict");
    assert!(metrics.text().unwrap().contains("zeitnot_requests_in_flight 1"));
    assert_eq!(request.ended(Code::Ok, "mine"), "OK");
    let text = metrics.text().unwrap();
    assert!(text.contains("zeitnot_requests_total{code=\"OK\",method=\"Predict\",model=\"mine\"} 1"), "{text}");
    assert!(text.contains("zeitnot_request_seconds_count{method=\"Predict\",model=\"mine\"} 1"));
    assert!(text.contains("zeitnot_requests_in_flight 0"));
}
